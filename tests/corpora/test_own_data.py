"""``capsnmt-prepare --train``: text of the user's own, as a new user types it."""

import gzip
import json
import random
import re
import shutil
from itertools import islice
from pathlib import Path

import pytest

from capsnmt.corpora.prepared import PreparedData
from tests.corpora.conftest import text, tree
from tests.corpora.miniatures import lines, tags, write_own
from tests.evaluation.outputs import sgm, swapped, wmt_xml, write_lines
from tests.real_data import real_data


def test_two_files_become_three_splits(tmp_path, run, no_fairseq):
    """1,000 pairs of TED talks in Slovak and English; docs/tutorials/own_data.md trains on two."""
    for name, side in (("ted.orig.slk.gz", "sk"), ("ted.ref.detok.eng.gz", "en")):
        with gzip.open(real_data("significance") / name, "rb") as stream:
            (tmp_path / f"ted.{side}").write_bytes(b"".join(islice(stream, 1000)))
    words = ("--train", tmp_path / "ted.sk", tmp_path / "ted.en", "--lowercase")
    printed = run(*words, "--output", tmp_path / "out")
    said = printed.splitlines()
    assert said[0] == "pairs: train 900, valid 50, test 50 (valid and test drawn from --train)"
    assert said[1].startswith("subwords: 1,000 merge operations of BPE")
    assert said[-1] == f"data-bin: {tmp_path / 'out/bin'}"
    data = PreparedData(tmp_path / "out")
    manifest = data.read_manifest()
    assert manifest.languages == ("sk", "en")
    assert manifest.test_sets == {"test": "test"}
    drawn = {split: set(zip(*(text(data.raw(split, side)) for side in manifest.languages)))
             for split in ("train", "valid", "test")}  # fmt: skip
    given = [text(tmp_path / f"ted.{side}") for side in manifest.languages]
    assert drawn["train"] | drawn["valid"] | drawn["test"] == {
        (source.lower(), target.lower()) for source, target in zip(*given)
    }
    assert not drawn["train"] & (drawn["valid"] | drawn["test"])
    assert len(text(data.raw("test", "en"))) == 50
    assert manifest.pairs == len(text(data.folder / "clean/train.en"))
    assert manifest.tokenisers["sk"] == "moses-lowercase"
    # again: the same pairs are drawn, and nothing is left to do
    again = run(*words, "--output", tmp_path / "out")
    assert again.splitlines() == [*said[:2], said[-1]]


@pytest.fixture
def files(tmp_path, monkeypatch, no_fairseq):
    """Files of some languages in the working folder."""
    monkeypatch.chdir(tmp_path)
    write_own(tmp_path)
    return tmp_path


SMALL = ["--vocabulary", "30", "--output", "out"]


@pytest.mark.parametrize(
    ("words", "pair", "train", "sets"),
    [
        ("--train a.de a.en", "de-en", 54, {"test": "test"}),
        ("--train a.en a.de --pair de-en", "de-en", 54, {"test": "test"}),
        ("--train a.en b.en a.de b.de.gz", "en-de", 82, {"test": "test"}),
        ("--train a.tsv --pair en-de", "en-de", 54, {"test": "test"}),
        ("--train a.zh a.en --test v.zh v.en", "zh-en", 57, {"test": "test"}),
        ("--train a.tsv --pair chi-en", "chi-en", 54, {"test": "test"}),
        ("--train a.de.txt a.en.txt.gz --pair en-de", "en-de", 54, {"test": "test"}),
        ("--train a.en a.de_AT --pair en-deu --test v.de v.en", "en-deu", 57, {"test": "test"}),
        (
            "--train a.en a.de --valid v.en v.de --test x=v.en v.de --test y=b.en b.de",
            "en-de",
            60,
            {"x": "test", "y": "test1"},
        ),
    ],
)
def test_files_name_their_languages_by_suffix_or_pair(files, run, words, pair, train, sets):
    shutil.copy("a.de", "a.de_AT")
    run(*words.split(), *SMALL)
    data = PreparedData(Path("out"))
    manifest = data.read_manifest()
    assert manifest.pair == pair
    assert manifest.test_sets == sets
    by_characters = {side for side, how in manifest.tokenisers.items() if how == "characters"}
    assert by_characters == {*pair.split("-")} & {"zh", "chi"}
    assert len(text(data.raw("train", "en"))) == train
    if "a.tsv" not in words:  # whose columns are the languages of --pair
        assert all(line.startswith("The ") for line in text(data.raw("train", "en")))
    command = json.loads(data.manifest.read_text("utf-8"))["command"]
    assert command == f"python -m capsnmt.corpora {words} {' '.join(SMALL)} --workers 1"
    kept = Path("out/bpe/codes").read_text("utf-8").count("\n")
    assert kept <= 31


