"""What the benchmark measures: models given by their flags, and one batch to put through them."""

import argparse
import dataclasses
import functools
import gc
import itertools
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import fairseq.models
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_INV_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import capsnmt.plugin
from capsnmt.criterions.chunked_cross_entropy import MULTIPLE
from capsnmt.fast.generator import Generator
from capsnmt.models import SIZES, CapsnmtTransformer
from capsnmt.models.layers import FAST_PATH_COPIES
from capsnmt.modules.head_aggregation import HEAD_AGGREGATIONS, HeadRouting
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS, LayerRouting
from scripts.paper_rows import PLAIN, SUFFIXES

PHASES = ("train", "decode")
# torch counts the attention kernels of GPUs only; torch 2.2 has no such kernel on the CPU.
CPU_KERNELS = {
    kernel: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v)
    for kernel in [getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)]
    if kernel
}
# Flags of every system; its own flags take precedence.
SHARED = "--share-all-embeddings --criterion label_smoothed_cross_entropy --label-smoothing 0.1"
# what else fairseq's trainer needs in order to make updates
TRAINER = (
    "--optimizer adam --adam-betas '(0.9,0.98)' --lr-scheduler fixed --clip-norm 1 "
    "--max-tokens 1000000 --no-save --num-workers 0"
)
PRECISIONS = {"fp32": "", "fp16": "--fp16", "amp": "--amp", "bf16": "--autocast bf16"}
"""Precision of a training -> its flags. ``--autocast`` is ours: stock then trains in fp32 on a CPU
and by ``--amp`` on a GPU."""
LENGTHS = (0.75, 1.0, 1.25, 0.875)  # of the sentences of one batch after another, in the mean
FUSED = "--criterion chunked_label_smoothed_cross_entropy --optimizer fused_adam"


@dataclass(frozen=True)
class Setup:
    """The batch, the device and the precision."""

    device: str
    dtype: str  # a key of PRECISIONS
    tokens: int  # of a batch on each side, with padding
    length: int  # tokens of a sentence
    sentences: int  # that are decoded at once
    beam: int  # hypotheses of a sentence
    vocabulary: int  # words of the one dictionary
    seed: int  # of the parameters and of the batch


@functools.lru_cache(maxsize=1)
def task(vocabulary: int) -> TranslationTask:
    """Return a task without data: one dictionary for both sides."""
    dictionary = Dictionary()
    for word in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def systems() -> Dict[str, str]:
    """Return the tiny model of every architecture, and every aggregation, by their flags."""
    plain = f"--arch {PLAIN}_tiny"
    archs = [arch for arch in ARCH_MODEL_INV_REGISTRY[PLAIN] if arch.endswith("_tiny")]
    needed = {
        "attention-residuals": " --encoder-normalize-before --decoder-normalize-before",
        "transparent": " --layer-aggregation-side encoder",
    }
    losses = {
        "disagreement": "--criterion label_smoothed_cross_entropy_with_disagreement "
        "--disagreement subspace,position,output",
        "chunked loss, fused optimizer": FUSED,
    }
    return {
        **{arch: f"--arch {arch}" for arch in archs},
        **{f"heads, {x}": f"{plain} --head-aggregation {x}" for x in HEAD_AGGREGATIONS[1:]},
        **{
            f"layers, {x}": f"{plain} --layer-aggregation {x}{needed.get(x, '')}"
            for x in LAYER_AGGREGATIONS[1:]
        },
        **{name: f"{plain} {flags}" for name, flags in losses.items()},
    }


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
    args = parse(flags)
    if setup.dtype == "bf16" and hasattr(args, "autocast"):  # a switch of our models, not of stock
        args.autocast = "bf16"
    model = fairseq.models.build_model(args, task(setup.vocabulary))
    return model.to(setup.device)


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


