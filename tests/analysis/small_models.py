"""Small models as checkpoints with data, and what they compute of each sentence alone."""

import functools
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

import torch
from fairseq.data import indexed_dataset
from fairseq.dataclass.configs import DatasetConfig
from torch import Tensor

from capsnmt.analysis.analyse import Findings, analyse
from capsnmt.analysis.model import NamedCheckpoint, Scope
from capsnmt.checkpoints.load import save_checkpoint
from capsnmt.modules.attention import Attention
from capsnmt.routing.recording import record_routing
from tests.support import SMALL, TASK, build, parse, randomise_special_starts, sentences, shifted

Flags = Tuple[str, ...]
LENGTHS = (5, 2, 7, 4, 3)
SCOPE = Scope(
    subset="test",
    sentences=len(LENGTHS),
    seed=1,
    max_tokens=16,  # four batches, which need padding
    browser_sentences=len(LENGTHS),
    ablation_sentences=len(LENGTHS),
    ablation_translations=0,
    device="cpu",
)


def corpus(seed: int = 0) -> Tuple[List[Tensor], List[Tensor]]:
    return sentences(*LENGTHS, seed=seed), sentences(*LENGTHS[::-1], seed=seed + 1)


def precise(arch: str, *flags: str) -> Any:
    """Return a small model in fp64, whose parameters are random numbers of fp32, as in a file."""
    return randomise_special_starts(build(arch, *flags)).double()


def write_data(folder: Path, seed: int = 0, symbols: Sequence[str] = (), before: int = 0) -> Path:
    """Binarise the corpus; ``symbols`` take the place of the subwords ``w0``, ``w1``, ...

    ``before`` is the number of a subword that is put before each of them.
    """
    folder.mkdir(parents=True)
    names = TASK.source_dictionary.symbols[TASK.source_dictionary.nspecial :]
    names = [*symbols, *names[len(symbols) :]]
    for language, lines in zip(("en", "de"), corpus(seed)):
        text = "".join(f"{name} 1\n" for name in names)
        (folder / f"dict.{language}.txt").write_text(text, "utf-8")
        path = str(folder / f"test.en-de.{language}")
        builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", len(TASK.source_dictionary))
        for line in lines:
            words = [torch.tensor([before] * (before > 0) + [word]) for word in line[:-1]]
            builder.add_item(torch.cat([*words, line[-1:]]))
        builder.finalize(f"{path}.idx")
    return folder


def write_checkpoint(
    model: Any, path: Path, data: Path, flags: Flags, left_pad: bool = True
) -> NamedCheckpoint:
    """Write what is read of fairseq-train's; sources are padded on the left by default."""
    args = parse(flags[0], *SMALL, *flags[1:])
    args._name = args.arch
    task = {"_name": "translation", "source_lang": "en", "target_lang": "de", "data": str(data)}
    state = {
        "args": None,
        "cfg": {
            "dataset": asdict(DatasetConfig()),
            "task": {**task, "left_pad_source": left_pad},
            "model": args,
        },
        "model": {name: value.float() for name, value in model.state_dict().items()},
        "optimizer_history": [{"optimizer_name": "none", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    save_checkpoint(state, path)
    return NamedCheckpoint(path.stem, path, data)


def analysed(
    model: Any,
    folder: Path,
    flags: Flags,
    only: Sequence[str],
    left_pad: bool = True,
    scope: Scope = SCOPE,
) -> Findings:
    """Analyse a model through a checkpoint in an empty folder."""
    data = write_data(folder / "data")
    checkpoint = write_checkpoint(model, folder / "it.pt", data, flags, left_pad)
    return analyse([checkpoint], scope, only)


def rows_of(findings: Findings, name: str) -> List[Sequence[Any]]:
    return findings.of[name]["it"].rows()


@torch.no_grad()
def logits_of_each_sentence(model: Any) -> Iterable[Tensor]:
    """Yield the logits ``[T, V]`` of each sentence, computed alone and without padding."""
    for source, target in zip(*corpus()):
        yield model(source[None], torch.tensor([len(source)]), shifted(target[None]))[0][0]


@torch.no_grad()
def states_of_each_sentence(model: Any, stack: str) -> List[List[Tensor]]:
    """Return H^0..H^L ``[tokens, d]`` of each sentence, computed alone and without padding."""
    found = []
    for source, target in zip(*corpus()):
        encoded = model.encoder(
            source[None], src_lengths=torch.tensor([len(source)]), return_all_hiddens=True
        )
        states = encoded["encoder_states"]
        if stack == "encoder-output":
            states = encoded["encoder_out"][0].split(model.encoder.embed_tokens.embedding_dim, -1)
        if stack == "decoder":
            states = model.decoder(shifted(target[None]), encoder_out=encoded)[1]["inner_states"]
        found.append([state[:, 0] for state in states])
    return found


def of_each_sentence(model: Any, recorder: Callable[[], Any] = record_routing) -> Iterable[Any]:
    """Yield what is recorded of each sentence alone; by default the calls of routing operators."""
    logits = iter(logits_of_each_sentence(model))
    for _ in LENGTHS:
        with recorder() as record:
            next(logits)
        yield record


def weights_of_each_sentence(model: Any) -> Iterable[Dict[Tuple[str, int], Tensor]]:
    """Yield the weights ``[H, L, K]`` that each attention returns, by role and layer."""
    found: Dict[Tuple[str, int], Tensor] = {}
    attentions = [module for module in model.modules() if getattr(module, "role", "")]

    def asking(attention: Attention, *args: Any, **kwargs: Any) -> Any:
        kwargs.update(need_weights=True, need_head_weights=True)
        output, weights = type(attention).forward(attention, *args, **kwargs)
        layer = 1 + sum(role == attention.role for role, _ in found)
        found[attention.role, layer] = weights[:, 0]
        return output, weights

    logits = iter(logits_of_each_sentence(model))
    for _ in LENGTHS:
        found.clear()
        for attention in attentions:
            attention.forward = functools.partial(asking, attention)
        next(logits)
        for attention in attentions:
            del attention.forward
        yield dict(found)


def losses_of_each_sentence(model: Any) -> List[List[float]]:
    """Return the cross-entropy of each token of each sentence, computed alone."""
    adaptive = model.decoder.adaptive_softmax
    of_all = Tensor.log_softmax if adaptive is None else lambda x, _: adaptive.get_log_prob(x, None)
    return [
        (-of_all(output[None], -1)[0].gather(1, target[:, None])).flatten().tolist()
        for output, target in zip(logits_of_each_sentence(model), corpus()[1])
    ]


def loss_per_token(model: Any) -> float:
    """Return the cross-entropy of the corpus per target token, in nats."""
    return sum(map(sum, losses_of_each_sentence(model))) / sum(map(len, corpus()[1]))
