"""Read settings from YAML files, and check every key and value.

Configurations of experiments and recipes of corpora share this. An error is one line that names the
origin (a file or a flag), the dotted key, the value and what is allowed.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Hashable,
    List,
    Mapping,
    NoReturn,
    Sequence,
    Type,
    TypeVar,
    Union,
)

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from capsnmt.cli import SHOWN, ConfigurationError, shown

ENTRIES = re.compile(r"Mapping\[str, (\w+)\]")  # the annotation of a section with free keys
# What YAML 1.1 reads as octal or in base 60: 010 as 8, 1:30 as 90.
OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-9_]+)+(\.[0-9_]*)?)")
MAX_BYTES = 1 << 20
MAX_DEPTH = 50  # of lists and mappings in one another; the deepest file of this project has 5
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """The values that a key may take: their description and a test."""

    allowed: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Free:
    """A section with free keys; their values are of one kind, except the ``known`` ones."""

    kind: Union[Kind, Mapping[str, Kind]]
    known: Mapping[str, Kind] = field(default_factory=dict)


Node = Union[Kind, Free, Mapping[str, Any]]


def one_of(*values: str) -> Kind:
    """Return the kind of a key with a few allowed values."""
    return Kind(" or ".join(values), lambda value: value in values)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_int(value)


TEXT = Kind("a text", lambda value: isinstance(value, str))
INTEGER = Kind("a whole number", _is_int)
COUNT = Kind("a whole number, 1 or more", lambda value: _is_int(value) and value > 0)
NUMBER = Kind("a number", _is_number)
POSITIVE = Kind("a number above 0", lambda value: _is_number(value) and value > 0)
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
FLAG = Kind("a text, a number, true or false", lambda value: isinstance(value, (str, int, float)))
LIST = Kind("a list", lambda value: isinstance(value, list))
SECTION = Kind("a mapping", lambda value: isinstance(value, dict))
ANY = Kind("anything", lambda value: True)

# The kinds of a dataclass's fields, by the beginning of their annotations.
FIELDS = {
    "Mapping": SECTION,
    "tuple": LIST,
    "str": TEXT,
    "bool": SWITCH,
    "int": INTEGER,
    "float": NUMBER,
}


def check(schema: Mapping[str, Any], path: Sequence[str], value: Any, origin: str) -> None:
    """Raise unless ``value`` is allowed at ``path``; ``None``, which unsets a key, always is.

    Args:
        schema: key -> `Kind`, `Free`, or the schema of a section.
        path: the parts of the dotted key.
        value: its value.
        origin: the file or flag that sets it.

    Raises:
        ConfigurationError: the key is unknown or the value is not of its kind.
    """
    node: Node = schema
    for depth, part in enumerate(path):
        section = ".".join(path[:depth])
        if isinstance(node, Kind):
            raise ConfigurationError(
                f"{origin}: {'.'.join(path)}: {section} takes {node.allowed}, it has no keys"
            )
        if isinstance(node, Free):
            node = node.known.get(part, node.kind)
            continue
        if part not in node:
            raise _unknown(".".join(path), section or "the file", node, origin)
        node = node[part]
    if value is not None:
        _check_value(node if isinstance(node, Kind) else SECTION, ".".join(path), value, origin)


def build(cls: Type[T], values: Any, origin: str, section: str = "", **fixed: Any) -> T:
    """Return an instance of a dataclass, made of a mapping whose keys and values are checked.

    Args:
        cls: the dataclass; its fields are the allowed keys.
        values: the mapping.
        origin: the file that it comes from.
        section: its dotted key in that file; empty for the file itself.
        **fixed: fields that the mapping may not set.

    Raises:
        ConfigurationError: a key is unknown or missing, or a value is not of its kind.
    """
    prefix = f"{section}." if section else ""
    place = section or "the file"
    _check_value(SECTION, place, values, origin)
    every = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]
    known = {name: item for name, item in every.items() if name not in fixed}
    for name in values:
        if name not in known:
            raise _unknown(f"{prefix}{name}", place, known, origin)
    for name, item in known.items():
        if name in values:
            # The annotations are text, because nothing here evaluates them.
            kind = FIELDS.get(str(item.type).split("[")[0], ANY)
            _check_value(kind, f"{prefix}{name}", values[name], origin)
            entries = ENTRIES.fullmatch(str(item.type))
            for key, value in values[name].items() if entries else ():
                kind = FIELDS.get(entries[1], ANY)  # type: ignore[index]
                _check_value(kind, f"{prefix}{name}.{key}", value, origin)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigurationError(
                f"{origin}: {prefix}{name} is not set: {place} may have {', '.join(known)}"
            )
    return cls(**values, **fixed)


def _unknown(key: str, section: str, known: Mapping[str, Any], origin: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin}: {key[:SHOWN]}: unknown key: {section} may have {', '.join(known)}"
    )


def _check_value(kind: Kind, key: str, value: Any, origin: str) -> None:
    if not kind.fits(value):
        hint = " in quotes: YAML reads yes, no, on and off as true or false"
        raise ConfigurationError(
            f"{origin}: {key}: {shown(value)}: give {kind.allowed}"
            f"{hint if isinstance(value, bool) and kind is TEXT else ''}"
        )


class _Strict:
    """Refuse repeated keys, keys that are not text or lack a value, deep nesting and aliases.

    A mixin of loaders. Of a repeated key YAML takes the last value, so a setting would be lost
    silently. It reads the key ``no`` as false, and no value as ``null``. Aliases let a short text
    expand to a huge value. **D**: a number in another base is a text, which keys that take numbers
    refuse, and in which fairseq reads the decimal number.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        loader: Any = super()
        if loader.check_event(yaml.AliasEvent):
            self._refuse("aliases (*name) are not supported: write the value out")
        if self.depth >= MAX_DEPTH:
            self._refuse(f"nested too deeply: at most {MAX_DEPTH} levels")
        self.depth += 1
        node = loader.compose_node(parent, index)
        self.depth -= 1
        return node

    def _refuse(self, problem: str) -> NoReturn:
        loader: Any = self
        mark = loader.peek_event().start_mark
        raise yaml.constructor.ConstructorError(problem=problem, problem_mark=mark)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        loader: Any = super()
        if kind is yaml.ScalarNode and implicit[0] and OTHER_BASE.fullmatch(value):
            return "tag:yaml.org,2002:str"
        return loader.resolve(kind, value, implicit)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Hashable, Any]:
        loader: Any = super()
        for key, value in node.value:
            if value.tag == "tag:yaml.org,2002:null" and not value.value:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value} has no value: write null to unset it",
                    problem_mark=value.start_mark,
                )
        keys = [loader.construct_object(key) for key, _ in node.value]
        other = [key for key in keys if not isinstance(key, str)]
        if other:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {shown(other[0])} is not text: put it in quotes",
                problem_mark=node.start_mark,
            )
        repeated = [key for number, key in enumerate(keys) if key in keys[:number]]
        if repeated:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {repeated[0][:SHOWN]} is repeated", problem_mark=node.start_mark
            )
        return loader.construct_mapping(node, deep)