def batch_of(length: int, setup: Setup, seed: int, padded: bool = True) -> Dict[str, Any]:
    """Return random sentences as fairseq's data sets make a batch, the longest of ``length``.

    The others have at least 3/4 of it where the batch is ``padded``, else all of it.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (max(1, setup.tokens // length), length)
    words = torch.randint(4, setup.vocabulary, (3, *shape), generator=generator)
    shortest = length * 3 // 4 if padded else length
    lengths = torch.randint(shortest, length + 1, (2, shape[0], 1), generator=generator)
    lengths[:, 0] = length
    pad, place = task(setup.vocabulary).source_dictionary.pad(), torch.arange(length)
    source = words[0].masked_fill(place < length - lengths[0], pad)
    previous, target = words[1:].masked_fill(place >= lengths[1], pad)
    inputs = {"src_tokens": source, "src_lengths": lengths[0, :, 0], "prev_output_tokens": previous}
    count = int((target != pad).sum())
    return {
        **{"id": torch.arange(len(target)), "nsentences": len(target), "ntokens": count},
        **{"net_input": inputs, "target": target},
    }


def trainer_of(model: nn.Module, flags: str, setup: Setup) -> Trainer:
    """Return fairseq's own trainer: its scaler, clipping, master weights and log.

    The flags of the precision are those of the model, which is stock where they name no plugin's.
    """
    own = PRECISIONS[setup.dtype]
    if setup.dtype == "bf16" and not isinstance(model, CapsnmtTransformer):
        own = PRECISIONS["fp32" if setup.device == "cpu" else "amp"]
    cpu = "--cpu" if setup.device == "cpu" else ""
    args = parse(f"{TRAINER} --lr 0.0001 --seed {setup.seed} {flags} {own} {cpu}")
    cfg = convert_namespace_to_omegaconf(args)
    whole = task(setup.vocabulary)
    trainer = Trainer(cfg, whole, model, whole.build_criterion(cfg.criterion))
    trainer.cuda_env = None  # with it fairseq forgets the peak of a GPU's memory after every update
    return trainer


def forget_peak() -> None:
    """Free the memory that nothing uses, as of trainers in cycles, and count the peak anew."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


class Workload:
    """Some batches, and what each phase does with them."""

    def __init__(self, setup: Setup, padded: bool = True) -> None:
        self.setup = setup
        parts = LENGTHS if padded else (1.0,)
        self.batches = [
            batch_of(max(2, round(setup.length * part)), setup, setup.seed + number, padded)
            for number, part in enumerate(parts)
        ]
        net_input = batch_of(setup.length, setup, setup.seed, padded=False)["net_input"]
        self.sample = {
            "net_input": {
                name: net_input[name][: setup.sentences].to(setup.device)
                for name in ("src_tokens", "src_lengths")
            }
        }

    def tokens(self, phase: str) -> float:
        """Return a phase's mean tokens: of the source decoded, or, as fairseq's, of the target."""
        if phase == "decode":
            return int(self.sample["net_input"]["src_lengths"].sum())
        return sum(each["ntokens"] for each in self.batches) / len(self.batches)

    def phase(
        self, name: str, model: nn.Module, flags: str, prepared: bool = True
    ) -> Callable[[], Any]:
        """Return a function that runs one of :data:`PHASES` once, with the loss of the flags.

        A model that is ``prepared`` decodes as with fairseq-generate.
        """
        if name == "train":
            return self.training_step(trainer_of(model, flags, self.setup))
        model.eval()
        if self.setup.dtype == "fp16":
            model.half()
        steps = self.setup.length  # the length of every hypothesis, independent of the model
        dictionary = task(self.setup.vocabulary).target_dictionary
        if prepared:
            model.make_generation_fast_(need_attn=False)
        kind = Generator if isinstance(model, CapsnmtTransformer) else SequenceGenerator
        settings = {"beam_size": self.setup.beam, "max_len_b": steps, "min_len": steps}
        generator = kind([model], dictionary, **settings)
        generator.to(self.setup.device)
        return lambda: generator.generate([model], self.sample)

    def training_step(self, trainer: Trainer) -> Callable[[], Optional[Dict[str, Any]]]:
        """Return a function that makes one update by the next batch, and returns fairseq's log.

        It returns None where the scaler of fp16 skips the update.
        """
        batches = itertools.cycle(self.batches)
        return lambda: trainer.train_step([next(batches)])


def matmul_work(flags: str, phase: str, setup: Setup) -> int:
    """Count the floating-point operations in a phase's matrix products, for the same few tokens.

    A machine that is bound by arithmetic needs at least these, whatever the implementation. They
    are counted without ``--compile``, with eager routing and before a model is prepared for
    decoding: no counter sees into a compiled graph or into kernels that are not torch's.
    """
    flags = shlex.join(word for word in shlex.split(flags) if word != "--compile")
    # a batch that the loss in chunks need not fill up
    tokens = math.lcm(setup.length, MULTIPLE)
    few = dataclasses.replace(setup, dtype="fp32", tokens=tokens, sentences=1)
    model = build(flags, few)
    for module in model.modules():
        if hasattr(module, "backend"):
            module.backend = "eager"
    run = Workload(few, padded=False).phase(phase, model, flags, prepared=False)
    with FlopCounterMode(display=False, custom_mapping=CPU_KERNELS) as counter:
        run()
    return counter.get_total_flops()
