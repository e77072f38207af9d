"""Every system of the registry in double precision, with the weights of the formula."""

from typing import Any, Dict, Iterable, List

import fairseq.criterions
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from tests import support
from tests.criterions.samples import make_sample
from tests.frozen.kit import World, digest, frozen, set_weights, short
from tests.sentences import systems as classifiers
from tests.support import EVERY_COMMIT, PAD, SYSTEMS, TASK, encoder_input, sentences

SOURCES, TARGETS = sentences(5, 3, 7), sentences(4, 6, 2, seed=1)
LABELS = torch.tensor([0, 3, 4])
# criterion of translation -> three settings of it
CRITERIONS = {
    "label_smoothed_cross_entropy": [
        "",
        "--label-smoothing 0.1",
        "--label-smoothing 0.2 --ignore-prefix-size 1 --report-accuracy",
    ],
    "chunked_label_smoothed_cross_entropy": [
        "",
        "--label-smoothing 0.1 --loss-chunk-tokens 4",
        "--label-smoothing 0.2 --loss-chunk-tokens 0 --report-accuracy",
    ],
    "label_smoothed_cross_entropy_with_disagreement": [
        "--disagreement subspace",
        "--disagreement position,output --disagreement-attention enc-self,dec-self",
        "--disagreement subspace,position,output --label-smoothing 0.1 "
        "--disagreement-attention enc-self,enc-dec,dec-self",
    ],
}


def pair_sample() -> Dict[str, Any]:
    """The same sentences as pairs of one class each."""
    net_input = encoder_input([*SOURCES, *TARGETS])
    return {
        "ntokens": int(net_input["src_lengths"].sum()),
        "nsentences": len(LABELS),
        "target": LABELS,
        "bucket": torch.tensor([0, 1, 3]),
        "net_input": net_input,
    }


def place_of(name: str) -> str:
    """The part of the model that a parameter belongs to: a layer, or what stands beside them."""
    parts = name.split(".")
    return ".".join(parts[:3] if len(parts) > 2 and parts[1] == "layers" else parts[:2])


def described(model: nn.Module, loss: Tensor, each: bool) -> Iterable[str]:
    loss.backward()
    found = dict(model.named_parameters())
    shapes = {name: list(parameter.shape) for name, parameter in found.items()}
    yield f"{len(found)} parameters, names and shapes {digest(shapes)}, loss {short(loss.item())}"
    squares: Dict[str, float] = {}
    for name, parameter in found.items():
        key = f"{name} {shapes[name]}" if each else place_of(name)
        norm = 0.0 if parameter.grad is None else float(parameter.grad.norm())
        squares[key] = squares.get(key, 0.0) + norm**2
    norms = [f"{key} {short(square**0.5)}" for key, square in squares.items()]
    yield from [f"  {norm}" for norm in norms] if each else ["  " + "; ".join(norms)]


def translations(model: nn.Module) -> Iterable[str]:
    """The three best translations of each sentence, with their scores."""
    generator = SequenceGenerator(
        [model], TASK.target_dictionary, beam_size=3, max_len_a=0, max_len_b=6
    )
    for number, found in enumerate(generator.generate([model], make_sample(SOURCES, TARGETS))):
        for each in found:
            tokens = " ".join(map(str, each["tokens"].tolist()))
            yield f"  translation {number}: {short(float(each['score']))} {tokens}"


def translation_systems(names: Iterable[str]) -> str:
    lines: List[str] = []
    for name in names:
        arch, flags = SYSTEMS[name]
        model = set_weights(support.build(arch, *flags).double())
        sample = make_sample(SOURCES, TARGETS)
        logits = model(**sample["net_input"])[0]
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), sample["target"].flatten(), ignore_index=PAD
        )
        lines += [f"== {name}", *described(model, loss, each=not flags), *translations(model)]
    return "\n".join(lines)


def classifying_systems(names: Iterable[str]) -> str:
    lines: List[str] = []
    for name in names:
        model = set_weights(classifiers.build(*classifiers.SENTENCE_SYSTEMS[name]).double())
        logits = model(**pair_sample()["net_input"])
        loss = nn.functional.cross_entropy(logits, LABELS)
        lines += [f"== {name}", *described(model, loss, each=name == "baseline")]
        for row in logits.tolist():
            lines.append("  logits " + " ".join(map(short, row)))
    return "\n".join(lines)


FLOATS = "with given weights, the loss, gradients and translations of"


@frozen(f"{FLOATS} every architecture and some combinations of switches stay", floats=True)
def systems(_: World) -> str:
    return translation_systems(list(SYSTEMS)[:EVERY_COMMIT])


@frozen(f"{FLOATS} every other pair of switches stay", floats=True, nightly=True)
def systems_more(_: World) -> str:
    return translation_systems(list(SYSTEMS)[EVERY_COMMIT:])


@frozen(f"{FLOATS} some classifiers of sentences stay", floats=True)
def classifiers_some(_: World) -> str:
    return classifying_systems(list(classifiers.SENTENCE_SYSTEMS)[:8])


@frozen(f"{FLOATS} every other classifier of sentences stay", floats=True, nightly=True)
def classifiers_more(_: World) -> str:
    return classifying_systems(list(classifiers.SENTENCE_SYSTEMS)[8:])


def logged(criterion: Any, model: nn.Module, sample: Dict[str, Any]) -> str:
    loss, size, output = criterion(model, sample)
    terms = {"objective": loss.item(), "size": size, **output}
    values = {key: torch.as_tensor(value).double().flatten() for key, value in terms.items()}
    return ", ".join(f"{key} {' '.join(map(short, v.tolist()))}" for key, v in values.items())


def terms(systems: Iterable[str]) -> str:
    lines: List[str] = []
    for system in systems:
        arch, switches = SYSTEMS[system]
        lines.append(f"== {system}")
        model = support.build(arch, *switches, "--attention-dropout", "0").double()
        model = set_weights(model).train()
        for name, choices in CRITERIONS.items():
            for flags in choices if not switches else choices[2:] if "disagree" in name else ():
                # as fairseq-train: the criterion sees the task and its own settings
                args = support.parse(arch, "--criterion", name, *flags.split())
                criterion = fairseq.criterions.build_criterion(args, TASK).train()
                found = logged(criterion, model, make_sample(SOURCES, TARGETS))
                lines.append(f"{name} {flags}".replace("--", "").rstrip() + f": {found}")
    return "\n".join(lines)


@frozen("the terms of every criterion stay, for every architecture", floats=True)
def criterions(_: World) -> str:
    return terms(list(SYSTEMS)[:EVERY_COMMIT])


@frozen("the terms of disagreement stay, for every other pair of switches", True, nightly=True)
def criterions_more(_: World) -> str:
    return terms(list(SYSTEMS)[EVERY_COMMIT:])


@frozen("the terms of the criterion of classification stay", floats=True)
def criterion_of_classification(_: World) -> str:
    lines: List[str] = []
    given = ("probing_transformer", *classifiers.SMALL, "--criterion", "sentence_classification")
    terms = "--disagreement subspace,position,output --pooling queries"
    for flags in ("", "--disagreement output", terms):
        args, task = classifiers.parse(*given, *flags.split()), classifiers.make_task()
        model = set_weights(fairseq.models.build_model(args, task).double()).train()
        criterion = fairseq.criterions.build_criterion(args, task).train()
        lines.append(f"{flags}: {logged(criterion, model, pair_sample())}")
    return "\n".join(lines)
