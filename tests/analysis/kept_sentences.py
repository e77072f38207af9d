"""Systems with hostile names and subwords, for the tests of the browser of sentences."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, Sequence

from capsnmt.analysis.forward_pass import Batch
from capsnmt.analysis.observation import observe
from capsnmt.analysis.sentences import Sentences
from capsnmt.analysis.system import Options, System
from tests.support import FIRST, TASK

EVIL = "</script><img src=http:evil.example onerror=alert(1)>"
SUBWORDS = (EVIL, "<!--<script>", "$x$", "漢字", "&amp;", '"', "__proto__", "it's")


def hostile_task() -> Any:
    """Return a task whose dictionary has subwords that could break a page."""
    dictionary = copy.deepcopy(TASK.source_dictionary)
    dictionary.symbols[FIRST : FIRST + len(SUBWORDS)] = SUBWORDS
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def keep(name: str, model: Any, batches: Sequence[Batch], count: int = 10) -> Sentences:
    """Return the analysis of a model that has read some batches."""
    numbers = [list(batch.numbers) for batch in batches]
    options = Options(browser_sentences=count)
    analysis = Sentences(System(name, model, hostile_task(), None, numbers, options=options))
    for batch in batches:
        observe(model, batch, [analysis])
    analysis.finish()
    return analysis
