"""Without a GPU the fused kernels run in Triton's interpreter, and are built for GPUs all the same.

The interpreter is chosen when triton is imported, so its tests run in processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capsnmt.routing import backend

TESTS = Path(__file__).with_name("test_kernels.py")
OBSTACLE = backend.triton_obstacle("cuda")


@pytest.mark.skipif(bool(OBSTACLE), reason=f"backend 'triton' {OBSTACLE}")
@pytest.mark.parametrize(
    "chosen", ["not nightly", pytest.param("nightly", marks=pytest.mark.nightly)]
)
def test_kernels_in_the_interpreter(chosen):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    result = subprocess.run(
        [*command, str(TESTS), "-m", chosen],
        env={**os.environ, backend.INTERPRETER_FLAG: "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
    assert " skipped" not in result.stdout