class PythonLoader(_Strict, yaml.SafeLoader):
    """The loader without libyaml."""


LOADERS: List[Any] = [PythonLoader]
if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class LibyamlLoader(_Strict, Composer, CParser, SafeConstructor, Resolver):
        """The loader with libyaml's parser, six times faster.

        yaml.CSafeLoader also composes nodes in C, out of reach of the check for aliases.
        """

        def __init__(self, stream: Any) -> None:
            CParser.__init__(self, stream)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    LOADERS.insert(0, LibyamlLoader)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: it is not valid YAML, repeats a key, has a key that is not text or an alias,
            or is nested too deeply.
    """
    try:
        return yaml.load(text, Loader=LOADERS[0])
    except RecursionError:  # raised by a parser before the loader counts the levels
        raise yaml.YAMLError("nested too deeply") from None
    except ValueError as error:  # a date or a number that YAML's patterns fit but Python refuses
        raise yaml.YAMLError(str(error)) from None


def read_yaml(path: Path) -> Dict[str, Any]:
    """Read a YAML file that holds a mapping; an empty file is an empty mapping.

    Raises:
        ConfigurationError: it cannot be read, is not valid, too large, or not a mapping.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_BYTES:,} bytes: give a smaller file")
        settings = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigurationError(f"{path}:{line} not valid YAML: {problem[:SHOWN]}") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{path}: a mapping of keys to values is needed")
    return settings
