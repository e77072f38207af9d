"""What programs do with the package, as functions that :mod:`tests.forked` runs by themselves."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, Callable, List

import torch

from capsnmt.models import CapsnmtTransformer
from capsnmt.routing import record_routing
from tests.support import HEADS, PAD, batch, build, sentences, shifted


def use_a_model() -> None:
    """Train and decode with a model, without any command."""
    model = build("capsnmt_transformer").train()
    model.eval().make_generation_fast_()


def load() -> None:
    """Call ``from_pretrained(FOLDER, NAME=VALUE...)``, and translate a line.

    The values are JSON; ``checkpoint_file`` and ``data_name_or_path`` are texts.
    """
    folder, *settings = sys.argv[1:]
    pairs = [setting.split("=", 1) for setting in settings]
    values = {k: v if k[-4:] in ("file", "path") else json.loads(v) for k, v in pairs}
    CapsnmtTransformer.from_pretrained(folder, **values).translate(["A man ."])


def compile_in_two_threads() -> None:
    """Train a compiled model, and record it in a thread between any two steps of the compiler."""
    layers = ("--encoder-layers", "1", "--decoder-layers", "1")
    model = build("capsnmt_transformer", *HEADS, *layers, "--compile").train()
    source, target = (batch(sentences(5, 7, 3), left_pad=left) for left in (True, False))
    given = (source, source.ne(PAD).sum(1), shifted(target))
    recorded: List[int] = []
    compile_with = torch.compile

    def record() -> None:
        with record_routing() as records:
            model(*given)
        recorded.append(len(records))

    def in_a_thread() -> None:
        thread = threading.Thread(target=record)
        thread.start()
        thread.join()

    def run_graph(graph: Any, _: Any) -> Any:  # generating code takes minutes
        in_a_thread()
        return graph

    def compiling(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        run = compile_with(function, backend=run_graph, **options)

        def recording_first(*args: Any, **kwargs: Any) -> Any:
            in_a_thread()
            return run(*args, **kwargs)

        return recording_first

    torch.compile = compiling
    logits, _ = model(*given)
    logits.sum().backward()
    print(recorded)
