"""Switches: options of the command line that say what they allow and need.

A switch is a field of a dataclass of fairseq, declared by :func:`switch`. Its help text, its checks
and the tests' tables come from the declaration. What excludes it is a row of a table
(:data:`Exclusion`), and what depends on the sizes of a model in :mod:`capsnmt.models.validation`.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any, Dict, FrozenSet, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

from fairseq.utils import safe_getattr

from capsnmt.cli import ConfigurationError

Values = Mapping[str, Sequence[Any]]
"""Options and the values that each may have; of a comma-separated list, one word.

No values: all that switch something on.
"""

Exclusion = Tuple[Sequence[Values], Sequence[str], str]
"""Settings of switches, options that each of them excludes, and why.

A refusal names the first switch of a setting. Options are ours or fairseq's.
"""

OFF = (None, False, 0, "", "none", "all", "agreement")
"""Values that switch nothing on."""

TYPES: Dict[type, Tuple[str, Sequence[type]]] = {
    bool: ("true or false", [bool]),
    int: ("a whole number", [int]),
    float: ("a number", [int, float]),
}
"""Of a default's type: what it is called, and the types of its values (True is no number)."""


@dataclass(frozen=True)
class Switch:
    """What a switch allows and needs.

    Attributes:
        default: always allowed; of a mechanism, with it the model is fairseq's Transformer.
        choices: the values that it may have; none: any of its type.
        words: the words of which it is a comma-separated list.
        least: the smallest number that it may be.
        most: the largest.
        note: what to know about the bounds.
        needs: it has an effect only if all options of one of these have one of these values.
        of_decoder: without a decoder it has no effect.
    """

    default: Any
    choices: Sequence[str] = ()
    words: Sequence[str] = ()
    least: float = -math.inf
    most: float = math.inf
    note: str = ""
    needs: Sequence[Values] = ()
    of_decoder: bool = False


def switch(default: Any, help: str, **declared: Any) -> Any:
    """Declare a switch as a field of a dataclass.

    In the help ``{}`` stands for the choices or words; all else is an attribute of :class:`Switch`.
    """
    own = Switch(default, **declared)
    text = help.format(", ".join(own.choices or own.words))
    if own.least > -math.inf:
        text += f"; {_bounds(own)}"
    if own.needs:
        text += "; needs " + ", or ".join(_spelled_needs(values) for values in own.needs)
    return field(default=default, metadata={"help": text, "switch": own})


def _bounds(own: Switch) -> str:
    bounds = f"{own.least} or more" if own.most == math.inf else f"{own.least} to {own.most}"
    return f"{bounds} ({own.note})" if own.note else bounds


def _spelled_needs(values: Values) -> str:
    return " and ".join(
        f"no {flag(name)}"
        if allowed == (None,)
        else f"{flag(name)} {'|'.join(map(str, allowed))}".strip()
        for name, allowed in values.items()
    )


def flag(name: str) -> str:
    """Return the command-line flag of an option.

    >>> flag("head_capsules")
    '--head-capsules'
    """
    return "--" + name.replace("_", "-")


def spelled(args: Any, name: str) -> str:
    """Return an option with its value, as on the command line."""
    value = safe_getattr(args, name)
    if isinstance(value, list):  # fairseq has parsed it
        value = ",".join(map(str, value))
    return flag(name) if value is True else f"{flag(name)} {value}"


def words_of(value: Any) -> FrozenSet[Any]:
    """Return the words of a comma-separated list; any other value is its only word.

    >>> sorted(words_of("b, a"))
    ['a', 'b']
    """
    if not isinstance(value, str):
        return frozenset([value])
    return frozenset(part.strip() for part in value.split(","))


def declared(*groups: Any) -> Dict[str, Switch]:
    """Return the switches of dataclasses by name."""
    return {
        option.name: option.metadata["switch"]
        for group in groups
        for option in fields(group)
        if "switch" in option.metadata
    }


def defaults_of(*groups: Any) -> Dict[str, Any]:
    """Return the switches of dataclasses with their defaults."""
    return {name: each.default for name, each in declared(*groups).items()}


def check_values(args: Any, *groups: Any) -> None:
    """Raise unless every switch has a value that it may have."""
    for name, each in declared(*groups).items():
        value = safe_getattr(args, name)
        allowed, kind = "", type(each.default)
        if kind in TYPES and type(value) not in TYPES[kind][1]:  # 3.0 is equal to 3
            allowed = f"give {TYPES[kind][0]}"
        elif value == each.default:
            continue
        elif each.choices and value not in each.choices:
            allowed = f"choose from {', '.join(each.choices)}"
        elif each.words:
            text = isinstance(value, str)
            unknown = sorted(words_of(value) - set(each.words)) if text else [value]
            value = unknown[0] if unknown else value
            allowed = f"choose one or more of {', '.join(each.words)}" if unknown else ""
        elif each.least > -math.inf:
            within = math.isfinite(value) and each.least <= value <= each.most
            allowed = "" if within else f"give {_bounds(each)}"
        if allowed:
            raise ConfigurationError(f"{flag(name)} is {value!r}; {allowed}")


def idle_switches(args: Any, *groups: Any) -> Iterator[Tuple[str, str]]:
    """Yield each switch that is set and has no effect given the others, with the reason."""
    for name, each in declared(*groups).items():
        lacks = [_lacking(args, values) for values in each.needs]
        if lacks and all(lacks) and safe_getattr(args, name) != each.default:
            reasons = [f"{flag(lack)} is {safe_getattr(args, lack)}" for lack in lacks if lack]
            yield name, ", ".join(reasons)


def changed_effects(before: Any, now: Any, *groups: Any) -> Iterator[str]:
    """Yield each switch that had an effect in settings ``before``, and has another value ``now``.

    One that had none is new, such as that of a mechanism for a model that was trained without it.
    """
    for name, each in declared(*groups).items():
        value = safe_getattr(before, name)
        had = any(_lacking(before, values) is None for values in each.needs)
        if not each.needs:
            had = value != each.default
        if had and value is not None and value != safe_getattr(now, name):
            yield name


def _lacking(args: Any, values: Values) -> Optional[str]:
    """Return the first option that has none of its values."""
    for name, allowed in values.items():
        value = safe_getattr(args, name)
        if not (words_of(value) & set(allowed) if allowed else value not in OFF):
            return name
    return None


def refuse_idle(args: Any, name: str, reason: str) -> None:
    """Refuse a switch that is set and has no effect."""
    raise ConfigurationError(
        f"{spelled(args, name)} has no effect because {reason}; drop it or change that"
    )


def check(args: Any, *groups: Any) -> None:
    """Raise unless all switches have values that they may have, and an effect if they are set."""
    check_values(args, *groups)
    for name, reason in idle_switches(args, *groups):
        refuse_idle(args, name, reason)


def switched_on(args: Any, settings: Iterable[Values]) -> Sequence[str]:
    """Return the first switch of each setting that is given."""
    return [next(iter(each)) for each in settings if _lacking(args, each) is None]


def refuse_together(args: Any, exclusions: Iterable[Exclusion]) -> None:
    """Raise if a setting and an option that it excludes are both given."""
    for settings, options, reason in exclusions:
        given = switched_on(args, settings)
        excluded = [option for option in options if safe_getattr(args, option) not in OFF]
        if given and excluded:
            both = " and ".join(spelled(args, name) for name in (given[0], excluded[0]))
            raise ConfigurationError(f"{both}: {reason}; drop one of them")
