"""fairseq-hydra-train with the YAML of a row trains what the launcher trains."""

from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from capsnmt.translate.load import load_model
from tests.commands import succeed
from tests.launch.conftest import Launch
from tests.support import PLUGIN, REPO

ROW = "li2019_effective"
LAST = "checkpoints/checkpoint_last.pt"
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
def test_the_yaml_trains_bit_for_bit_what_the_row_trains(
    prepared: Path, tmp_path: Path, launch: Launch
) -> None:
    succeed(
        "fairseq_cli.hydra_train",
        *("--config-dir", REPO / "configs" / "hydra", "--config-name", f"wmt14_en_de_{ROW}"),
        *(f"common.user_dir='{PLUGIN}'", f"task.data='{prepared / 'bin'}'"),
        *("common.cpu=true", "common.fp16=false", f"hydra.run.dir='{tmp_path / 'hydra'}'"),
        *(f"{key}={value}" for key, (_, value) in SMALL.items()),
    )
    arguments = ["--dataset", "wmt14_en_de", "--config", ROW, "--cpu", "--prepared", prepared]
    arguments += ["--output", tmp_path / "runs", "--set", "batch.tokens-per-update=512"]
    for setting in ("data.recipe=null", "data.test-sets=null", "data.test-sets.news=test"):
        arguments += ["--set", setting]
    for key, value in SMALL.values():
        arguments += ["--set", f"{key}={value}"]
    launch(*arguments)

    paths = [str(tmp_path / "hydra" / LAST), str(tmp_path / "runs" / ROW / "seed-1" / LAST)]
    (one, other), _, _ = checkpoint_utils.load_model_ensemble_and_task(paths)
    parameters = dict(other.named_parameters())
    assert "encoder.layers.0.self_attn.out_proj.beta_u" in parameters, "the preset is the row's"
    for name, value in one.named_parameters():
        assert torch.equal(value, parameters[name]), name
    loaded, _, _ = load_model(Path(paths[0]), prepared / "bin", {})
    assert torch.equal(loaded.encoder.embed_tokens.weight, one.encoder.embed_tokens.weight)
