"""What the tests of models share: small models built through the real command-line parser."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence, Tuple

import fairseq.models
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_INV_REGISTRY
from torch import Tensor

import capsnmt

PLUGIN = str(Path(capsnmt.__file__).parent)
REPO = Path(__file__).resolve().parent.parent
WORDS = 24

# every dimension small, everything else as the architecture says; no dropout: properties are exact
SMALL = [
    *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24", "--encoder-layers", "2"),
    *("--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "24", "--decoder-layers", "2"),
    *("--encoder-attention-heads", "4", "--decoder-attention-heads", "4"),
    *("--dropout", "0", "--share-decoder-input-output-embed"),
]


def make_task() -> Any:
    """A task with one small dictionary, as far as building and decoding need it."""
    dictionary = Dictionary()
    for word in range(WORDS):
        dictionary.add_symbol(f"w{word}")
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


TASK = make_task()
PAD, EOS, FIRST = TASK.source_dictionary.pad(), TASK.source_dictionary.eos(), 4


def parse(arch: str, *flags: str) -> argparse.Namespace:
    """The arguments as fairseq-train parses them."""
    parser = options.get_training_parser()
    return options.parse_args_and_arch(
        parser, ["data", "--user-dir", PLUGIN, "--task", "translation", "--arch", arch, *flags]
    )


def build(arch: str, *flags: str, small: bool = True, seed: int = 1) -> torch.nn.Module:
    """A model by its command line, in evaluation mode."""
    torch.manual_seed(seed)
    args = parse(arch, *(SMALL if small else ()), *flags)
    return fairseq.models.build_model(args, TASK).eval()


def _combinations() -> Dict[str, Tuple[str, ...]]:
    """Every routing in every subset of the attentions, the other switches varying along."""
    attentions = [
        ",".join(subset)
        for size in (1, 2, 3)
        for subset in itertools.combinations(("enc-self", "enc-dec", "dec-self"), size)
    ]
    varied = itertools.cycle(
        [
            (),
            ("--head-capsules", "4"),
            ("--head-capsule-norm", "--routing-iterations", "1"),
            ("--head-capsules", "1", "--routing-iterations", "2"),
            ("--encoder-normalize-before", "--decoder-normalize-before"),
        ]
    )
    return {
        f"{routing}:{attention}:{' '.join(others)}": (
            *("--head-aggregation", routing, "--head-aggregation-attention", attention),
            *others,
        )
        for routing in ("simple", "em")
        for attention, others in zip(attentions, varied)
    }


# name -> (architecture, flags): every registered architecture, and every combination of switches
SYSTEMS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    **{arch: (arch, ()) for arch in ARCH_MODEL_INV_REGISTRY["capsnmt_transformer"]},
    **{name: ("capsnmt_transformer", flags) for name, flags in _combinations().items()},
}


def build_system(name: str, *flags: str) -> torch.nn.Module:
    """One of ``SYSTEMS``, with random numbers in the parameters that start at zero.

    Otherwise biases and the betas of EM routing would be tested at one special point only.
    """
    arch, own = SYSTEMS[name]
    model = build(arch, *own, *flags)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.1)
    return model


def sentences(*lengths: int, seed: int = 0) -> List[Tensor]:
    """Random sentences of these lengths, each closed by EOS (not counted)."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.cat(
            [
                torch.randint(FIRST, FIRST + WORDS, (length,), generator=generator),
                torch.tensor([EOS]),
            ]
        )
        for length in lengths
    ]


def batch(lines: Sequence[Tensor], left_pad: bool) -> Tensor:
    """Sentences as one padded batch ``[B, L]``."""
    longest = max(map(len, lines))
    rows = torch.full((len(lines), longest), PAD)
    for row, line in zip(rows, lines):
        row[longest - len(line) :] = line if left_pad else row[longest - len(line) :]
        if not left_pad:
            row[: len(line)] = line
    return rows


def shifted(target: Tensor) -> Tensor:
    """The decoder's input for right-padded targets: EOS first, one step behind."""
    previous = torch.full_like(target, PAD)
    previous[:, 0] = EOS
    inside = target[:, :-1].masked_fill(target[:, :-1].eq(EOS), PAD)
    previous[:, 1:] = inside
    return previous


def forward(model: torch.nn.Module, sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Logits ``[B, L, V]`` of right-padded targets for left-padded sources, as fairseq trains."""
    source, target = batch(sources, left_pad=True), batch(targets, left_pad=False)
    lengths = source.ne(PAD).sum(1)
    return model(source, lengths, shifted(target))[0]
