"""The behaviour of the host on which the plugin relies."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from fairseq.data import data_utils

from tests.interpreter import ran


@pytest.mark.parametrize("multiple", [1, 4, 8])
@pytest.mark.parametrize("sentences", [1, 7, 8, 12, 29])
@pytest.mark.parametrize("as_array", [False, True])
def test_no_sentence_is_dropped_from_the_batches(
    sentences: int, multiple: int, as_array: bool
) -> None:
    """The fork drops a last batch that is not a multiple of the required size."""
    indices = np.arange(sentences)[::-1] if as_array else list(range(sentences))[::-1]
    lengths = np.full(sentences, 3)
    batches = data_utils.batch_by_size(
        indices,
        lambda index: 3,
        num_tokens_vec=lengths,
        max_tokens=27,
        required_batch_size_multiple=multiple,
    )
    assert np.concatenate(batches).tolist() == list(indices)
    assert all(len(batch) * 3 <= 27 for batch in batches)


def printed(program: str) -> str:
    """Return what a program in a process of its own prints; it writes no error."""
    done = ran([sys.executable, "-W", "ignore", "-c", program])
    assert not done.stderr
    return done.stdout.strip()


def test_importing_the_plugin_leaves_the_root_logger_alone_and_prints_nothing() -> None:
    """fairseq's modules set it to DEBUG, with output to standard error."""
    program = (
        "import capsnmt.plugin, logging; root = logging.getLogger();"
        "print(root.level == logging.WARNING and not root.handlers)"
    )
    assert printed(program) == "True"


def test_a_training_starts_without_libraries_that_it_does_not_use() -> None:
    """They take as long as fairseq itself; the fork's criterion finds its own when it is used."""
    program = """
import sys
import capsnmt.plugin, torch
from fairseq.criterions import sentence_prediction

weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.AdamW([weight])
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
print({"sklearn", "scipy.stats", "torch._dynamo"} & sys.modules.keys())
if hasattr(sentence_prediction, "f1_score"):
    print(sentence_prediction.acc_and_f1(torch.tensor([1, 0]).numpy(), [1, 0])["f1"])
else:
    print(1.0)
"""
    assert printed(program).split("\n") == ["set()", "1.0"]
