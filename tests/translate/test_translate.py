"""``capsnmt-translate`` as a user runs it: raw text in, raw text out, line by line."""

import hashlib
import json
import os
import re
from argparse import Namespace
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint, save_checkpoint
from capsnmt.evaluation.text import moses_detokenizer, remove_bpe
from capsnmt.translate.__main__ import main
from tests.commands import ON_CPU, command, succeed
from tests.interpreter import environment, start
from tests.translate.conftest import ROWS, data_of

pytestmark = pytest.mark.system
TRANSLATE = "capsnmt.translate"


def expected(run: Path) -> List[Tuple[float, str]]:
    """Scores and detokenised translations of fairseq-generate, in the order of the test set."""
    row = ROWS[run.parent.name]
    kind = row.segmentation.get("method", "subword_nmt")
    detokenise = moses_detokenizer(row.languages.split()[1])
    found = {}
    for line in (run / "generate-test.txt").read_text("utf-8").splitlines():
        if line.startswith("H-"):
            number, score, subwords = line.split("\t")
            found[int(number[2:])] = float(score), detokenise(remove_bpe(subwords, kind))
    return [found[number] for number in sorted(found)]


def source(run: Path) -> str:
    return data_of(run).raw("test", ROWS[run.parent.name].languages.split()[0]).read_text("utf-8")


def check(run: Path, *arguments: object) -> List[str]:
    """Check that a command translates the test set as fairseq-generate did; return the lines."""
    text = succeed(TRANSLATE, *arguments, "--scores", stdin=source(run))
    scores, translated = zip(*(line.split("\t") for line in text.splitlines()))
    assert [*translated] == [each[1] for each in expected(run)]
    known = [each[0] for each in expected(run)]
    assert [*map(float, scores)] == pytest.approx(known, abs=2e-3)
    return [*translated]


@pytest.mark.parametrize("row", ROWS)
def test_translations_are_those_of_fairseq_generate(row: str, runs: Dict[str, Path]) -> None:
    run = runs[row]
    translated = check(run, run, "--buffer-size", "5")
    assert len({*translated}) > 1  # the model has learnt something


def test_a_line_out_for_a_line_in_blank_long_and_unknown_ones_too(runs: Dict[str, Path]) -> None:
    first, second = source(runs["plain"]).splitlines()[:2]
    stdin = f"\ufeff{first}\r\nДом видит дерево.\n\n \t\u2028\n{'x ' * 40}. {second}\n"
    stdin += f"{'y' * 90}\n{second} 😀\n{first}"
    flags = ("--max-tokens", "30", "--buffer-size", "2")
    done = command(TRANSLATE, runs["plain"], *flags, stdin=stdin)
    assert done.returncode == 0, done.stderr
    best = [each[1] for each in expected(runs["plain"])]
    lines = done.stdout.split("\n")
    assert len(lines) == 9
    assert [lines[number] for number in (0, 2, 3, 7, 8)] == [best[0], "", "", best[0], ""]
    assert lines[4]
    *reports, unknown = done.stderr.splitlines()
    numbered = ["standard input, line 5", "standard input, line 6"]
    assert [report.partition(": ")[0] for report in reports] == numbered
    assert re.search(r"has more than 29 subwords: translated in \d+ parts$", reports[0])
    assert unknown == (
        "warning: standard input: 4 of 8 lines have characters that the model does not know, as "
        "line 2: 'Дом видит дерево.'"
    )


@pytest.mark.one_host  # the search is compared with fairseq-generate on both
def test_nbest_lists_of_a_model_with_itself_are_those_of_the_model(runs: Dict[str, Path]) -> None:
    run = runs["plain"]
    flags = ("--nbest", "2", "--scores")
    printed = succeed(TRANSLATE, run, run, *flags, stdin=source(run) + "\n")
    rows = [line.split("\t") for line in printed.splitlines()]
    assert [row[0] for row in rows] == [str(n) for n in range(1, 13) for _ in "ab"] + ["13"]
    assert [row[2] for row in rows[:-1:2]] == [each[1] for each in expected(run)]
    assert all(float(a[1]) >= float(b[1]) for a, b in zip(rows[:-1:2], rows[1::2]))


def test_translations_appear_before_the_input_ends(runs: Dict[str, Path], tmp_path: Path) -> None:
    streams = [tmp_path / name for name in ("stdin", "stdout", "stderr")]
    for pipe in streams[:2]:
        os.mkfifo(pipe)
    streams[2].touch()
    arguments = [str(runs["plain"]), "--buffer-size", "1"]
    process = start(TRANSLATE, arguments, environment(), streams)
    with open(streams[0], "w", encoding="utf-8") as stdin:
        with open(streams[1], encoding="utf-8") as stdout:
            stdin.write(source(runs["plain"]).splitlines()[0] + "\n")
            stdin.flush()
            line = stdout.readline()
            assert line == expected(runs["plain"])[0][1] + "\n", streams[2].read_text("utf-8")
        stdin.write("The house sees the tree.\n")
    process.join(60)
    assert process.exitcode == 141
    assert streams[2].read_text("utf-8") == ""


def test_checkpoints_of_fairseq(runs: Dict[str, Path], exported: Path, tmp_path: Path) -> None:
    """They are loaded as models of the plugin; the flags of the search and precision reach them.

    The data may have been prepared for the other direction, which their training also reads.
    """
    data = data_of(runs["plain"])
    manifest = {**json.loads(data.manifest.read_text("utf-8")), "pair": "de-en"}
    reverse = copied(data.folder, tmp_path / "reverse", manifest=json.dumps(manifest))
    search = ("--beam", "3", "--lenpen", "0.6", "--precision", "fp32")
    check(runs["plain"], exported, "--data", reverse, *search)


