"""Forms of text: joined, in subwords, of other characters; each is read right, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from tests.commands import command
from tests.evaluation.conftest import scores
from tests.evaluation.outputs import REFERENCE, generated, write_lines

pytestmark = pytest.mark.system


def evaluated(folder: Path, *arguments: object) -> Tuple[Any, str]:
    """Run the command; return its JSON and what it wrote to standard error."""
    target = folder / "evaluation.json"
    done = command("capsnmt.evaluation", *arguments, "--json", target)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(target.read_text("utf-8")), done.stderr


def test_text_that_is_joined_already_keeps_its_spaces(
    files: Dict[str, str], tmp_path: Path
) -> None:
    joined = write_lines(tmp_path / "joined", generated(REFERENCE))
    flags = ["--reference", files["reference"], "--remove-bpe", "sentencepiece"]
    document, errors = evaluated(tmp_path, f"x={joined}", *flags)
    assert scores(document)["x"] == pytest.approx(100)
    assert errors.count("\n") == 1
    assert "x has no marks of sentencepiece (▁), so it is taken as joined" in errors
    assert "--remove-bpe none --detokenize none" in errors
    told, errors = evaluated(
        tmp_path, f"x={joined}", *flags[:2], "--remove-bpe", "none", "--detokenize", "none"
    )
    assert told["systems"] == document["systems"]
    assert errors == ""
    pieces = ["▁" + line.replace(" ", " ▁") for line in REFERENCE]
    pieces[0] = pieces[0].replace("go", "g o")
    split = write_lines(tmp_path / "split", generated(pieces))
    document, errors = evaluated(tmp_path, f"x={split}", *flags)
    assert scores(document)["x"] == pytest.approx(100)
    assert errors == ""
