"""How an argument, a file or the environment is spoilt; every choice comes from one seed."""

import json
import random
from pathlib import Path
from typing import Any, Callable, Dict, List

import yaml

ODD_TEXTS = (
    *("", " ", "-", "--", "-1", "0", "1e999", "nan", "0x10", "99999999999999999999", "1;2", "a b"),
    *("../../x", "/", ".", "..", "/dev/null", "~", "*", "$(touch x)", "`touch x`", "a\nb", "a\0b"),
    *("ä漢字🙂", "\ufeff1", "\u202e", "[[[[", "{a: 1}", "!!python/object:os.system x", "&a *a"),
    *("%s%n", "None", "true", "=", "a=", "=b", "a=b=c", ",", "1,,2", "x" * 5000, "\udc80"),
)
ODD_VALUES: Any = (
    *(None, True, -1, 0, 10**30, 1e308, float("nan"), float("inf"), "", "x" * 5000, [], {}, [[[]]]),
    *({"a": {"b": None}}, "../../x", "a\nb", "\x00"),
)


def spoil_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return a file's content with one fault."""
    at = chance.randrange(len(content) + 1)
    lines = content.split(b"\n")
    line = chance.randrange(len(lines))
    faults: List[Callable[[], bytes]] = [
        lambda: b"",
        lambda: content[:at],
        lambda: content[at:],
        lambda: content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :],
        lambda: content[:at] + b"\x00" + content[at:],
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content[:at] + b"\xff\xfe" + content[at:],
        lambda: content[:at] + b"x" * 200_000 + content[at:],
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: content.rstrip(b"\n"),
        lambda: content + content,
        lambda: b"\n".join([*lines[:line], *lines[line + 1 :]]),
        lambda: b"\n".join([*lines[:line], lines[line], *lines[line:]]),
        lambda: b"\n".join([*lines[:line], b"", *lines[line:]]),
        lambda: b"\n" * content.count(b"\n"),
        lambda: chance.choice(ODD_TEXTS).encode("utf-8", "surrogateescape"),
        lambda: b"[" * 5000,
        lambda: chance.randbytes(300),
    ]
    return chance.choice(faults)()


def spoil_structure(value: Any, chance: random.Random) -> Any:
    """Return a nested value with one part removed, replaced or repeated."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        fault = chance.random()
        if fault < 0.2:
            return {name: part for name, part in value.items() if name != key}
        if fault < 0.3:
            return {**value, chance.choice(ODD_TEXTS): chance.choice(ODD_VALUES)}
        return {**value, key: spoil_structure(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return [*value, *value]
        return [*value[:at], spoil_structure(value[at], chance), *value[at + 1 :]]
    return chance.choice([*ODD_VALUES, *ODD_TEXTS])


def spoil_file(path: Path, chance: random.Random) -> str:
    """Spoil one file in place; return what was done, in words."""
    kind = chance.random()
    if kind < 0.04:
        path.unlink()
        return f"{path.name} is missing"
    if kind < 0.08:
        path.unlink()
        path.mkdir()
        return f"{path.name} is a folder"
    if kind < 0.1:
        path.unlink()
        path.symlink_to(path.name)
        return f"{path.name} links to itself"
    content = path.read_bytes()
    if path.suffix in (".json", ".yaml") and kind < 0.6:
        try:
            value = yaml.safe_load(content)
        except (yaml.YAMLError, UnicodeDecodeError):  # spoilt before
            value = None
        spoilt = spoil_structure(value, chance)
        text = json.dumps(spoilt) if path.suffix == ".json" else yaml.dump(spoilt)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return f"{path.name} has another structure"
    path.write_bytes(spoil_bytes(content, chance))
    return f"{path.name} has other bytes"


def spoil_arguments(arguments: List[str], chance: random.Random) -> List[str]:
    """Return a command line with one fault."""
    at = chance.randrange(len(arguments))
    odd = chance.choice(ODD_TEXTS)
    before, word, after = arguments[:at], arguments[at], arguments[at + 1 :]
    name, equals, _ = word.partition("=")
    if word.startswith("{"):  # settings, which fairseq reads as Python
        return [*before, repr(spoil_structure(json.loads(word), chance)), *after]
    faults = [
        [*before, *after],
        [*before, odd, *after],
        [*before, word, odd, *after],
        [*before, word, word, *after],
        [*before, f"{name}{equals or '='}{odd}", *after],
        [*before, word[: chance.randrange(len(word) + 1)], *after],
        [*arguments, "--unknown", odd],
        [*arguments, *arguments],
        [],
    ]
    return chance.choice(faults)


def spoil_environment(folder: Path, chance: random.Random) -> Dict[str, str]:
    """Return variables of an unusual environment; ``""`` removes one."""
    return chance.choice(
        [
            {"HOME": ""},
            {"HOME": "/nonexistent"},
            {"LANG": "C", "LC_ALL": "C"},
            {"TMPDIR": str(folder / "none")},
            {"XDG_CACHE_HOME": "/dev/null"},
            {"COLUMNS": "1"},
            {"PYTHONWARNINGS": "ignore"},
            {"PYTHONOPTIMIZE": "1"},  # of the commands that it starts
        ]
    )
