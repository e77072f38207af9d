"""A rehearsal of every system on a GPU that is not there, with a torch that is built for CUDA.

Fake tensors have a device and a dtype, and no numbers. ``scripts/nightly.sh`` runs this with a CUDA
build; torch's CPU builds know no fake GPU. The backward pass asks the driver, and is not rehearsed.
"""

from typing import Dict

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.torch_version import TorchVersion

from tests.models.test_gpu_work import Work
from tests.support import SYSTEMS, build

if not torch.backends.cuda.is_built() or TorchVersion(torch.__version__) < (2, 4):
    # torch 2.2 asks the driver even for fake tensors
    pytest.skip(
        "NOT TESTED: needs torch >= 2.4, built for CUDA (nightly.sh)", allow_module_level=True
    )

# precision -> flags of the model, the dtype of its parameters, and that of its logits
PRECISIONS = {
    "fp32": ((), torch.float32, torch.float32),
    "fp16": ((), torch.float16, torch.float16),
    "bf16": ((), torch.bfloat16, torch.bfloat16),
    "autocast": (("--autocast", "bf16"), torch.float32, torch.bfloat16),
}


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 asks the GPU; and fairseq's positions read a shape by an operator that needs numbers."""
    monkeypatch.setattr(torch.onnx.operators, "shape_as_tensor", lambda tensor: tensor.shape)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *args: (9, 0))


def move(model: nn.Module, dtype: torch.dtype) -> None:
    """Do what ``model.to("cuda", dtype)`` does, which torch cannot with fake parameters."""
    moved: Dict[int, Tensor] = {}

    def on_gpu(tensor: Tensor) -> Tensor:
        return tensor.to("cuda", dtype if tensor.is_floating_point() else tensor.dtype)

    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            parameter = moved.setdefault(id(parameter), nn.Parameter(on_gpu(parameter.detach())))
            setattr(module, name, parameter)
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, moved.setdefault(id(buffer), on_gpu(buffer)))


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_tensor_is_on_the_gpu_in_its_precision(system: str, precision: str) -> None:
    """In training, in evaluation, and in a step of decoding; the host waits twice at most."""
    arch, own = SYSTEMS[system]
    flags, dtype, results = PRECISIONS[precision]
    with FakeTensorMode():
        model = build(arch, *own, *flags)
        move(model, dtype)
        tokens = torch.zeros(3, 7, dtype=torch.long, device="cuda")
        for training in (True, False):
            with Work(answers=[True] * 2) as work:
                logits, _ = model.train(training)(tokens, tokens[:, 0], tokens)
            assert work.waits <= 2  # is there padding in the source, and left of the target?
            assert (logits.device.type, logits.dtype) == ("cuda", results)
        with torch.no_grad(), Work(answers=[True] * 4):
            encoded = model.encoder(tokens, tokens[:, 0])
            cache: Dict[str, Dict[str, Tensor]] = {}
            for length in (1, 2):
                logits, _ = model.decoder(tokens[:, :length], encoded, incremental_state=cache)
        assert (logits.device.type, logits.dtype) == ("cuda", results)
