"""fairseq's commands with our systems: its flags beside ours, two processes, other checkpoints."""

import re
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint
from capsnmt.models import CapsnmtTransformer
from tests.commands import EVERYTHING, ON_CPU, command, hypotheses, logged, succeed, train, training
from tests.support import HALF, PLUGIN, REPO

pytestmark = pytest.mark.system
# a training of each flag on both hosts takes long: on the second at night
one_host = pytest.mark.one_host

LAST = "checkpoint_last.pt"
TRAINED = object()  # stands for the checkpoint of a plain training
SHORT = ("--beam", "2", "--max-len-b", "6")
# name -> the system, the flags, and an expression that the log must have
TRAININGS: Dict[str, Tuple[Tuple[str, ...], Tuple[object, ...], str]] = {
    "memory-efficient fp16": (
        EVERYTHING,
        ("--memory-efficient-fp16", "--fp16-init-scale", "8"),
        r"loss_scale[ =]8",
    ),
    "epochs": (
        EVERYTHING,
        (
            *("--batch-size", "64", "--max-update", "3", "--keep-last-epochs", "1", "--patience"),
            *("5", "--store-ema", "--eval-bleu", "--eval-bleu-args"),
            '{"beam": 2, "max_len_b": 4}',
        ),
        r"bleu[ =]\d",
    ),
    "without the optimizer": (
        EVERYTHING,
        (
            *("--restore-file", TRAINED, "--reset-optimizer", "--reset-lr-scheduler"),
            *("--reset-meters", "--reset-dataloader", "--activation-fn", "gelu"),
        ),
        "last.pt: it was trained with --activation-fn relu, and now it is gelu",
    ),
}


@pytest.fixture
def checkpoint(trained: Dict[str, Path]) -> Path:
    """The checkpoint of a training with all mechanisms at once."""
    return trained["everything"]


@one_host
@pytest.mark.parametrize("name", TRAININGS)
def test_a_flag_of_training(name: str, data: Path, checkpoint: Path, tmp_path: Path) -> None:
    if "fp16" in name and torch.float16 not in HALF:
        pytest.skip("this torch has no fp16 on a CPU")
    (arch, *own), flags, sign = TRAININGS[name]
    given = [checkpoint if flag is TRAINED else flag for flag in flags]
    log = train(data, tmp_path, arch, 2, *own, *given)
    assert re.search(sign, log)
    losses = re.findall(r"\| loss[ =]? ?(\S+)", log)
    assert losses
    assert "nan" not in losses
    assert "is another dictionary" not in log
    if name == "epochs":
        assert [path.name for path in tmp_path.glob("checkpoint?.pt")] == ["checkpoint3.pt"]


def test_what_cannot_be_trained_here_is_said_before_the_data_are_read(
    data: Path, tmp_path: Path
) -> None:
    """At the exit a thread in the midst of reading them aborted the process: no status of ours."""
    flags = ("--head-aggregation", "em", "--routing-backend", "triton")
    done = command("fairseq_cli.train", *training(data, tmp_path, "capsnmt_transformer", 1, *flags))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("--routing-backend triton: ")
    assert "Start iterating over samples" not in done.stdout + done.stderr


