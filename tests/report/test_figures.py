"""The figures of a report: no line or bar hides another, and every seed is in it."""

from capsnmt.evaluation.scores import Comparison, spread
from capsnmt.pages.plots import drawing
from capsnmt.report.figures import differences, learning_curves, means_by_category
from capsnmt.runs.learning_curve import LearningCurve


def test_means_have_every_value_seed_and_reference() -> None:
    found = {"1": spread([19.0, 21.0]), "512": spread([25.0])}
    means = {"one": found, "other": {"8": spread([22.0]), "1": spread([30.0, 20.0])}}
    categories = {"1": "1", "8": "8", "512": "512"}
    with drawing():
        (axes,) = means_by_category(
            means, categories, ("flag", "BLEU"), {"baseline": spread([17.5, 18.5])}
        ).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "8", "512"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("baseline", "one", "other")
    ]
    seeds = [list(line.get_ydata()) for line in axes.lines if line.get_marker() == "."]
    assert seeds == [[19.0, 21.0], [30.0, 20.0]]
    one, other = (bars.lines[0].get_xdata() for bars in axes.containers)
    assert [round(place) for place in one] == [0, 2]
    assert [round(place) for place in other] == [1, 0]
    assert one[0] != other[1]
    # a bar ends at the lowest and the highest seed
    segments = [bars.lines[2][0].get_segments()[0] for bars in axes.containers]
    assert [[y for _, y in segment] for segment in segments] == [[19.0, 21.0], [22.0, 22.0]]
    assert "mean of up to 2 seeds" in axes.get_ylabel()


def test_the_points_of_many_systems_stay_in_their_category() -> None:
    means = {f"system {number}": {"1": spread([1.0]), "8": spread([2.0])} for number in range(18)}
    with drawing():
        (axes,) = means_by_category(means, {"1": "1", "8": "8"}, ("flag", "BLEU")).axes
    for bars in axes.containers:
        assert [round(place) for place in bars.lines[0].get_xdata()] == [0, 1]
    ends = [bars.lines[0].get_xdata() for bars in (axes.containers[0], axes.containers[-1])]
    assert axes.get_xlim()[0] < ends[0][0] < ends[1][1] < axes.get_xlim()[1]


def test_the_legend_of_the_learning_curves_says_what_is_solid_and_dotted() -> None:
    curve = LearningCurve({1: 50.0, 20: 3.0, 40: 2.0}, {40: 2.5})
    with drawing():
        (axes,) = learning_curves({"one": [curve, curve]}).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("one", "validation", "training")
    ]
    with drawing():
        (axes,) = learning_curves({"_wide": [curve]}).axes
    assert axes.get_legend().get_texts()[0].get_text().strip() == "_wide"
    handles, names = axes.get_legend_handles_labels()
    styled = {name: handle.get_linestyle() for name, handle in zip(names, handles)}
    assert (styled["validation"], styled["training"]) == ("-", ":")
    assert axes.get_ylim()[1] < 6  # the first update would leave no room for the others


def test_the_names_of_many_test_sets_stay_in_the_figure_of_differences() -> None:
    one = Comparison(
        system="em", baseline="base", metric="bleu", seeds=(1, 1), delta=0.5, interval=(0.0, 1.0)
    )
    with drawing():
        figure = differences({f"newstest{year}": {"em": one} for year in range(2013, 2021)})
        figure.draw_without_rendering()
        legend, plot = (each.get_window_extent() for each in (*figure.legends, *figure.axes))
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.x1
    assert plot.height > figure.dpi
