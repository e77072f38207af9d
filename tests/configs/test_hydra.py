"""fairseq-hydra-train with the YAML of a row trains what the launcher trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from capsnmt.checkpoints.resume import LAST
from capsnmt.launch import launch
from capsnmt.launch.arguments import parse
from tests.commands import succeed
from tests.support import PLUGIN, REPO

ROW = "li2019_effective"
# The row, as small as a test needs it: each setting as hydra's and as the row's.
SMALL = {
    "optimization.max_update": ("train.max-update", 3),
    "dataset.max_tokens": ("batch.max-tokens", 512),
    "+model.encoder_layers": ("train.encoder-layers", 2),
    "+model.decoder_layers": ("train.decoder-layers", 1),
    "+model.encoder_embed_dim": ("train.encoder-embed-dim", 32),
    "+model.decoder_embed_dim": ("train.decoder-embed-dim", 32),
    "+model.encoder_ffn_embed_dim": ("train.encoder-ffn-embed-dim", 32),
    "+model.decoder_ffn_embed_dim": ("train.decoder-ffn-embed-dim", 32),
}


@pytest.mark.system
@pytest.mark.nightly  # with every commit, test_imports registers every name under hydra
def test_the_yaml_trains_bit_for_bit_what_the_row_trains(prepared: Path, tmp_path: Path):
    succeed(
        "fairseq_cli.hydra_train",
        *("--config-dir", REPO / "configs" / "hydra", "--config-name", f"wmt14_en_de_{ROW}"),
        *(f"common.user_dir={PLUGIN}", f"task.data={prepared / 'bin'}"),
        *("common.cpu=true", "common.fp16=false", f"hydra.run.dir={tmp_path / 'hydra'}"),
        *(f"{key}={value}" for key, (_, value) in SMALL.items()),
    )
    hydra = tmp_path / "hydra" / "checkpoints" / LAST

    arguments = ["--dataset", "wmt14_en_de", "--config", ROW, "--cpu", "--prepared", str(prepared)]
    arguments += ["--output", str(tmp_path / "runs"), "--set", "batch.tokens-per-update=512"]
    for key, value in SMALL.values():
        arguments += ["--set", f"{key}={value}"]
    (run,) = launch.make_runs(parse(arguments), launch.choose_device(1, None, None))
    succeed("capsnmt.launch.train", *run.train().arguments)

    paths = [str(hydra), str(run.folder.last_checkpoint)]
    (one, other), _, _ = checkpoint_utils.load_model_ensemble_and_task(paths)
    parameters = dict(other.named_parameters())
    assert "encoder.layers.0.self_attn.out_proj.beta_u" in parameters, "the preset is the row's"
    for name, value in one.named_parameters():
        assert torch.equal(value, parameters[name]), name
