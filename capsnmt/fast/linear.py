"""Linear maps of a model that only decodes, from packed matrices."""

import functools
from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.autocast import autocast_dtype
from capsnmt.routing.tracing import PLAIN, is_recorded, is_watched

PRECISIONS = (torch.float32, torch.bfloat16)
LARGE = 2**18
"""Weights from which a matrix is packed, 512 x 512; a copy that oneDNN reads faster."""
FEW = 2**20
"""Products of a map's weights and rows below which a call of oneDNN costs more than it saves."""
ROWS = 320
"""Rows of a step of decoding for which matrices are packed: any number works."""

_updates = 0  # of parameters in this process


def count_update(*_: Any) -> None:
    """Note that an optimizer may have written parameters: torch's fused ones raise no version."""
    global _updates
    _updates += 1


class Weight(nn.Parameter):
    """A weight that knows whether its ``.data`` was taken: writing to it leaves no other trace."""

    is_exposed = False

    def _expose(self) -> Tensor:
        self.is_exposed = True
        return Tensor.data.__get__(self)

    data = property(_expose, Tensor.data.__set__)

    def __deepcopy__(self, memo: Any) -> nn.Parameter:
        """Return a copy, a parameter, for which torch would take the data."""
        return nn.Parameter(self.detach().clone(), self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what is pickled, a parameter, as torch would without taking the data."""
        return nn.Parameter(self.detach(), self.requires_grad).__reduce_ex__(protocol)


PLAIN.add(Weight)


class Packed:
    """A matrix as oneDNN reads it fastest, packed of a weight.

    The weight and its memory are held: nothing else can get the address of one of them.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.memory = weight, weight.detach()  # also after .data has changed
        self.state = state_of(weight)
        self.sample = self.memory[0, :16]  # in one line of the cache
        self.numbers = self.sample.clone()
        self.matrix = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)

    def is_of(self, weight: Tensor) -> bool:
        """Return whether this is the weight, with the same numbers.

        It looks at some of them: what is written by numpy leaves no other trace.
        """
        same = self.weight is weight and self.state == state_of(weight)
        return same and torch.equal(self.sample, self.numbers)


def state_of(weight: Tensor) -> Tuple[int, torch.dtype, int, int]:
    """Return what changes when a weight gets other numbers."""
    return weight.data_ptr(), weight.dtype, weight._version, _updates


class PreparedLinear(nn.Linear):
    """A linear map of a model that only decodes.

    On a CPU oneDNN computes it: 2.3 times as fast as torch's own choice on an AMD EPYC (Zen 5).
    Its functions are private to torch: without them, for gradients, under autocast, and where torch
    must see each operation, it is ``nn.Linear``. A matrix is packed again after whatever may have
    changed it, and no more once its ``.data`` was taken; never if it was made in inference mode,
    which counts no changes. Who takes a parameter by its name finds torch's own classes, which
    torch's ``nn.Parameter`` and parametrizations ask for; so does who looks for parametrizations,
    as ``quantize_dynamic`` before it asks for the class.
    """

    packed: Optional[Packed] = None

    def __getattr__(self, name: str) -> Any:
        """Return what torch's class has, which the map is from now on if it is a parameter."""
        if name in self._parameters or name == "parametrizations":
            self.__dict__.pop("packed", None)
            self.__class__ = nn.Linear
            if type(self.weight) is Weight:
                self.weight.__class__ = nn.Parameter
        return nn.Module.__getattr__(self, name)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows ``[..., in]`` to ``[..., out]``, in the precision of the weights."""
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        if is_recorded():  # as torch's own class, the only one that make_fx knows
            weight = self.weight
        x = x if x.dtype == weight.dtype else x.to(weight.dtype)
        known = weight.device.type == x.device.type == "cpu" and weight.dtype in PRECISIONS
        known = known and not torch.is_grad_enabled() and not getattr(weight, "is_exposed", False)
        known = known and autocast_dtype("cpu") in (None, weight.dtype)
        if not known or is_watched((x, weight, bias)) or not has_onednn(weight.dtype):
            return F.linear(x, weight, bias)
        size = weight.numel()
        if size >= LARGE and not weight.is_inference():
            packed = self.packed
            if packed is None or not packed.is_of(weight):
                packed = self.packed = Packed(weight)
            weight = packed.matrix
        elif x.numel() // x.size(-1) * size < FEW:
            return F.linear(x, weight, bias)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what a copy is: ``nn.Linear``, which others know, as torch's ``quantize_dynamic``.

        A packed matrix cannot be copied.
        """
        state = {name: value for name, value in vars(self).items() if name != "packed"}
        return object.__new__, (nn.Linear,), state


def prepare(module: nn.Module) -> None:
    """Let a linear map on a CPU be prepared, if nothing has overridden it.

    **D**: with AVX-512 only. Without it torch's own choice is as fast (docs/speed_measurements.md).
    """
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if wide and type(module) is nn.Linear and module.weight.device.type == "cpu":
        if type(module.weight) is nn.Parameter:
            module.weight.__class__ = Weight
        module.__class__ = PreparedLinear


@functools.cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Return whether this torch has the functions of oneDNN, and this CPU has them in a precision.

    For bf16 oneDNN needs AVX-512; torch's own choice works on every CPU.
    """
    try:
        matrix = torch.eye(16, dtype=dtype, device="cpu")
        packed = torch.ops.mkldnn._reorder_linear_weight(matrix, 1)
        torch.ops.mkldnn._linear_pointwise(matrix, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return True