def test_files_that_end_in_other_languages_are_named_and_one_without_rules_of_its_own(files, run):
    shutil.copy("a.en", "a.pl")
    Path("a.cs").write_bytes(lines(range(60), "vi"))
    printed = run("--train", "a.pl", "a.cs", "--pair", "en-vi", *SMALL)
    assert "warning: --train a.pl a.cs: a.pl is taken for en, a.cs is taken for vi; give" in printed
    assert [line[:3] for line in printed.splitlines() if "Moses has no rules" in line] == ["vi:"]
    alone = run("--train", "a.en", "a.de", "--test", "a.pl", *SMALL[:-1], "out2", ends=2)
    assert "error: --test a.pl: 1 of 1 files" in alone.splitlines()[-1]


@pytest.mark.parametrize("flags", [[], ["--lowercase"]])
@pytest.mark.parametrize(
    "other",
    [
        str.upper,
        lambda line: f" {line} ",
        lambda line: line.replace(" ", "\u00a0 "),
        lambda line: line.translate({ord('"'): "“", ord("-"): "–", ord("."): " ."}),
    ],
    ids=["case", "spaces", "other spaces", "typography"],
)
def test_no_pair_is_drawn_twice_or_left_for_training_in_another_form(
    files, run, refuse, flags, other
):
    for side in ("en", "de"):
        once = [f'"{line}" - so.' for line in Path(f"a.{side}").read_text("utf-8").splitlines()]
        forms = 2 * (once + [other(line) for line in once])
        Path(f"r.{side}").write_text("".join(f"{line}\n" for line in forms), "utf-8")
    said = run("--train", "r.en", "r.de", *flags, *SMALL)
    data = PreparedData(Path("out"))
    train, *others = (
        [" ".join(re.findall(r"\w+", line.lower())) for line in text(data.raw(split, "en"))]
        for split in ("train", "valid", "test")
    )
    drawn = others[0] + others[1]
    assert len(drawn) == len(set(drawn)) == 2 * (240 // 20)
    assert not {*train} & {*drawn}
    assert len({*train}) == 60 - len(drawn)
    # each of them has four forms
    assert f"WARNING: {3 * len(drawn)} more training pairs are left out" in said
    for side in ("en", "de"):
        Path(f"r.{side}").write_bytes(lines(range(2), side) * 30)
    words = ("--train", "r.en", "r.de", *flags, "--output", "too_few")
    refuse(words, "2 different pairs", "draw 6", "give")


def test_given_pairs_that_are_trained_on_are_counted(files, run, refuse):
    """Pairs are compared as the model reads them; the sets stay as they were given."""
    for side in ("en", "de"):
        known = Path(f"a.{side}").read_text("utf-8").splitlines()[:5]
        other = Path(f"v.{side}").read_text("utf-8").splitlines()
        tested = [f" {line} " for line in known] + other
        Path(f"t.{side}").write_text("".join(f"{line}\n" for line in tested), "utf-8")
    write_lines(Path("r.de"), ["Anders." for _ in tested])
    given = "--train a.en a.de --valid v.en v.de --test x=t.en t.de --test y=t.en r.de t.de"
    printed = run(*given.split(), *SMALL)
    warned = [line.partition(": ")[2] for line in printed.splitlines() if " too" in line]
    assert warned == [
        f"{count} of {len(tested)} pairs of {name} are in {first} too"
        for first, count, names in (
            ("train", 5, "xy"),
            ("valid", len(other), "xy"),
            ("x", len(tested), "y"),
        )
        for name in names
    ]
    data = PreparedData(Path("out"))
    assert data.read_manifest().known == {"x": 5, "y": 5}
    assert len(text(data.raw("x", "en"))) == len(tested)
    order = "--train a.en a.de --valid v.en v.de --test y=t.en r.de t.de --test x=t.en t.de"
    refuse([*order.split(), *SMALL], "(the order of test sets differs)", "give another folder")


def test_training_pairs_that_cleaning_drops_are_counted(files, run):
    for side, more in (("en", ""), ("de", " und" * 300)):
        text = [*lines(range(60), side).decode().splitlines(), f"Word{more}"]
        write_lines(Path(f"d.{side}"), [*text, *["" for _ in range(7)], text[0]])
    given = "--train d.en d.de --valid v.en v.de --test v.en v.de"
    printed = run(*given.split(), *SMALL).splitlines()
    assert printed[0] == "pairs: train 69, valid 6, test 6"
    assert "  61 of 69 training pairs are kept; dropped: 7 empty, 1 length" in printed
    assert PreparedData(Path("out")).read_manifest().pairs == 61


@pytest.mark.parametrize("unlike", [str.swapcase, lambda line: line[::-1]], ids=["case", "words"])
def test_a_set_of_words_that_the_training_text_has_not_is_named(files, run, unlike):
    """As of another language or script, or where training is lower-cased and the test is not."""
    write_lines(Path("w.en"), map(unlike, Path("v.en").read_text("utf-8").splitlines()))
    Path("w.de").write_bytes(Path("v.de").read_bytes())
    given = "--train a.en a.de --valid v.en v.de --test x=v.en v.de --test w.en w.de"
    printed = run(*given.split(), *SMALL)
    warned = [line for line in printed.splitlines() if "no training sentence" in line]
    assert len(warned) == 1
    assert re.fullmatch(r"  WARNING: \d+ of \d+ words of test\.en are in no .*", warned[0])


def test_training_pairs_of_one_text_on_both_sides_are_counted(files, run):
    """As of a file of the wrong language, whose drawn test set a model copies: BLEU 100."""
    for copied, warned in ((10, False), (60, True)):
        lines = Path("a.de").read_text("utf-8").splitlines()
        lines[:copied] = Path("a.en").read_text("utf-8").splitlines()[:copied]
        write_lines(Path("c.de"), lines)
        Path("c.en").write_bytes(Path("a.en").read_bytes())
        words = ("--train", "c.en", "c.de", *SMALL[:-1], f"out-{copied}")
        assert ("54 of 54 training pairs have one text on both sides" in run(*words)) is warned


def test_the_name_of_a_table_says_the_order_of_its_columns(files, run):
    """Of europarl.de-en.tsv German is first, also where the pair is en-de."""
    sides = {side: Path(f"a.{side}").read_text("utf-8").splitlines() for side in ("en", "de")}
    write_lines(Path("p.de-en.tsv"), map("\t".join, zip(sides["de"], sides["en"])))
    write_lines(Path("p.deu-eng.tsv"), map("\t".join, zip(sides["de"], sides["en"])))
    for name, pair in (("p.de-en.tsv", "en-de"), ("p.deu-eng.tsv", "en-de"), ("a.tsv", "en-de")):
        out = f"out-{name}"
        said = run("--train", name, "--pair", pair, *SMALL[:-1], out)
        assert ("its columns are de and en, by its name" in said) is (name != "a.tsv")
        data = PreparedData(Path(out))
        assert {*text(data.raw("train", "en"))} < {*sides["en"]}
        assert {*text(data.raw("train", "de"))} < {*sides["de"]}


def test_training_text_of_iwslt_is_read_without_what_it_says_of_talks(files, run, refuse):
    """Addresses and titles were trained on, and drawn for the test set."""
    for side in ("en", "de"):
        Path(f"train.tags.de-en.{side}").write_bytes(tags(range(60), side))
        shutil.copy(f"train.tags.de-en.{side}", f"t.{side}")
    run("--train", "train.tags.de-en.de", "train.tags.de-en.en", *SMALL)
    data = PreparedData(Path("out"))
    read = [line for split in ("train", "valid", "test") for line in text(data.raw(split, "en"))]
    assert sorted(read) == sorted(lines(range(60), "en").decode().splitlines())
    words = ["--train", "t.de", "t.en", "--output", "wrong"]
    refuse(words, "begins with '<", "so it is markup and no text", "train.tags.LANGUAGE")


def test_text_whose_sides_are_not_of_one_order_is_named(files, run):
    """As after a line that one side alone lost and another that it has twice."""
    number = random.Random(1).randrange
    source = [" ".join(["en"] * (1 + number(8))) for _ in range(2300)]
    target = [f"und {line.replace('en', 'de')}" for line in source]
    shifted = [*target[:2000], *target[2001:], "de"]
    for side, given in (("en", source), ("de", shifted)):
        write_lines(Path(f"s.{side}"), given)
        write_lines(Path(f"t.{side}"), given[1900:])
    sets = "--valid v.en v.de --test t.en t.de"
    printed = run("--train", "s.en", "s.de", *sets.split(), *SMALL)
    warned = [line for line in printed.splitlines() if "unrelated lengths" in line]
    assert [line.partition(", have")[0] for line in warned] == [
        "  WARNING: 300 of 2,300 pairs of train, from 2,001 on",
        "  WARNING: 400 of 400 pairs of test, from 1 on",
    ]


def test_a_test_set_has_all_its_references_however_they_are_given(files, run, refuse):
    """Several files, or markup that has several; each is prepared, recorded and lower-cased."""
    sentences = {side: Path(f"v.{side}").read_text("utf-8").splitlines() for side in ("en", "de")}
    sources, first = sentences["en"], sentences["de"]
    second = [f"Anders: {line}" for line in first]
    write_lines(Path("r1.de"), second)
    Path("v.xml").write_text(wmt_xml(first, second, source=sources), "utf-8")
    Path("one.xml").write_text(wmt_xml(first, source=sources), "utf-8")
    Path("v.en.sgm").write_text(sgm(sources, key="refid"), "utf-8")
    Path("v.de.sgm").write_text(sgm(first, second, key="refid"), "utf-8")
    for number, each in enumerate((first, second)):
        Path(f"m{number}.de.sgm").write_text(sgm(each, key="refid"), "utf-8")
    Path("s.xml").write_text(sgm(sources, key="sysid"), "utf-8")
    Path("r.xml").write_text(sgm(first, second, key="sysid"), "utf-8")
    Path("src.txt").write_bytes(Path("v.en").read_bytes())
    Path("ref0.txt").write_bytes(Path("v.de").read_bytes())
    Path("ref1.txt").write_bytes(Path("r1.de").read_bytes())
    words = "--train a.en a.de --lowercase --valid one.xml"
    given = (
        "v.en v.de r1.de",
        "v.xml",
        "v.en.sgm v.de.sgm",
        "s.xml r.xml",
        "src.txt ref0.txt ref1.txt",
        "v.en.sgm m0.de.sgm m1.de.sgm",
    )
    for name, test in zip("uvwxyz", given):
        words += f" --test {name}={test}"
    run(*words.split(), *SMALL)
    data = PreparedData(Path("out"))
    for name in "uvwxyz":
        paths = data.references(name, "de")
        assert [text(path) for path in paths] == [
            [line.lower() for line in lines] for lines in (first, second)
        ]
        assert text(data.raw(name, "en")) == [line.lower() for line in sources]
        assert [len(text(path)) for path in data.references(name, "de", "tokenised")] == [6, 6]
    assert data.references("valid", "de") == [data.raw("valid", "de")]
    assert text(data.raw("valid", "de")) == text(data.raw("x", "de"))
    recorded = {Path(path).name for path in data.read_manifest().sources}
    assert {"r1.de", "v.xml", "ref1.txt", "v.de.sgm"} < recorded
    # pairs are made in the order of segments, of every reference, in any markup
    ten, others, source = ([*text, *text[:4]] for text in (first, second, sources))
    later = swapped(sgm(others, key="refid")).replace('refid="0"', 'refid="1"')
    texts = [re.sub(r"(?s)<(src|hyp).*?</\1>", "", wmt_xml(text)) for text in (source, ten)]
    for kind, of_source, of_target, named in (
        ("sgm", sgm(source, key="refid"), swapped(sgm(ten, key="refid")), ""),
        ("sgm", sgm(source, key="refid"), sgm(ten, key="refid") + later, " (1 r)"),
        ("xml", texts[0], swapped(texts[1]), ""),
    ):
        Path(f"w.en.{kind}").write_text(of_source, "utf-8")
        Path(f"w.de.{kind}").write_text(of_target, "utf-8")
        wrong = ["--train", "a.en", "a.de", "--test", f"w.en.{kind}", f"w.de.{kind}"]
        problem = f"w.de.{kind}{named} has the segments of"
        refuse([*wrong, "--output", "wrong"], problem, "in another order; give")
    refuse(["--train", "a.en", "a.de", "--output", ""], "--output", "'' is no path; give")
    Path("loop").symlink_to("loop")
    refuse(["--train", "loop/a.en", "loop/a.de", "--output", "wrong"], "a.en: cannot be read: Too")
    # another text of a reference is another test set
    write_lines(Path("r1.de"), first)
    refuse([*words.split(), *SMALL], "the content of ", "r1.de")


MARKS = [
    *("@@", "\u2581", "##", "</w>", "<unk>", "\t", "\ufffd", "\x93", '""', "[de_DE]"),
    *("Ã¼", "â€™", "Ð¿Ñ€Ð¸", "å¥½çš„", "áº¿"),  # ü, ’, при, 好的, ế
]


@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_subwords_are_no_text(files, run, mark):
    """A few are counted: they may be text. Many are refused."""
    lines = Path("a.en").read_text("utf-8").splitlines()
    marked = {"@@": "ab@@ c", "##": "ab ##c", "</w>": "ab c</w>", '""': 'a ""b"""'}
    begin, end = '"' if mark == '""' else "", marked.get(mark, f"ab {mark} c")
    for count, status in ((2, 0), (20, 2)):
        text = [f"{begin}{line} {end}" for line in lines[:count]] + lines[count:]
        Path("m.en").write_text("".join(f"{line}\n" for line in text), "utf-8")
        Path("m.de").write_bytes(Path("a.de").read_bytes())
        printed = run("--train", "m.en", "m.de", *SMALL[:-1], f"out-{count}", ends=status)
        assert re.search(r"train\.en: \d+ of \d+ lines have .*, as line \d+: .*; give", printed)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        *((end, "have escapes as &apos;") for end in (" it &apos;s", "&nbsp;it")),
        *((end, "have a space before the end, as tok") for end in (" .", " ।")),
    ],
)
def test_tokens_are_counted(files, run, end, said):
    """Moses would take &apos;s apart; they may be text, as in message catalogues."""
    for side in ("en", "de"):
        given = Path(f"a.{side}").read_text("utf-8").splitlines()
        write_lines(Path(f"e.{side}"), [f"{line}{end}" for line in given])
    printed = run("--train", "e.en", "e.de", *SMALL)
    warned = [line for line in printed.splitlines() if said in line]
    assert len(warned) == 6
    assert warned[0].startswith("warning: own: train.en: 54 of 54 lines")


