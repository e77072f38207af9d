"""SentEval's ten probing tasks (Conneau et al. 2018): their files, and the command that gets them.

``python -m capsnmt.sentences.senteval --output DIR`` downloads them.
"""

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence

from capsnmt import records
from capsnmt.cli import ConfigurationError, OneLineParser, add_mirrors, comma_list, command
from capsnmt.files import locked, replacing, sha256
from capsnmt.sentences.examples import MANIFEST, Example, existing, read_fields

DESCRIPTION = "SentEval's probing tasks (Conneau et al. 2018)"
ADDRESS = "https://raw.githubusercontent.com/facebookresearch/SentEval/main/data/probing"
FIELDS = ("tr, va or te", "label", "sentence")
SPLITS = {"train": "tr", "valid": "va", "test": "te"}
# about so many lines a split: balanced classes add or leave out a few (CoordInv: 100,002, 10,002)
SIZES = {"tr": 100_000, "va": 10_000, "te": 10_000}
# lower bounds of the sentence lengths for which accuracy is reported
LENGTHS = (1, 9, 13, 17, 21, 26)


@dataclass(frozen=True)
class ProbingTask:
    """A probing task."""

    file: str  # in SentEval
    classes: int  # their number
    paper: str  # name in the papers' tables
    kind: str  # of linguistic property, as in the papers


# in the order of Li et al. 2019, Table 1, and Li et al. 2021, Table 7
TASKS: Dict[str, ProbingTask] = {
    "SentLen": ProbingTask("sentence_length.txt", 6, "SeLen", "Surface"),
    "WC": ProbingTask("word_content.txt", 1000, "WC", "Surface"),
    "TreeDepth": ProbingTask("tree_depth.txt", 7, "TrDep", "Syntactic"),
    "TopConst": ProbingTask("top_constituents.txt", 20, "ToCo", "Syntactic"),
    "BShift": ProbingTask("bigram_shift.txt", 2, "BShif", "Syntactic"),
    "Tense": ProbingTask("past_present.txt", 2, "Tense", "Semantic"),
    "SubjNum": ProbingTask("subj_number.txt", 2, "SubNm", "Semantic"),
    "ObjNum": ProbingTask("obj_number.txt", 2, "ObjNm", "Semantic"),
    "SOMO": ProbingTask("odd_man_out.txt", 2, "SOMO", "Semantic"),
    "CoordInv": ProbingTask("coordination_inversion.txt", 2, "CoIn", "Semantic"),
}


def require_task(name: str) -> ProbingTask:
    """Return the task of this name."""
    if name not in TASKS:
        raise ConfigurationError(f"--probing-task is {name!r}; choose from {', '.join(TASKS)}")
    return TASKS[name]


def length_class(sentence: str) -> int:
    """Return the lower bound of the group of lengths to which a sentence belongs.

    >>> length_class("a b c d e f g h i j")
    9
    """
    length = len(sentence.split())
    return max(bound for bound in LENGTHS if bound <= length)


@functools.lru_cache(maxsize=1)  # all splits are in one file
def read_task(folder: Path, name: str) -> Dict[str, List[Example]]:
    """Return the examples of each split of a task in the order of the file."""
    path = existing(
        folder / require_task(name).file,
        f"fetch SentEval's with python -m capsnmt.sentences.senteval --tasks {name} --output "
        f"{folder}, or make your own with python -m capsnmt.sentences.build",
    )
    found: Dict[str, List[Example]] = {mark: [] for mark in SPLITS.values()}
    for number, (mark, label, sentence) in read_fields(path, FIELDS):
        example = Example((sentence,), label, length_class(sentence), path, number)
        if mark not in found:
            example.reject(f"unknown split {mark!r}; give {FIELDS[0]}")
        found[mark].append(example)
    for split, mark in SPLITS.items():
        if not found[mark]:
            raise ConfigurationError(f"{path}: no {split} split: no line begins with {mark}")
    return {split: found[mark] for split, mark in SPLITS.items()}


def check_published(path: Path, task: ProbingTask) -> Dict[str, int]:
    """Return the lines of each split; raise unless the file has the form of a published one.

    **D**: SentEval publishes no checksums: lines (to a thousandth), splits and classes are checked.
    """
    rows = [(mark, label) for _, (mark, label, _) in read_fields(path, FIELDS)]
    sizes = Counter(mark for mark, _ in rows)
    classes = len({label for _, label in rows})
    others = [x for x in {*sizes, *SIZES} if abs(sizes[x] - SIZES.get(x, 0)) * 1000 > sizes[x]]
    if others or classes != task.classes:
        raise ConfigurationError(
            f"{path}: {dict(sizes)} lines and {classes} classes, where SentEval's {task.file} has "
            f"{SIZES} and {task.classes}: delete it, and fetch it again"
        )
    return sizes


def download(names: Sequence[str], folder: Path, folders: Sequence[str]) -> None:
    """Download the files of some tasks; those that are in the folder are checked only.

    Where all are there nothing is written: the folder may be another's.
    """
    from capsnmt.corpora import sources

    fix, manifest = f"try again, or put it into {folder} by other means", folder / MANIFEST
    tasks = {folder / TASKS[name].file: TASKS[name] for name in names}
    if not all(path.exists() for path in (*tasks, manifest)):
        with locked(folder / ".lock", f"waiting for another process that fetches into {folder}"):
            for path, task in tasks.items():
                if not path.exists():
                    with replacing(path) as part:
                        addresses = sources.in_folders(folders, task.file)
                        sources.download(part, task.file, addresses, fix)
                        check_published(part, task)
            known = records.read(manifest, Dict[str, Any]) if manifest.exists() else {}
            files = [path for task in TASKS.values() if (path := folder / task.file).exists()]
            sums = {path.name: sha256(path) for path in files}
            records.write(manifest, {**known, "description": DESCRIPTION, "sha256": sums})
    for path, task in tasks.items():
        sizes = check_published(path, task)
        print(f"{path}: {', '.join(f'{mark} {n:,}' for mark, n in sizes.items())}")


@command
def main(argv: List[str]) -> None:
    """Run the command line and return the exit status."""
    parser = OneLineParser(
        prog="python -m capsnmt.sentences.senteval",
        description="Download SentEval's ten probing tasks (Conneau et al. 2018).",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument(
        "--tasks", type=comma_list(TASKS), default=list(TASKS), help="comma list (default: all ten)"
    )
    add_mirrors(parser)
    options = parser.parse_args(argv)
    download(options.tasks, options.output, [*options.mirrors, ADDRESS])


if __name__ == "__main__":
    raise SystemExit(main())
