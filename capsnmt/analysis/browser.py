"""The data of the browser of sentences: what the page holds, within a limit of its size."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Mapping

from capsnmt.analysis.plots import PANELS
from capsnmt.analysis.sentences import COEFFICIENT_UNIT, WEIGHT_UNIT, Coupling, Sentence, Sentences
from capsnmt.models.config import ATTENTIONS

LARGEST = 20_000_000  # bytes; a browser opens such a page without delay


def browser_data(systems: Mapping[str, Sentences], largest: int = LARGEST) -> str:
    """Return the browser's data as JSON that is safe inside a ``script`` element.

    Maps are nested lists of whole units; the zeros at the end of a row are left out.

    Args:
        systems: the systems, in the order of the page.
        largest: bytes that the sentences may take; further sentences are left out, and a warning
            names them.
    """
    numbers = sorted({number for analysis in systems.values() for number in analysis.kept})
    shown: List[str] = []
    size = 0
    for number in numbers:
        of = {
            name: _sentence(analysis.kept[number])
            for name, analysis in systems.items()
            if number in analysis.kept
        }
        encoded = _encode({"number": number, "of": of})
        size += len(encoded.encode("utf-8", "replace"))
        if size > largest:
            print(
                f"warning: the browser of sentences shows {len(shown)} of {len(numbers)} "
                f"sentences: more would take over {largest / 1e6:g} MB; the CSV files hold all",
                file=sys.stderr,
            )
            break
        shown.append(encoded)
    head = {
        "systems": list(systems),
        "attentions": [[attention, PANELS[attention]] for attention in ATTENTIONS],
        "weightUnit": WEIGHT_UNIT,
        "coefficientUnit": COEFFICIENT_UNIT,
        "leftOut": len(numbers) - len(shown),
    }
    return f'{_encode(head)[:-1]},"sentences":[{",".join(shown)}]}}'


def _encode(value: Any) -> str:
    """Return a value as JSON without ``<``, which could end the ``script`` element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _sentence(sentence: Sentence) -> Dict[str, Any]:
    layers: Dict[str, List[Any]] = {}
    for attention, _ in sentence.attention:
        layers.setdefault(attention, [])
    for (attention, _), weights in sorted(sentence.attention.items()):
        layers[attention].append(_trimmed(weights.tolist()))
    return {
        "source": sentence.source,
        "inputs": sentence.inputs,
        "target": sentence.target,
        # a loss that is not a number is absent
        "loss": [value if abs(value) < float("inf") else None for value in sentence.loss],
        "attention": layers,
        "couplings": [_coupling(each) for each in sentence.couplings],
    }


def _coupling(coupling: Coupling) -> Dict[str, Any]:
    return {
        "place": coupling.place,
        "layer": coupling.layer,
        "group": coupling.group,
        "choices": coupling.choices,
        "columns": coupling.maps.shape[-1],
        "capsules": coupling.capsules,
        "maps": _trimmed(coupling.maps.tolist()),
    }


def _trimmed(maps: List[Any]) -> List[Any]:
    """Return nested lists without the zeros at the end of the innermost ones."""
    if maps and isinstance(maps[0], list):
        return [_trimmed(each) for each in maps]
    length = len(maps)
    while length and not maps[length - 1]:
        length -= 1
    return maps[:length]
