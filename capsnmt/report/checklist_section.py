"""The four questions of Marie, Fujita and Rubino 2021, answered from the records of the runs.

**D**: an answer is "yes" only if a record shows it. Whatever no record shows is "no", with what is
missing. A report of one system compares nothing, so questions 2 and 4 do not apply.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Sequence

from capsnmt.evaluation.scores import common_metrics
from capsnmt.evaluation.segment_scores import GIVEN
from capsnmt.report.elements import Element, Listing, Paragraph, Strong
from capsnmt.report.score_section import signatures_of
from capsnmt.runs.finished import FinishedRun

YES, NO, NONE = "yes", "no", "does not apply"
# They agree with human judgement better than BLEU (Kocmi et al. 2021); TER does not.
BETTER_THAN_BLEU = ("chrf", "chrf++")


class Answer(NamedTuple):
    """The answer to a question, and what shows it or is missing."""

    answer: str
    evidence: str


def checklist(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Element]:
    """Yield the questions with their answers.

    Args:
        runs: all runs, the baseline first.
        names: their names.
    """
    answers = {
        "Is there a metric that agrees with people better than BLEU, or human evaluation?": (
            better_metric(runs)
        ),
        "Are the differences tested for statistical significance?": tested(runs, names),
        "Are all scores computed here, with one signature, and none copied?": computed(runs),
        "Do the compared systems use the same preprocessed data?": same_data(runs, names),
    }
    yes = sum(each.answer == YES for each in answers.values())
    yield Paragraph(
        f"Scientific credibility by the guideline of Marie et al. 2021: yes to {yes} of "
        f"{len(answers)} questions. The answers come from the records of the runs."
    )
    yield Listing(
        [
            [f"{question} ", Strong(each.answer), f": {each.evidence}."]
            for question, each in answers.items()
        ]
    )


def better_metric(runs: Sequence[FinishedRun]) -> Answer:
    """Answer whether every test set has a metric that agrees with human judgement better."""
    found: List[List[str]] = []
    for test_set in runs[0].scores:
        outputs = [run.output(test_set) for run in runs]
        means = outputs[0].segment_means
        found.append(
            [
                name
                for key, name in common_metrics(outputs).items()
                if key in BETTER_THAN_BLEU or key in means
            ]
        )
    common = [name for name in found[0] if all(name in each for each in found)]
    if not common:
        return Answer(NO, "only BLEU and TER are recorded for every system and test set")
    return Answer(YES, f"{', '.join(common)}; no human evaluation is recorded")


def tested(runs: Sequence[FinishedRun], names: Sequence[str]) -> Answer:
    """Answer whether every system was tested against the first on every test set."""
    baseline = runs[0].row
    others = [(run, name) for run, name in zip(runs, names) if run.row != baseline]
    if not others:
        return Answer(NONE, "one system: nothing is compared")
    tests, untested = set(), []
    for run, name in others:
        for test_set, scores in run.scores.items():
            if scores.test is None or scores.test.baseline != baseline:
                untested.append(f"{name} on {test_set}")
            else:
                tests.add(str(scores.test))
    if untested:
        return Answer(NO, f"not tested against {baseline}: {', '.join(untested)}")
    return Answer(YES, "; ".join(sorted(tests)))


def computed(runs: Sequence[FinishedRun]) -> Answer:
    """Answer whether the scores of every metric were computed here, in the same way."""
    missing, evidence = [], {}
    for test_set in runs[0].scores:
        outputs = [run.output(test_set) for run in runs]
        for key, name in common_metrics(outputs).items():
            found = sorted(signatures_of(runs, test_set, key))
            if len(found) > 1:
                missing.append(f"the signatures of {name} on {test_set} differ")
            elif GIVEN in found[0]:
                missing.append(f"{name} on {test_set} was computed elsewhere")
            else:
                evidence[found[0]] = name
        references = [run.scores[test_set].reference for run in runs]
        if len({reference.source for reference in references}) > 1:
            missing.append(f"the references of {test_set} are different files")
        if not all(reference.raw for reference in references):
            missing.append(f"a reference of {test_set} is detokenised, not the raw text")
    if missing:
        return Answer(NO, "; ".join(missing))
    signature, metric = next(iter(evidence.items()))
    return Answer(
        YES, f"by capsnmt-evaluate: {metric} {signature}; the other signatures are under Scores"
    )


def same_data(runs: Sequence[FinishedRun], names: Sequence[str]) -> Answer:
    """Answer whether all systems were trained on and scored with the same files."""
    if len({run.row for run in runs}) == 1:
        return Answer(NONE, "one system: nothing is compared")
    unknown = [name for run, name in zip(runs, names) if not run.training.vocabulary]
    if unknown:
        return Answer(NO, f"no checksums of the dictionaries are recorded: {', '.join(unknown)}")
    first, *others = runs
    for run, name in zip(others, names[1:]):
        if run.training.vocabulary != first.training.vocabulary:
            return Answer(NO, f"{name} and {names[0]} have different dictionaries")
        if run.data.resolve() != first.data.resolve():
            return Answer(NO, f"{name} and {names[0]} have data of different folders")
    dictionaries = ", ".join(sorted(first.training.vocabulary))
    return Answer(YES, f"one folder of prepared data; equal checksums of {dictionaries}")
