"""Typed records: read from YAML and JSON files, checked against a class, written as JSON.

Settings, recipes, manifests and the records of runs are subclasses of `Record`; what a key may hold
stands in its annotation, and msgspec checks it. An error is one line with the file, the dotted key,
the value and what is allowed.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Dict, Hashable, List, Type, TypeVar, Union, get_args, get_origin

import msgspec
import yaml
from msgspec import structs

from capsnmt.cli import ConfigurationError, shown
from capsnmt.files import atomic_writer

T = TypeVar("T")
# What YAML 1.1 reads as octal or in base 60: 010 as 8, 1:30 as 90.
OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-9_]+)+(\.[0-9_]*)?)")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record with the fields of a subclass; a key that is none of them is an error."""


class RecordError(ConfigurationError):
    """A file or a value that is no record of its class."""


class _Loader(yaml.SafeLoader):
    """A loader that refuses repeated keys, of which YAML takes the last, and keys without value.

    **D**: a number in another base is a text, which keys that take numbers refuse, and in which
    fairseq reads the decimal number.
    """

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0] and OTHER_BASE.fullmatch(value):
            return "tag:yaml.org,2002:str"
        return super().resolve(kind, value, implicit)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Hashable, Any]:
        seen: List[Any] = []
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name, problem = self.construct_object(key), ""
            if name in seen:
                problem = "is repeated"
            elif not isinstance(name, str):
                problem = "is not text: put it in quotes"
            elif value.tag == "tag:yaml.org,2002:null" and not value.value:
                problem = "has no value: write null to unset it"
            if problem:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {shown(name)} {problem}", problem_mark=key.start_mark
                )
            seen.append(name)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, source: object) -> Any:
    """Return the value of a YAML text, such as the value of a flag; ``source`` is for errors."""
    try:
        value = yaml.load(text, Loader=_Loader)
        json.dumps(value, default=str)  # an alias may contain itself
        return value
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # the second: month 13
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise RecordError(f"{source}:{line} not valid YAML: {problem}") from None


def load(path: Path) -> Any:
    """Return the content of a YAML or JSON file; of an empty YAML file, an empty mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be read: {error.strerror}; check it, or restore it"
        ) from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 at byte {error.start}: convert the file") from None
    if path.suffix != ".json":
        value = parse_yaml(text, path)
        return {} if value is None else value
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not JSON ({error}): delete or restore it") from None


def read(path: Path, kind: Type[T]) -> T:
    """Read a record from a YAML or JSON file."""
    return build(load(path), kind, path)


def build(value: Any, kind: Type[T], source: object) -> T:
    """Return a record, made of a value of mappings and lists; ``source`` is for errors.

    >>> class Batch(Record):
    ...     tokens: int
    >>> build({"tokens": "x"}, Batch, "a.yaml")
    Traceback (most recent call last):
    capsnmt.records.RecordError: a.yaml: tokens is 'x'; expected `int`, got `str`
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except UnicodeEncodeError as error:  # half of a surrogate pair, as an escape
        raise RecordError(
            f"{source}: the key {shown(error.object)} is not text: correct its escape"
        ) from None
    except msgspec.ValidationError as error:
        raise RecordError(f"{source}: {_explain(error, value, kind)}") from None


def plain(record: Any) -> Any:
    """Return a record as mappings, lists, texts and numbers, as they are read from JSON."""
    return json.loads(json.dumps(msgspec.to_builtins(record, enc_hook=str)))


def as_number(value: Any) -> Any:
    """Return the number that a value is; of 5e-3, YAML makes a text.

    >>> as_number("5e-3") == as_number(0.005), as_number("adam"), as_number(True)
    (True, 'adam', True)
    """
    try:
        return value if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError, ValueError):
        return value


def write(path: Path, record: Any) -> None:
    """Write a record as indented JSON, completely or not at all."""
    text = json.dumps(plain(record), indent=2, ensure_ascii=False)
    with atomic_writer(path) as file:
        # bytes of a file's name that are not UTF-8 become JSON's escapes
        file.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def _explain(error: msgspec.ValidationError, value: Any, kind: Any) -> str:
    """Return msgspec's sentence with the dotted key, the value there, and its choices."""
    problem, _, path = str(error).partition(" - at ")
    problem = problem[0].lower() + problem[1:]
    _, of_key, path = path.replace("`", "").rpartition("key in ")  # no value, but a mapping's key
    keys: List[str] = []
    for key in re.findall(r"[^.\[\]$]+|\.\.\.", path):
        kind = _inner(kind, key)
        if key == "...":  # msgspec does not say which entry of a mapping it is
            key = next(name for name, item in value.items() if not _fits(item, kind))
        value = value[int(key)] if isinstance(value, (list, tuple)) else value[key]
        keys.append(key)
    name, kind = ".".join(keys) or "the file", _plain_type(kind)
    where = f"{name}: " if keys else ""  # the caller has said which file, or flag
    if of_key:
        wrong = next(key for key in value if not _fits(key, get_args(kind)[0]))
        return f"{name}: the key is {shown(wrong)}; {problem}"
    if "unknown field" in problem:
        known = ", ".join(field.encode_name for field in structs.fields(kind))
        return f"{where}{problem}; choose from {known}"
    if "missing" in problem:
        return f"{where}{problem}"
    if "enum" in problem:
        problem = f"choose from {', '.join(map(str, get_args(kind)))}"
    elif isinstance(value, bool) and "`str" in problem:
        problem += "; YAML reads yes, no, on and off as true or false, so quote the text"
    return f"{name} is {shown(value)}; {problem}"


def _plain_type(kind: Any) -> Any:
    """Return a type without ``Optional`` and ``Annotated``; of several, the one with entries."""
    if get_origin(kind) is Annotated:
        return _plain_type(get_args(kind)[0])
    if get_origin(kind) is not Union:
        return kind
    kinds = [_plain_type(each) for each in get_args(kind) if each is not type(None)]
    nested = [each for each in kinds if hasattr(each, "__struct_fields__") or get_args(each)]
    return (nested or kinds)[0]


def _inner(kind: Any, key: str) -> Any:
    """Return the type of an entry of a mapping, a list or a record."""
    kind = _plain_type(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return next(each.type for each in structs.fields(kind) if each.encode_name == key)
    entries = [each for each in get_args(kind) if each is not Ellipsis]
    return entries[-1] if entries else Any


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError:
        return False
    return True