MINE = """
import capsnmt.plugin
from fairseq.models import MODEL_REGISTRY, register_model, register_model_architecture


@register_model("mine")
class Mine(MODEL_REGISTRY["capsnmt_transformer"]):
    pass


@register_model_architecture("mine", "mine_tiny")
def tiny(args):
    args.head_aggregation = "em"
    args.encoder_embed_dim = args.decoder_embed_dim = args.encoder_ffn_embed_dim = 8
    args.encoder_attention_heads = args.decoder_attention_heads = 2
    args.encoder_layers = args.decoder_layers = 1
"""


def test_a_model_of_a_plugin_that_builds_on_this_one(
    runs: Dict[str, Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    """The user says which plugin; one that a checkpoint names is not imported."""
    plugin, saved = tmp_path / "mine", tmp_path / "checkpoints"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(MINE, "utf-8")
    data = data_of(runs["plain"])
    flags = ["--user-dir", plugin, "--arch", "mine_tiny", "--max-update", 1, "--batch-size", 16]
    flags += ["--optimizer", "adam", "--save-dir", saved, "--disable-validation"]
    succeed("fairseq_cli.train", data.binarised, *flags, *ON_CPU)
    arguments = [saved / "checkpoint_last.pt", "--data", data.folder]
    message = refused(main, *arguments)
    assert "has the architecture mine" in message
    assert "by --user-dir" in message
    assert "is no plugin" in refused(main, *arguments, "--user-dir", tmp_path)
    flags = ["--user-dir", plugin, "--beam", "2", "--precision", "fp32"]
    translated = succeed(TRANSLATE, *arguments, *flags, stdin=source(runs["plain"]))
    assert translated.count("\n") == source(runs["plain"]).count("\n")


def copied(source: Path, folder: Path, **texts: str) -> Path:
    """A folder of links, with other texts for some JSON files, and without the empty ones."""
    folder.mkdir()
    for path in source.iterdir():
        if path.stem not in texts:
            os.symlink(path, folder / path.name)
    for name, text in texts.items():
        if text:
            (folder / f"{name}.json").write_text(text, "utf-8")
    return folder


def test_a_mistake_is_one_line(
    runs: Dict[str, Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    run, data = runs["plain"], data_of(runs["plain"]).folder
    config = (run / "config.json").read_text("utf-8")
    probing = json.loads(config)
    probing["settings"]["train"] = {"task": "probing"}
    classifier = copied(run, tmp_path / "classifier", config=json.dumps(probing), results="{}")
    unfinished = copied(run, tmp_path / "unfinished", scores="")
    bare = copied(data, tmp_path / "bare", manifest="{}")
    manifest = json.loads((data / "manifest.json").read_text("utf-8"))
    codes = (data / "bpe" / "codes").read_text("utf-8") + "z z</w>\n"
    checksum = hashlib.sha256(codes.encode()).hexdigest()
    other = {**manifest["files"]["bpe/codes"], "sha256": checksum}
    files = {"files": {**manifest["files"], "bpe/codes": other}}
    again = copied(data, tmp_path / "again", manifest=json.dumps({**manifest, **files}))
    (again / "bpe").unlink()
    (again / "bpe").mkdir()
    (again / "bpe" / "codes").write_text(codes, "utf-8")
    segmented = copied(run, tmp_path / "c", config=config.replace(f'"{data}"', f'"{again}"'))
    last = run / "checkpoints" / "checkpoint_last.pt"
    state = load_checkpoint(last)
    diverged = {**state["model"], "decoder.layers.0.fc1.bias": torch.full((1,), torch.nan)}
    save_checkpoint({**state, "model": diverged}, tmp_path / "diverged.pt")
    alone = {name: state[name] for name in ("args", "cfg", "model")}
    save_checkpoint(alone, tmp_path / "alone.pt")
    state["cfg"]["task"]["_name"] = "probing"
    save_checkpoint(state, tmp_path / "probe.pt")
    state["cfg"]["task"] = Namespace(_name="translation_multi_simple_epoch")  # no dataclass
    save_checkpoint(state, tmp_path / "many.pt")
    state["cfg"] = {**state["cfg"], "model": None, "task": {"_name": "translation"}}
    save_checkpoint(state, tmp_path / "none.pt")
    for arguments, words in (
        ([unfinished], "has no finished run, scores.json is"),
        ([classifier], "classifies sentences; give a run that translates"),
        ([tmp_path / "probe.pt", "--data", data], "has the task probing; give a translation"),
        ([tmp_path / "alone.pt", "--data", data], "alone.pt lacks 'best_loss', which fairseq"),
        ([tmp_path / "many.pt", "--data", data], "task translation_multi_simple_epoch; give a tr"),
        ([tmp_path / "none.pt", "--data", data], "has the architecture None; give a translat"),
        ([tmp_path / "diverged.pt", "--data", data], "fc1.bias has NaN or infinite weights, as"),
        ([last], "is not the folder of a run; give its data"),
        ([last, "--data", data_of(runs["routed"]).folder], "holds en-zh, not en-de; give the data"),
        ([run, "--data", tmp_path / "no"], "has no prepared data (manifest.json); make it by"),
        ([last, "--data", data / "bin"], f"bin has no prepared data (manifest.json); give {data}"),
        ([run, "--data", bare], "holds no languages, not en-de; give the data of the training"),
        ([run, runs["routed"]], "has another language pair than"),
        ([run, segmented], "has another bpe/codes than"),
        ([run, "--nbest", "4"], "--nbest is 4, but the beam has 3 hypotheses; give --beam 4"),
        ([run, "--max-tokens", "1"], "'1' is not a whole number of at least 2"),
    ):
        assert words in refused(main, *arguments)
