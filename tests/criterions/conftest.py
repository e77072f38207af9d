"""What the tests of several criterions share."""

from typing import Iterator

import pytest
import torch


@pytest.fixture
def one_worker() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
