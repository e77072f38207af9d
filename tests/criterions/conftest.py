"""What the tests of several criterions share."""

from pathlib import Path
from typing import Iterator

import pytest
import torch


@pytest.fixture
def one_worker(tmp_path: Path) -> Iterator[None]:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
