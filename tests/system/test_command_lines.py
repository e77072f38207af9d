"""The commands from training to a score, for every preset and for all mechanisms at once."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Callable, List

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint
from capsnmt.modules.autocast import bf16_obstacle, cpu_flags
from tests.commands import (
    ON_CPU,
    SYSTEMS,
    command,
    every_system,
    hypotheses,
    made_once,
    scores,
    succeed,
    train,
)
from tests.compiler import needs_compiler
from tests.support import PLUGIN

pytestmark = pytest.mark.system


def losses(log: str) -> list:
    """Return the validation losses in a training log."""
    return re.findall(r"valid on 'valid' subset \| loss ([\d.]+)|\| valid \|.*?loss ([\d.]+)", log)


LAST = "checkpoint_last.pt"
UPDATES = 6
# all mechanisms at once are trained, resumed, averaged and decoded in bf16 where the CPU has it
IN = {"fp32": ["--model-overrides", "{'autocast': 'none'}"], "trained": []}
BF16 = [] if bf16_obstacle("cpu") else ["--autocast", "bf16"]
FLAGS = {
    name: (arch, [*flags, *(BF16 if name == "everything" else [])])
    for name, (arch, flags) in SYSTEMS.items()
}


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Train a system once for all tests; the folder has ``train.log`` and the checkpoints."""

    def folder_of(system: str) -> Path:
        def make(folder: Path) -> None:
            arch, flags = FLAGS[system]
            log = train(corpus / "bin", folder, arch, UPDATES, *flags)
            (folder / "train.log").write_text(log, "utf-8")

        return made_once(tmp_path_factory, f"trained-{system}", make)

    return folder_of