def test_the_same_files_by_another_path_are_the_same_text_also_of_a_data_bin_on_another_disk(
    files, run, monkeypatch
):
    run("--train", "a.en", "a.de", *SMALL)
    Path("out/bin").rename("disk")
    Path("out/bin").symlink_to(files / "disk")
    assert run("--train", "a.en", "a.de", *SMALL).endswith("data-bin: out/bin\n")
    Path("link").symlink_to(".")
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    for folder in ("..", "../link"):
        words = [f"{folder}/a.en", f"{folder}/a.de", *SMALL[:-1], "../out"]
        run("--train", *words)
    monkeypatch.chdir("..")
    Path("out/manifest.json").unlink()
    run("--train", "a.en", "a.de", "--vocabulary", "20", "--output", "out")
    assert tree(Path("out/bin")) != tree(Path("disk"))  # it is made again


def test_a_path_with_an_equals_sign_or_braces_is_as_it_is(files, run):
    Path("lang={language}").symlink_to(".")
    sides = [f"lang={{language}}/v.{side}" for side in ("en", "de")]
    run("--train", "a.en", "a.de", "--test", *sides, *SMALL)
    assert PreparedData(Path("out")).read_manifest().test_sets == {"test": "test"}


def test_a_project_that_was_moved_has_the_same_text(files, run, refuse, monkeypatch):
    words = ("--train", "a.en", "a.de", *SMALL)
    sets = {split: [f"{split}/c.en", f"{split}/c.de"] for split in ("valid", "test")}
    for number, (split, names) in enumerate(sets.items(), 1):
        Path(split).mkdir()
        for name in names:
            Path(name).write_bytes(lines(range(number), name[-2:]))
        words += (f"--{split}", *names)
    printed = run(*words)
    project = files / "project"
    project.mkdir()
    for path in [each for each in files.iterdir() if each != project]:
        path.rename(project / path.name)
    monkeypatch.chdir(project)
    assert run(*words).splitlines() == [*printed.splitlines()[:2], "data-bin: out/bin"]
    for name in ("test/c.de", "a.en"):
        content = Path(name).read_bytes()
        Path(name).write_bytes(content[::-1].lstrip() + b"\n")
        refuse(words, "--output out holds own en-de", "the content of", "give another folder")
        Path(name).write_bytes(content)


@pytest.mark.parametrize("name", ["bin/script", "clean/train.de", "raw/test.en"])
def test_a_folder_of_the_user_keeps_what_it_has_where_a_step_would_write(
    files, run, refuse, monkeypatch, name
):
    """A project's ``bin/`` was deleted, from ``--output .``."""
    path = Path("project") / name
    path.parent.mkdir(parents=True)
    path.write_text("mine\n", "utf-8")
    monkeypatch.chdir("project")
    words = ("--train", files / "a.en", files / "a.de", "--output", ".")
    refuse(words, "--output .", path.parts[1], "give")
    assert tree(Path()) == {name: b"mine\n"}
    shutil.rmtree(path.parts[1])
    Path("script").write_text("mine\n", "utf-8")  # what no step would write stays beside
    run(*words, "--vocabulary", "30")
    assert Path("script").read_text("utf-8") == "mine\n"
