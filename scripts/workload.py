"""What the benchmark measures: models given by their flags, and one batch to put through them."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Optional

import fairseq.models
import torch
from fairseq import criterions, options
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import capsnmt.plugin
from capsnmt.criterions.chunked_cross_entropy import MULTIPLE
from capsnmt.fast.search.generator import Generator
from capsnmt.models import SIZES, CapsnmtTransformer
from capsnmt.models.layers import FAST_PATH_COPIES
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation import LayerRouting
from scripts.harness import DTYPES
from scripts.paper_rows import SUFFIXES

PHASES = ("train", "decode")
# torch counts the attention kernels of GPUs only; torch 2.2 has no such kernel on the CPU.
CPU_KERNELS = {
    kernel: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
    for kernel in [getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)]
    if kernel
}
# Flags of every system; its own flags take precedence.
SHARED = "--share-all-embeddings --criterion label_smoothed_cross_entropy --label-smoothing 0.1"


@dataclass(frozen=True)
class Setup:
    """The batch, the device and the precision."""

    device: str
    dtype: str
    tokens: int  # of a batch on each side
    length: int  # tokens of a sentence
    sentences: int  # that are decoded at once
    beam: int  # hypotheses of a sentence
    vocabulary: int  # words of the one dictionary
    seed: int  # of the parameters and of the batch


@functools.lru_cache(maxsize=1)
def task(vocabulary: int) -> Any:
    """Return the part of a task that building and decoding need: one dictionary for both sides."""
    dictionary = Dictionary()
    for word in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def stock_flags(size: str) -> str:
    """Return the flags of fairseq's own Transformer in one of our sizes."""
    flags = (f"--{name.replace('_', '-')} {n}" for name, n in SIZES[SUFFIXES[size]].items())
    return " ".join(["--arch transformer", *flags])


def parse(flags: str) -> argparse.Namespace:
    """Parse flags as fairseq-train does."""
    plugin = str(Path(capsnmt.__file__).parent)
    words = ["data", "--user-dir", plugin, "--task", "translation", *shlex.split(SHARED)]
    return options.parse_args_and_arch(options.get_training_parser(), [*words, *shlex.split(flags)])


def build(flags: str, setup: Setup) -> nn.Module:
    """Build the model of the flags, on the device and in the precision of the benchmark."""
    torch.manual_seed(setup.seed)
    model = fairseq.models.build_model(parse(flags), task(setup.vocabulary))
    return model.to(device=setup.device, dtype=DTYPES[setup.dtype])


def build_criterion(flags: str, setup: Setup) -> nn.Module:
    """Build the training loss of the flags."""
    return criterions.build_criterion(parse(flags), task(setup.vocabulary)).to(setup.device)


def learned_parameters(model: nn.Module) -> Dict[str, nn.Parameter]:
    """Return the named parameters of a Transformer without fairseq 0.12.2's weight copies."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if not (".layers." in name and name.rpartition(".")[2] in FAST_PATH_COPIES)
    }


def parameters(flags: str, setup: Setup) -> int:
    """Count the trained parameters of a model, which is built without memory."""
    with torch.device("meta"):
        model = fairseq.models.build_model(parse(flags), task(setup.vocabulary))
    return sum(p.numel() for p in learned_parameters(model).values())


def mean_of_votes(model: nn.Module) -> nn.Module:
    """Replace every routing of heads or layers by the mean of its votes."""
    for module in model.modules():
        if isinstance(module, (HeadRouting, LayerRouting)):
            module.route = mean_vote  # type: ignore[method-assign]
    return model


def mean_vote(votes: Tensor, input_activation: Optional[Tensor] = None, **_: Any) -> Tensor:
    """Return the mean over I of votes ``[..., I, N, D]``.

    Input activations ``[..., I, N]`` weight the votes. They come from a network of their own, which
    is not part of routing and is therefore kept.
    """
    if input_activation is not None:
        votes = votes * input_activation.unsqueeze(-1)
    return votes.mean(-3)


def has_votes(model: nn.Module) -> bool:
    """Return whether a network of the model makes votes, so that the model has a floor."""
    return any(isinstance(module, (HeadRouting, LayerRouting)) for module in model.modules())


class Workload:
    """One batch, and what each phase does with it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        generator = torch.Generator().manual_seed(setup.seed)
        shape = (max(1, setup.tokens // setup.length), setup.length)
        words = torch.randint(4, setup.vocabulary, (3, *shape), generator=generator)
        source, previous, target = words.to(setup.device)
        lengths = torch.full((shape[0],), setup.length, device=setup.device)
        self.batch = {
            "net_input": {
                "src_tokens": source,
                "src_lengths": lengths,
                "prev_output_tokens": previous,
            },
            "target": target,
            "ntokens": target.numel(),
        }
        few = setup.sentences
        self.sample = {"net_input": {"src_tokens": source[:few], "src_lengths": lengths[:few]}}

    def tokens(self, phase: str) -> int:
        """Return how many source tokens a phase reads."""
        return (self.sample if phase == "decode" else self.batch)["net_input"]["src_tokens"].numel()

    def phase(
        self, name: str, model: nn.Module, flags: str, prepared: bool = True
    ) -> Callable[[], Any]:
        """Return a function that runs one of :data:`PHASES` once, with the loss of the flags.

        A model that is ``prepared`` decodes as with fairseq-generate.
        """
        if name == "train":
            return self.training_step(model, build_criterion(flags, self.setup))
        model.eval()
        steps = self.setup.length  # the length of every hypothesis, independent of the model
        dictionary = task(self.setup.vocabulary).target_dictionary
        if prepared:
            model.make_generation_fast_(need_attn=False)
        kind = Generator if isinstance(model, CapsnmtTransformer) else SequenceGenerator
        settings = {"beam_size": self.setup.beam, "max_len_b": steps, "min_len": steps}
        generator = kind([model], dictionary, **settings)
        generator.to(self.setup.device)
        return lambda: generator.generate([model], self.sample)

    def training_step(self, model: nn.Module, criterion: nn.Module) -> Callable[[], None]:
        """Return a function that makes one update by the mean loss of the tokens."""
        model.train()
        criterion.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)

        def step() -> None:
            loss, sample_size, _ = criterion(model, self.batch)
            (loss / sample_size).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step


def matmul_work(flags: str, phase: str, setup: Setup) -> int:
    """Count the floating-point operations in a phase's matrix products, for the same few tokens.

    A machine that is bound by arithmetic needs at least these, whatever the implementation. They
    are counted without ``--compile``, with eager routing and before a model is prepared for
    decoding: no counter sees into a compiled graph or into kernels that are not torch's.
    """
    flags = shlex.join(word for word in shlex.split(flags) if word != "--compile")
    # a batch that the loss in chunks need not fill up
    few = dataclasses.replace(setup, tokens=math.lcm(setup.length, MULTIPLE), sentences=1)
    model = build(flags, few)
    for module in model.modules():
        if hasattr(module, "backend"):
            module.backend = "eager"
    run = Workload(few).phase(phase, model, flags, prepared=False)
    with FlopCounterMode(display=False, custom_mapping=CPU_KERNELS) as counter:
        run()
    return counter.get_total_flops()
