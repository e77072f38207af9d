"""``capsnmt-translate RUN < text > text``: translate raw text with a finished run."""

import argparse
import itertools
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Callable, Iterator, List, Optional

from capsnmt import cli
from capsnmt.forms import Words, plain
from capsnmt.lines import stream_lines

if TYPE_CHECKING:  # --help does not wait for torch
    from capsnmt.translate.translator import Translator

PRECISIONS = {"fp32": "none", "bf16": "bf16"}
NEW = "characters that the model does not know"
SETTINGS = ("beam", "lenpen", "max_tokens", "batch_size")  # flags that fairseq also has


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-translate``."""
    parser = cli.OneLineParser(
        prog="capsnmt-translate",
        description="Translate raw text, one sentence per line, from standard input to standard "
        "output.",
    )
    add = parser.add_argument
    models = "a finished run, a model of the project (DATASET/ROW), or a checkpoint with --data; "
    models += "several are an ensemble"
    add("runs", nargs="+", type=Path, metavar="RUN|MODEL|CHECKPOINT", help=models)
    add("--data", type=Path, metavar="DIR", help="folder of capsnmt-prepare (default: the run's)")
    cli.add_user_dir(parser)
    add("--lenpen", type=cli.finite, metavar="X", help="above 1 for longer (default: the run's)")

    def number(name: str, kind: Callable[[str], int], text: str) -> None:
        add(f"--{name}", type=kind, metavar="N", help=text)

    number("beam", cli.positive, "size of the beam (default: the run's)")
    ranked = "write N translations of each line, after the line's number and a tab"
    number("nbest", cli.positive, ranked)
    number("max-tokens", cli.at_least(2), "subwords per batch, with padding (default 4096)")
    number("batch-size", cli.positive, "sentences per batch (default: no limit)")
    together = "lines to translate together (default 1000; 1 on a terminal)"
    number("buffer-size", cli.positive, together)
    add("--scores", action="store_true", help="write the score and a tab before each translation")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default auto")
    add("--precision", choices=PRECISIONS, help="of matrix products (default: the training's)")
    return parser


@cli.quiet()
@cli.command
def main(argv: List[str]) -> None:
    """Run ``capsnmt-translate`` and return the exit status."""
    args, source = build_parser().parse_args(argv), sys.stdin.buffer
    # the fork pins memory without looking for a GPU
    warnings.filterwarnings("ignore", "'pin_memory' argument is set as true")
    cli.require("fairseq")
    # after parsing: --help and a mistyped flag do not wait for torch and fairseq
    from capsnmt.host import load_plugin
    from capsnmt.machine import keep_freed_memory
    from capsnmt.modules.autocast import bf16_obstacle

    load_plugin(args.user_dir)
    from capsnmt.translate.load import chosen_device, from_run

    device = chosen_device(args.device)
    obstacle = bf16_obstacle(device) if args.precision == "bf16" else None
    if obstacle is not None:
        raise cli.ConfigurationError(f"--precision is {args.precision}, but {obstacle}; use fp32")
    keep_freed_memory(device)
    settings = {name: getattr(args, name) for name in SETTINGS}
    settings["autocast"] = PRECISIONS.get(args.precision)
    given = {name: value for name, value in settings.items() if value is not None}
    translator = from_run(args.runs, args.data, device, **given)
    beam = translator.cfg.generation.beam
    if (args.nbest or 1) > beam:
        raise cli.ConfigurationError(
            f"--nbest is {args.nbest}, but the beam has {beam} hypotheses; give --beam {args.nbest}"
        )
    size = args.buffer_size or (1 if source.isatty() else 1000)
    for text in translated(translator, source, size, args.nbest, args.scores):
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()


def translated(
    translator: "Translator", stream: BinaryIO, size: int, nbest: Optional[int], scores: bool
) -> Iterator[str]:
    """Yield the text to write for every ``size`` lines of raw text.

    Without ``nbest``, lines are not numbered.
    """
    name, words = "standard input", Words()
    lines = plain(stream_lines(stream, name), name)
    while buffer := list(itertools.islice(lines, size)):
        output: List[str] = []
        for line, translation in zip(buffer, translator.translations(buffer, nbest=nbest or 1)):
            words.see(line, *([] if translation.known else [NEW]))
            if translation.parts > 1:
                cli.say(
                    f"{name}, line {words.lines}: has more than {translator.longest:,} "
                    f"subwords: translated in {translation.parts} parts"
                )
            for hypothesis in translation.hypotheses:
                cells = [str(words.lines)] if nbest is not None else []
                cells += [f"{hypothesis.score:.4f}"] if scores else []
                output.append("\t".join([*cells, hypothesis.text]) + "\n")
        yield "".join(output)
    words.check(name, "give text of words, joined and without symbols,", {NEW: None}, refuses=False)


if __name__ == "__main__":
    raise SystemExit(main())
