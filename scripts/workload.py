"""What the benchmark times: models by their command lines, and one batch to put through them."""

from __future__ import annotations

import argparse
import copy
import functools
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

import fairseq.models
import torch
from fairseq import criterions, options
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import capsnmt.plugin
from capsnmt.models import SIZES
from capsnmt.models.layers import learned_parameters
from capsnmt.modules.head_aggregation import HeadAggregation
from capsnmt.modules.layer_aggregation import LayerRouting
from scripts.parameter_formulas import SUFFIXES

PHASES = ("train", "forward", "decode")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# torch counts the attention kernels of GPUs only; the older torch has no such kernel
CPU_KERNELS = {
    kernel: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
    for kernel in [getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)]
    if kernel
}
# what a row's own flags may replace
SHARED = "--share-all-embeddings --criterion label_smoothed_cross_entropy --label-smoothing 0.1"


@functools.lru_cache(maxsize=1)
def task(vocabulary: int) -> Any:
    """One dictionary of the given size for both sides."""
    dictionary = Dictionary()
    for word in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def stock_flags(size: str) -> str:
    """fairseq's own Transformer with the dimensions of our size."""
    flags = (f"--{name.replace('_', '-')} {n}" for name, n in SIZES[SUFFIXES[size]].items())
    return " ".join(["--arch transformer", *flags])


def parse(flags: str) -> argparse.Namespace:
    """The flags as fairseq-train parses them."""
    plugin = str(Path(capsnmt.__file__).parent)
    words = ["data", "--user-dir", plugin, "--task", "translation", *shlex.split(SHARED)]
    return options.parse_args_and_arch(options.get_training_parser(), [*words, *shlex.split(flags)])


def build(flags: str, args: argparse.Namespace) -> nn.Module:
    """A model by its flags, on the device and in the precision of the benchmark."""
    torch.manual_seed(args.seed)
    model = fairseq.models.build_model(parse(flags), task(args.vocabulary))
    return model.to(device=args.device, dtype=DTYPES[args.dtype])


def build_criterion(flags: str, args: argparse.Namespace) -> nn.Module:
    """The loss of a training by its flags."""
    return criterions.build_criterion(parse(flags), task(args.vocabulary)).to(args.device)


def parameters(flags: str, args: argparse.Namespace) -> int:
    """Number of parameters that are trained, from a model that takes no memory."""
    with torch.device("meta"):
        model = fairseq.models.build_model(parse(flags), task(args.vocabulary))
    return sum(p.numel() for p in learned_parameters(model).values())


def mean_of_votes(model: nn.Module) -> nn.Module:
    """Replace every routing of heads or layers by the mean of its votes."""
    for module in model.modules():
        if isinstance(module, (HeadAggregation, LayerRouting)):
            module.route = functools.partial(mean_vote, module)  # type: ignore[method-assign]
    return model


def mean_vote(module: nn.Module, votes: Tensor, hidden: Optional[Tensor] = None) -> Tensor:
    """The mean of votes ``[..., I, N, D]`` over I, weighted by the activations if there are any.

    Those come from a network of their own, which is no part of routing and so stays.
    """
    if hidden is not None and module.routing == "em-routing":
        activation = module.split(module.activation(hidden).sigmoid())  # [..., I, N]
        votes = votes * activation.unsqueeze(-1)
    return votes.mean(-3)


def has_votes(model: nn.Module) -> bool:
    """Whether the model routes votes that a network makes, so that it has a floor."""
    return any(isinstance(module, (HeadAggregation, LayerRouting)) for module in model.modules())


class Workload:
    """One batch, and what a phase does with it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        generator = torch.Generator().manual_seed(args.seed)
        shape = (max(1, args.tokens // args.length), args.length)
        words = torch.randint(4, args.vocabulary, (3, *shape), generator=generator)
        source, previous, target = words.to(args.device)
        lengths = torch.full((shape[0],), args.length, device=args.device)
        self.batch = {
            "net_input": {
                "src_tokens": source,
                "src_lengths": lengths,
                "prev_output_tokens": previous,
            },
            "target": target,
            "ntokens": target.numel(),
        }
        few = args.sentences
        self.sample = {"net_input": {"src_tokens": source[:few], "src_lengths": lengths[:few]}}

    def tokens(self, phase: str) -> int:
        """How many source tokens a phase reads."""
        return (self.sample if phase == "decode" else self.batch)["net_input"]["src_tokens"].numel()

    def phase(self, name: str, model: nn.Module, flags: str) -> Callable[[], Any]:
        """A function that runs the phase once on the model of the flags."""
        if name == "train":
            return self.training_step(model, build_criterion(flags, self.args))
        model.eval()
        if name == "forward":
            return torch.no_grad()(lambda: model(**self.batch["net_input"])[0])
        steps = self.args.length  # every hypothesis has this length, whatever the model says
        dictionary = task(self.args.vocabulary).target_dictionary
        generator = SequenceGenerator(
            [model], dictionary, beam_size=self.args.beam, max_len_b=steps, min_len=steps
        ).to(self.args.device)
        return lambda: generator.generate([model], self.sample)

    def training_step(self, model: nn.Module, criterion: nn.Module) -> Callable[[], None]:
        """One update of the loss's mean over the tokens."""
        model.train()
        criterion.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)

        def step() -> None:
            loss, sample_size, _ = criterion(model, self.batch)
            (loss / sample_size).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step


def matmul_work(flags: str, phase: str, args: argparse.Namespace) -> int:
    """Floating-point operations in the matrix products of a phase, for one sentence.

    What a machine that is bound by arithmetic needs at least, whoever writes the program.
    """
    one = copy.copy(args)
    one.tokens, one.sentences = args.length, 1
    run = Workload(one).phase(phase, build(flags, one), flags)
    with FlopCounterMode(display=False, custom_mapping=CPU_KERNELS) as counter:
        run()
    return counter.get_total_flops()
