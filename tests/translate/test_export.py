"""Exported models are fairseq's own, and CTranslate2 translates with them as fairseq does."""

from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import fairseq.models
import pytest
import torch
from fairseq.models.transformer import TransformerModel

from capsnmt.checkpoints.load import loads_weights_only, save_checkpoint
from capsnmt.export import main, stock_checkpoint
from capsnmt.models.config import defaults
from tests.commands import hypotheses, succeed
from tests.real_data import library
from tests.support import PAD, PLUGIN, SMALL, TASK, batch, build, forward, parse, sentences
from tests.translate.conftest import data_of


@pytest.mark.system
def test_ctranslate2_translates_as_fairseq(
    runs: Dict[str, Path], exported: Path, tmp_path: Path
) -> None:
    ctranslate2 = library("ctranslate2")
    binarised = data_of(runs["plain"]).binarised
    trusted = ("--user_dir", PLUGIN) if loads_weights_only() else ("--unsafe_deserialization",)
    succeed(
        *("ctranslate2.converters.fairseq", "--model_path", exported, "--data_dir", binarised),
        *("--source_lang", "en", "--target_lang", "de", "--output_dir", tmp_path / "ct2"),
        *trusted,
    )
    generated = (runs["plain"] / "generate-test.txt").read_text("utf-8")
    lines = [line.split("\t") for line in generated.splitlines() if line.startswith("S-")]
    lines.sort(key=lambda line: int(line[0][2:]))
    results = ctranslate2.Translator(str(tmp_path / "ct2"), intra_threads=1).translate_batch(
        [line[1].split() for line in lines], beam_size=3, length_penalty=0.6, max_decoding_length=20
    )
    translated = [" ".join(each.hypotheses[0]) for each in results]
    # fairseq adds the probability of an end to a translation that it cuts, CTranslate2 does not
    ended = [
        (ours, theirs)
        for ours, theirs in zip(hypotheses(generated), translated)
        if max(len(ours.split()), len(theirs.split())) < 20
    ]
    for ours, theirs in ended:
        assert ours == theirs
    assert len(set(ended)) > 3  # the model has learnt something


def checkpoint_of(*flags: str, hydra: bool = False) -> Tuple[torch.nn.Module, Dict[str, Any]]:
    """A model with these flags, and a checkpoint of it."""
    model, args = build("capsnmt_transformer", *flags), parse("capsnmt_transformer", *SMALL, *flags)
    task = {"_name": "translation", "source_lang": "en", "target_lang": "de"}
    cfg: Dict[str, Any] = {"common": {"user_dir": PLUGIN}, "task": task, "model": args}
    for section in ("criterion", "optimizer", "lr_scheduler"):
        cfg[section] = {"_name": getattr(args, section)}
    if hydra:
        own = {name: value for name, value in vars(args).items() if name not in ("task", "arch")}
        cfg["model"] = {**own, "_name": "capsnmt_transformer"}
    state = {"model": model.state_dict(), "extra_state": {}, "last_optimizer_state": {}}
    return model, {"args": None, "cfg": cfg, **state}


@pytest.mark.parametrize("hydra", [False, True])
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--encoder-normalize-before", "--decoder-normalize-before", "--activation-fn", "gelu"),
        ("--autocast", "bf16"),
        ("--criterion", "label_smoothed_cross_entropy_with_disagreement"),
    ],
)
def test_fairseq_computes_the_same_without_a_name_of_the_plugin(
    flags: Tuple[str, ...], hydra: bool
) -> None:
    model, state = checkpoint_of(*flags, hydra=hydra)
    if "--autocast" in flags:
        for stack in (model.encoder, model.decoder):
            stack.autocast = "none"
    written = stock_checkpoint(state, Path("it.pt"))
    args = written["cfg"]["model"]
    assert (args.arch, args.task, args.user_dir) == ("transformer", "translation", None)
    assert not {*defaults()} & {*vars(args)}
    assert {*written} == {"args", "cfg", "model", "extra_state"}
    assert {*written["cfg"]} == {"common", "task", "model"}
    assert "capsnmt" not in repr(written["cfg"])
    # not in evaluation, where fairseq 0.12.2's encoder fails on padding; there is no dropout
    stock = fairseq.models.build_model(args, TASK)
    assert type(stock) is TransformerModel
    stock.load_state_dict(written["model"], strict=True)
    batches = sentences(5, 3), sentences(2, 6, seed=1)
    ours, theirs = forward(model, *batches), forward(stock, *batches)
    real = batch(batches[1], left_pad=False).ne(PAD)  # nobody reads the others
    torch.testing.assert_close(ours[real], theirs[real])


def test_a_run_is_exported_as_it_is_scored() -> None:
    """With more positions and fewer layers than it was trained with."""
    model, state = checkpoint_of("--encoder-layers", "3", "--decoder-layers", "3")
    changed = {"max_source_positions": 77, "autocast": "none"}
    changed.update({"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1"})
    written = stock_checkpoint(state, Path("it.pt"), changed)
    args = written["cfg"]["model"]
    assert (args.max_source_positions, args.encoder_layers, args.decoder_layers) == (77, 2, 1)
    stock = fairseq.models.build_model(args, TASK)
    stock.load_state_dict(written["model"], strict=True)
    for side, kept in (("encoder", (0, 2)), ("decoder", (1,))):
        ours, theirs = (getattr(x, side).layers for x in (model, stock))
        assert len(theirs) == len(kept)
        for number, layer in zip(kept, theirs):
            assert torch.equal(ours[number].fc1.weight, layer.fc1.weight)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("", "is a model of --arch transformer; give"),
        ("--capsule-routing-decoder horizontal", "--capsule-routing-decoder horizont"),
        ("--mlmha M-01", "uses --mlmha M-01, which fairseq's Transformer does not"),
        ("--head-aggregation em", "uses --head-aggregation em"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    flags: str, words: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    _, state = checkpoint_of(*flags.split())
    exported = state if flags else stock_checkpoint(state, Path("it.pt"))
    save_checkpoint(exported, tmp_path / "it.pt")
    assert words in refused(main, tmp_path / "it.pt", "--output", tmp_path / "again.pt")