def test_a_start_from_a_model_of_other_words_is_warned_of(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(data, tmp_path / "data")
    for file in other.glob("dict.*"):
        file.write_bytes(b"".join(reversed(file.read_bytes().splitlines(keepends=True))))
    arch, *own = EVERYTHING
    log = train(other, tmp_path / "run", arch, 1, *own, "--finetune-from-model", checkpoint)
    assert "loading pretrained model from" in log
    assert log.count("is another dictionary") == 2


@one_host
@pytest.mark.parametrize(
    "flags",
    [
        ("--fp16",),
        ("--model-overrides", "{'encoder_layers_to_keep': '0,2', 'decoder_layers_to_keep': '0,1'}"),
        ("--print-alignment",),
    ],
    ids=lambda flags: flags[0],
)
def test_a_flag_of_generation(
    flags: Tuple[str, ...], data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """Layers that mechanisms read or name cannot be pruned, and it is said in one line."""
    if "--fp16" in flags and torch.float16 not in HALF:
        pytest.skip("this torch has no fp16 on a CPU")
    paths = f"{checkpoint}:{checkpoint}" if "--print-alignment" in flags else checkpoint
    given = [data, "--user-dir", PLUGIN, *ON_CPU, *SHORT, "--path", paths, *flags]
    done = command("fairseq_cli.generate", *given)
    if "--model-overrides" in flags:
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("--")
        return
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(hypotheses(done.stdout)) == 8
    assert ("--print-alignment" in flags) == bool(re.search(r"(?m)^A-\d", done.stdout))


# --- a trained model needs nothing of its training: neither its baseline, nor its machine


@one_host
def test_it_translates_where_its_backend_is_missing_and_another_direction_is_warned_of(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """As from a machine with a GPU and Triton kernels: by the command, in Python, by torch.hub.

    The direction is known also where fairseq has inferred the languages of the training, as here.
    """
    state = torch.load(checkpoint, weights_only=False)
    settings = {**vars(state["cfg"]["model"]), "routing_backend": "triton"}
    state["cfg"]["model"] = Namespace(**settings)
    torch.save(state, tmp_path / "elsewhere.pt")
    flags, turned = ["--user-dir", PLUGIN, *SHORT, *ON_CPU, "--path"], ["-s", "de", "-t", "en"]
    usual, elsewhere, other = (
        logged("fairseq_cli.generate", data, *flags, *given)
        for given in ([checkpoint], [tmp_path / "elsewhere.pt"], [checkpoint, *turned])
    )
    assert hypotheses(usual) == hypotheses(elsewhere)
    warning = "was trained to translate from en to de, and now"
    assert (usual.count(warning), other.count(warning)) == (0, 1)
    given = {"checkpoint_file": "elsewhere.pt", "data_name_or_path": str(data), "beam": 2}
    hub: Any = torch.hub.load(str(REPO), "capsnmt", str(tmp_path), source="local", **given)
    own: Any = CapsnmtTransformer.from_pretrained(str(tmp_path), **given)
    assert hub.translate("routing by agreement") == own.translate("routing by agreement")


SENTENCES = 48  # the corpus is one update: batches of either size hold the same sentences
EXACT = [
    # Adam would turn the rounding error of a zero gradient (the bias of the keys) into a full step
    *("--optimizer", "sgd", "--lr", "0.3", "--dropout", "0"),
    *("--disable-validation", "--no-epoch-checkpoints", "--save-interval", "100"),
    *("--save-interval-updates", "0"),
]


def parameters(folder: Path) -> Dict[str, torch.Tensor]:
    """Return the parameters after all updates; fairseq 0.12.2 leaves its marker uninitialised."""
    model = load_checkpoint(folder / LAST)["model"]
    return {name: model[name] for name in model if not name.endswith("_float_tensor")}


def test_two_processes_train_what_one_does_with_the_doubled_batch(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All mechanisms at once have the parameters of every preset. As the launcher starts them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # torchrun leaves a folder

    def arguments(name: str, size: int) -> List[object]:
        arch, *flags = EVERYTHING
        flags = [*flags, *EXACT, "--batch-size", size]
        return training(corpus / "bin", tmp_path / name, arch, 4, *flags)

    log = logged(
        *("torch.distributed.run", "--standalone", "--local-addr=localhost", "--nproc_per_node=2"),
        *("-m", "capsnmt.launch.train", *arguments("two", SENTENCES // 2)),
        *("--distributed-world-size", 2, "--distributed-backend", "gloo"),
        *("--ddp-backend", "legacy_ddp"),
    )
    assert "training on 2 devices" in log
    succeed("fairseq_cli.train", *arguments("one", SENTENCES))
    two, one = (parameters(tmp_path / name) for name in ("two", "one"))
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-5)
