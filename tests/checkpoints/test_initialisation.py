"""Starting from a baseline's checkpoint (--init-from)."""

import logging
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq.models import build_model

from capsnmt.cli import ConfigurationError
from capsnmt.modules.multi_layer_attention import VARIANTS
from tests.docs.pages import REPO
from tests.sentences.systems import SMALL as OF_CLASSIFIERS
from tests.sentences.systems import build as build_classifier
from tests.sentences.systems import make_task
from tests.support import EVERYWHERE, FIRST, NORM, SMALL, TASK, build, parse


@pytest.fixture
def baseline(tmp_path: Path) -> tuple:
    model = build("capsnmt_transformer", seed=5)
    path = tmp_path / "baseline.pt"
    torch.save({"model": model.state_dict()}, path)
    return model, str(path)


def test_matching_tensors_are_loaded_and_the_rest_is_listed_as_fresh(
    baseline: tuple, caplog: pytest.LogCaptureFixture
) -> None:
    trained, path = baseline
    with caplog.at_level(logging.INFO, logger="capsnmt"):
        wide = ("--encoder-ffn-embed-dim", "32")
        model = build("transformer_em_routing", *wide, "--init-from", path)
    theirs = dict(trained.named_parameters())
    fresh = {
        name
        for name, parameter in model.named_parameters()
        if name not in theirs or parameter.shape != theirs[name].shape
    }
    assert "encoder.layers.0.fc1.weight" in fresh, "of another shape"
    for name, parameter in model.named_parameters():
        if name not in fresh:
            assert torch.equal(parameter, theirs[name]), name
    listed = {r.getMessage().rpartition(" ")[2] for r in caplog.records if "fresh:" in r.message}
    assert listed == fresh
    warned = " ".join(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert warned.count("encoder.layers") == warned.count("self_attn") == 2, "layers without W^O"


@pytest.mark.parametrize(
    ("kept", "starts"),
    [("checkpoint_last_old.pt", True), ("checkpoint_last.pt", False), ("checkpoint1.pt", True)],
)
def test_only_what_a_training_resumes_from_takes_the_place_of_the_other_model(
    kept: str, starts: bool, baseline: tuple, tmp_path: Path
) -> None:
    (tmp_path / kept).touch()
    args = parse("capsnmt_transformer", *SMALL, "--init-from", baseline[1])
    args.save_dir, args.restore_file = str(tmp_path), "checkpoint_last.pt"
    own = build_model(args, TASK).parameters()
    assert all(map(torch.equal, own, baseline[0].parameters())) == starts


def test_an_exact_start_is_without_a_warning(
    baseline: tuple, caplog: pytest.LogCaptureFixture
) -> None:
    """What it computes: tests/models/test_limits.py. docs/tutorials/checkpoint.md names them."""
    for flags in (
        ("--head-aggregation", "talking", *EVERYWHERE),
        ("--head-aggregation", "composed", *EVERYWHERE),
        ("--layer-aggregation", "linear"),
        ("--layer-aggregation", "dense"),
    ):
        with caplog.at_level(logging.WARNING, logger="capsnmt"):
            build("capsnmt_transformer", *flags, "--init-from", baseline[1])
        assert not caplog.records, flags


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_tutorial_names_what_multi_layer_attention_starts_anew(
    variant: str, baseline: tuple
) -> None:
    words = {"q_proj": "queries", "k_proj": "keys", "v_proj": "values", "out_proj": "W^O"}
    name = "decoder.layers.0.encoder_attn.{}.weight".format
    own = build("capsnmt_transformer", "--mlmha", variant, "--init-from", baseline[1]).state_dict()
    trained = baseline[0].state_dict()
    anew = {each for each in words if own[name(each)].shape != trained[name(each)].shape}
    text = (REPO / "docs" / "tutorials" / "checkpoint.md").read_text("utf-8")
    (row,) = re.findall(r"^\| `--mlmha`[^|]*\|(.*?)\|", text, re.MULTILINE)
    always, _, also = row.partition(";")
    said = always + also if variant in also else always
    assert anew == {each for each, word in words.items() if word in said}


@pytest.mark.parametrize("kept", ["^encoder", "^decoder", "^(?!.*version)", "encoder.layers.0.fc1"])
def test_a_part_of_a_checkpoint_leaves_a_model_its_last_layer_norms(
    kept: str, tmp_path: Path
) -> None:
    """As a stack, the parameters alone, as of an average, or those of an adapter."""
    given, model = (build("capsnmt_transformer", *NORM, seed=seed) for seed in (5, 1))
    names = model.state_dict().keys()
    state = {name: each for name, each in given.state_dict().items() if re.search(kept, name)}
    torch.save({"model": state}, tmp_path / "part.pt")
    started = build("capsnmt_transformer", *NORM, "--init-from", str(tmp_path / "part.pt"))
    model.load_state_dict(state, strict=False)
    assert started.state_dict().keys() == model.state_dict().keys() == names


def test_settings_that_no_tensor_shows_are_warned_of(
    baseline: tuple, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    simple = {"head_aggregation": "simple", "routing_iterations": 2, "head_capsules": 4}
    linear = {"head_aggregation": "linear", "routing_iterations": 3, "head_capsules": 0}
    for trained, flags, warned in (
        ({"encoder_attention_heads": 4, "activation_fn": "relu"}, (), 0),
        ({"encoder_attention_heads": 8, "activation_fn": "gelu"}, (), 2),
        ({"decoder_normalize_before": True}, (), 1),
        ({"cross_self_attention": True}, (), 1),
        ({"mlmha": "M-00"}, ("--mlmha", "M-10"), 1),
        ({"capsule_routing_decoder": "horizontal"}, (), 1),
        ({"mlmha": "M-00", "routing_backend": "eager"}, ("--mlmha", "M-00"), 0),
        (simple, ("--head-aggregation", "inverted"), 3),
        # what has no effect there is not changed, but new
        (linear, ("--head-aggregation", "talking", *EVERYWHERE), 0),
    ):
        state = {"model": baseline[0].state_dict(), "cfg": {"model": Namespace(**trained)}}
        torch.save(state, tmp_path / "trained.pt")
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="capsnmt"):
            build("capsnmt_transformer", *flags, "--init-from", str(tmp_path / "trained.pt"))
        assert caplog.text.count("the same tensors compute something else") == warned
        assert all(f"--{name.replace('_', '-')}" in caplog.text for name in trained) == bool(warned)


def test_another_dictionary_and_matrices_that_are_one_here_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = build("capsnmt_transformer", seed=5)
    state = given.state_dict()
    path, other = str(tmp_path / "untied.pt"), str(tmp_path / "larger.pt")
    settings = {}
    for folder in ("trained", "now"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dict.en.txt").write_text(f"{folder} 1\n", "utf-8")
        settings[folder] = {"data": str(tmp_path / folder), "source_lang": "en"}
    monkeypatch.setattr(TASK, "cfg", Namespace(**settings["now"]), raising=False)
    torch.save({"model": state, "cfg": {"task": settings["trained"]}}, path)
    names = [name for name in state if "embed_tokens" in name or "output_projection" in name]
    larger = {name: torch.cat([state[name], state[name][:3]]) for name in names}
    torch.save({"model": {**state, **larger}}, other)
    shared = ("--share-all-embeddings",)
    wide = ("--encoder-embed-dim", "24", "--decoder-embed-dim", "24")
    for start, flags, words in (
        (path, shared, "are one matrix here and two there"),
        (path, shared, "is another dictionary"),
        (other, shared, "are [31, 16] there and [28, 16] here"),
        (path, wide, "are [28, 16] there and [28, 24] here"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="capsnmt"):
            build("capsnmt_transformer", *flags, "--init-from", start)
        assert any(words in record.getMessage() for record in caplog.records), caplog.text
    probing = make_task()
    probing.cfg = Namespace(data="sentences", dictionary=str(tmp_path / "now" / "dict.en.txt"))
    caplog.clear()
    build_classifier("--init-from", path, task=probing)
    assert "now/dict.en.txt is another dictionary" in caplog.text


@pytest.mark.parametrize(
    ("arch", "flags", "kind", "task"),
    [
        ("capsnmt_transformer", SMALL, "translation", TASK),
        ("probing_transformer", OF_CLASSIFIERS, "logical_inference", make_task()),
    ],
)
def test_a_trained_model_needs_no_file_that_its_training_started_from(
    arch: str, flags: List[str], kind: str, task: Any, tmp_path: Path
) -> None:
    """fairseq saves the settings with the model and builds it of them, perhaps elsewhere."""
    words = tmp_path / "words.txt"
    words.write_text(f"1 16\nw0{' 0.5' * 16}\n", "utf-8")
    args = parse(arch, *flags, "--encoder-embed-path", str(words), task=kind)
    model: Any = build_model(args, task)
    assert (model.encoder.embed_tokens.weight[FIRST] == 0.5).all()
    words.unlink()
    build_model(args, task)


def test_a_checkpoint_with_nothing_in_common_is_one_clear_line(baseline: tuple) -> None:
    wide = ["--encoder-embed-dim", "20", "--decoder-embed-dim", "20"]
    wide += ["--encoder-ffn-embed-dim", "28", "--decoder-ffn-embed-dim", "28"]
    with pytest.raises(ConfigurationError, match=r"--init-from .*none of its \d+ tensors"):
        build("capsnmt_transformer", *wide, "--init-from", baseline[1])
