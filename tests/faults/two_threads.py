"""``python -m tests.faults.two_threads``: a model trains compiled, and a thread records it."""

from __future__ import annotations

import threading
from typing import Any, Callable, List

import torch

from capsnmt.routing import record_routing
from tests.support import HEADS, PAD, batch, build, sentences, shifted


def main() -> None:
    """Record between any two steps of the compiler; check what both threads find."""
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
    # a record of the routed layer: before and within the compilation of both stacks
    assert recorded == [1] * 4, recorded


if __name__ == "__main__":
    main()
