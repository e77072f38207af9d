"""``capsnmt-evaluate``: score translations against one reference and test their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Sequence

from capsnmt import records
from capsnmt.cli import require, run_command
from capsnmt.evaluation.arguments import STDOUT, parse_arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-evaluate`` and return the exit status."""
    return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    arguments = parse_arguments(argv)
    require("evaluation")

    # after parsing: --help and a mistyped flag do not wait for sacreBLEU
    import json

    from capsnmt.evaluation.compare_mt import check_folder
    from capsnmt.evaluation.evaluate import check_json_target, evaluate
    from capsnmt.evaluation.outputs import baseline_first
    from capsnmt.evaluation.text_report import as_text, compare_mt_note

    settings = arguments.settings
    if settings.compare_mt is not None:
        check_folder(settings.compare_mt.folder)
    if arguments.json not in (None, STDOUT):
        check_json_target(Path(str(arguments.json)))
    evaluation = evaluate(baseline_first(arguments.systems, arguments.baseline), settings)
    if arguments.json == STDOUT:
        print(json.dumps(records.plain(evaluation), indent=2))
        return
    if arguments.json is not None:
        records.write(Path(arguments.json), evaluation)
    print(as_text(evaluation))
    if settings.compare_mt is not None:
        print(compare_mt_note(settings.compare_mt))


if __name__ == "__main__":
    raise SystemExit(main())