@pytest.fixture(scope="session")
def translated(
    corpus: Path, trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Translate the test set once for all tests, with all mechanisms at once.

    Returns:
        A function of the precision, ``fp32`` or ``trained`` (that of the training), to the output.
    """

    def output(precision: str) -> Path:
        def make(folder: Path) -> None:
            flags = [*decoding(trained("everything") / LAST), *IN[precision]]
            generated = succeed("fairseq_cli.generate", corpus / "bin", *flags)
            (folder / "generated.txt").write_text(generated, "utf-8")

        return made_once(tmp_path_factory, f"translated-{precision}", make) / "generated.txt"

    return output


@every_system
def test_train_resume_validate_average_and_generate(
    system: str, corpus: Path, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    data, (arch, flags) = corpus / "bin", FLAGS[system]
    through = trained(system)
    (tmp_path / LAST).write_bytes((through / "checkpoint_1_2.pt").read_bytes())
    resumed = train(data, tmp_path, arch, UPDATES, *flags)
    assert "Loaded checkpoint" in resumed

    one, other = (load_checkpoint(folder / LAST) for folder in (through, tmp_path))
    assert one["optimizer_history"][-1]["num_updates"] == UPDATES
    assert one["model"].keys() == other["model"].keys()
    for name, tensor in one["model"].items():
        # fairseq 0.12.2 leaves its marker of device and dtype uninitialised
        if not name.endswith("_float_tensor"):
            assert torch.equal(tensor, other["model"][name]), name

    validated = command(
        "fairseq_cli.validate",
        *(data, "--user-dir", PLUGIN, "--path", through / LAST, *ON_CPU),
        *("--task", "translation", "--batch-size", "8"),
    )
    assert validated.returncode == 0, validated.stderr
    log = (through / "train.log").read_text("utf-8")
    assert losses(validated.stderr + validated.stdout)[-1] == losses(log)[-1]

    averaged = tmp_path / "averaged.pt"
    succeed("capsnmt.checkpoints.average", through, "--output", averaged, "--last-updates", "2")
    generated = succeed("fairseq_cli.generate", data, *decoding(averaged))
    assert len(hypotheses(generated)) == 8


@pytest.mark.nightly  # to generate code takes minutes; tests/models compare all graphs
@pytest.mark.one_host
@needs_compiler
def test_compiled_training_ends_with_the_same_model(corpus: Path, tmp_path: Path) -> None:
    flags = ("--dropout", "0", "--save-interval-updates", "0", "--no-epoch-checkpoints")
    for name, more in (("eager", ()), ("compiled", ("--compile",))):
        train(corpus / "bin", tmp_path / name, "transformer_em_routing_tiny", 8, *flags, *more)
    eager, compiled = (
        load_checkpoint(tmp_path / name / LAST)["model"] for name in ("eager", "compiled")
    )
    # Adam moves a parameter by up to the learning rate, 0.005, whatever the size of its gradient
    torch.testing.assert_close(compiled, eager, rtol=0, atol=0.001)
    generated = succeed(
        "fairseq_cli.generate", corpus / "bin", *decoding(tmp_path / "compiled" / LAST)
    )
    assert len(hypotheses(generated)) == 8


def decoding(checkpoint: Path) -> List[object]:
    """Return the flags that decode with a checkpoint."""
    return ["--user-dir", PLUGIN, "--path", checkpoint, *ON_CPU, "--beam", "3"]


@pytest.mark.one_host  # tests/translate calls fairseq-interactive on both
def test_standard_input_is_translated_and_scored_as_the_test_set(
    corpus: Path,
    trained: Callable[[str], Path],
    translated: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """With all mechanisms at once; scoring reads text and does not depend on the system.

    In fp32, where the same sentence in another batch has the same translation.
    """
    flags = [*decoding(trained("everything") / LAST), *IN["fp32"], "-s", "en", "-t", "de"]
    generated, source = translated("fp32"), (corpus / "test.en").read_text("utf-8")
    assert hypotheses(
        succeed("fairseq_cli.interactive", corpus / "bin", *flags, stdin=source)
    ) == hypotheses(generated.read_text("utf-8"))

    scored = succeed(
        "capsnmt.evaluation",
        *(f"system={generated}", "--reference", corpus / "test.de"),
        *("--remove-bpe", "none", "--detokenize", "none", "--target-lang", "de"),
        *("--json", tmp_path / "scores.json"),
    )
    (system,) = json.loads((tmp_path / "scores.json").read_text("utf-8"))["systems"]
    assert system["name"] == "system"
    assert f"{system['outputs'][0]['scores']['bleu']['score']:.2f}" in scored


@pytest.mark.skipif(not BF16, reason="this CPU has no bf16")
@pytest.mark.one_host  # tests/models/test_autocast.py loads and decodes on both
def test_a_narrow_model_trained_in_bf16_is_decoded_in_it_where_that_is_faster(
    translated: Callable[[str], Path],
) -> None:
    in_bf16, in_fp32 = (
        scores(translated(precision).read_text("utf-8")) for precision in ("trained", "fp32")
    )
    assert (in_bf16 != in_fp32) == ("amx_bf16" in cpu_flags())
    # this model has learnt little, and near-equal hypotheses may change places
    assert statistics.mean(in_bf16) == pytest.approx(statistics.mean(in_fp32), abs=0.05)


def test_a_bad_flag_is_one_line_and_leaves_nothing(corpus: Path, tmp_path: Path) -> None:
    done = command(
        "fairseq_cli.train",
        *(corpus / "bin", "--user-dir", PLUGIN, "--arch", "transformer_em_routing_tiny"),
        *("--optimizer", "adam", "--max-tokens", "500", "--save-dir", tmp_path / "run"),
        *("--head-capsules", "100"),
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("--head-capsules: 100 does not divide the encoder's width 128")
    assert not (tmp_path / "run").exists()


def test_a_stock_checkpoint_scores_the_same_under_our_architecture(
    corpus: Path, tmp_path: Path
) -> None:
    data, small = corpus / "bin", ["--encoder-attention-heads", "4", "--decoder-layers", "2"]
    # stock fairseq 0.12.2's post-norm encoder cannot be evaluated on torch 2.2 ("Mask Type")
    norm = ["--encoder-normalize-before", "--decoder-normalize-before"]
    train(data, tmp_path, "transformer_tiny", 4, *small, *norm)
    checkpoint = [data, "--user-dir", PLUGIN, "--path", tmp_path / "checkpoint_last.pt", *ON_CPU]
    overrides = ["--model-overrides", "{'_name': 'capsnmt_transformer'}"]
    theirs = succeed("fairseq_cli.generate", *checkpoint)
    ours = succeed("fairseq_cli.generate", *checkpoint, *overrides)
    assert hypotheses(ours) == hypotheses(theirs)
    assert scores(ours) == pytest.approx(scores(theirs), abs=2e-4)  # printed with four digits


@pytest.mark.one_host  # tests/models/test_source_masking.py masks on both
def test_a_source_is_masked_at_generation(
    corpus: Path, trained: Callable[[str], Path], translated: Callable[[str], Path]
) -> None:
    checkpoint = decoding(trained("everything") / LAST)

    def generated(layer: int) -> list:
        overrides = f"{{'mlmha_mask_source': {layer}}}"
        return scores(
            succeed(
                "fairseq_cli.generate", corpus / "bin", *checkpoint, "--model-overrides", overrides
            )
        )

    assert generated(0) == scores(translated("trained").read_text("utf-8"))
    assert generated(2) != generated(0)
    beyond = command(
        "fairseq_cli.generate",
        *(corpus / "bin", *checkpoint, "--model-overrides", "{'mlmha_mask_source': 4}"),
    )
    assert beyond.returncode != 0
    assert "Traceback" not in beyond.stderr
    assert beyond.stderr.splitlines()[-1].startswith("--mlmha-mask-source: 4")
