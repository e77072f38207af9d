"""``capsnmt-prepare`` on miniatures of the papers' archives, in their true formats."""

import re
from functools import partial
from pathlib import Path

from tests.corpora.miniatures import MINIATURES, recipe_for
from tests.frozen.kit import World, digest, frozen, tree

ARCHIVE = re.compile(r"\.(tgz|zip|deb|gz|gz\.\d\d)\b")


def prepared(world: World, name: str) -> Path:
    """A prepared corpus of the name: ``data``, and what the command said the first time."""

    def make(folder: Path) -> None:
        archives = folder / "archives"
        archives.mkdir()
        contents = MINIATURES[name]()
        for file, content in contents.items():
            (archives / file).write_bytes(content)
        # the archives are made now, so that their checksums are those of now
        recipe_for(name, contents, folder)
        (folder / "said").write_text(prepare(world, folder, name), "utf-8")

    return world.once(f"prepared-{name}", make)


def prepare(world: World, folder: Path, name: str) -> str:
    done = world.start(
        *("capsnmt-prepare", folder / f"{name}.yaml", "--local", folder / "archives"),
        *("--output", folder / "data", "--workers", "1"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def twice(name: str, world: World) -> str:
    folder = prepared(world, name)
    lines = [(folder / "said").read_text("utf-8"), "== again", prepare(world, folder, name)]
    lines.append("== files")
    for path in tree(folder / "data"):
        content = (folder / "data" / path).read_bytes()
        if not Path(path).name.startswith(".") and Path(path).name != "manifest.json":
            packed = ARCHIVE.search(path)  # compressed by this machine's zlib
            lines.append(f"{path} {'' if packed else f'{len(content)} {digest(content)}'}")
    manifest = (folder / "data/manifest.json").read_text("utf-8")
    for line in world.normalise(manifest).splitlines():
        line = re.sub(r"\b([0-9a-f]{16})[0-9a-f]{48}\b", r"\1", line)
        if ARCHIVE.search(line.partition(":")[0]) or line.startswith(" " * 6 + '"fingerprint'):
            line = line.partition(":")[0] + ": HASH"
        lines.append(re.sub(r'("(?:ve-)?(fairseq|torch)(?:-fixed)?": )"\d.*"', r'"\2": "V"', line))
    return "\n".join(lines)


for _name in MINIATURES:
    _promise = f"{_name} is prepared to these bytes, and a second time nothing is done"
    # with every commit that of the launches; tests/corpora/test_prepare.py prepares all
    _case = frozen(_promise, nightly=_name != "iwslt15_en_vi", name=f"prepare_{_name}")
    _case(partial(twice, _name))
