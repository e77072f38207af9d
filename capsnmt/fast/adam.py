"""fairseq's Adam as one operation of torch for all parameters."""

import ast
import functools
import importlib
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.models.switches import check_values, switch

HALF = (torch.float16, torch.bfloat16)
# torch 2.2 leaves the function out of its type stubs, so an import statement would not type-check.
adamw = importlib.import_module("torch.optim.adamw").adamw


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Options of Adam: those of fairseq's that have an effect here."""

    # no switch: a pair of numbers, which parse_betas checks
    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = switch(1e-8, "epsilon for Adam optimizer", least=0)
    weight_decay: float = switch(0.0, "weight decay", least=0)
    lr: List[float] = II("optimization.lr")  # noqa: RUF009  a text, which omegaconf resolves


def parse_betas(given: Any) -> Tuple[float, float]:
    """Parse ``--adam-betas``: a text such as ``(0.9, 0.98)``, or a list from a configuration."""
    try:
        first, second = ast.literal_eval(given) if isinstance(given, str) else given
        betas = float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        betas = math.nan, math.nan
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigurationError(
            f"--adam-betas is {given!r}; give two numbers of at least 0 and below 1, "
            f"such as '(0.9, 0.98)'"
        )
    return betas


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FusedAdam(FairseqAdam):
    """fairseq's ``adam`` with the same numbers to rounding, the same flags and checkpoints."""

    def __init__(self, cfg: FusedAdamConfig, params: Iterable[nn.Parameter]) -> None:
        FairseqOptimizer.__init__(self, cfg)  # fairseq's Adam would be built otherwise
        check_values(cfg, FusedAdamConfig)
        self._optimizer = Adam(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        """Return the settings that take precedence over those of a checkpoint."""
        lr = self.cfg.lr
        return {
            "lr": lr if isinstance(lr, float) else lr[0],
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def multiply_grads(self, c: Union[float, Tensor]) -> None:
        """Multiply the gradients by ``c``, when the update reads them.

        **D**: fairseq's hook for this, ``supports_step_with_scale``, stays unused: with ``--bf16``
        it would multiply the factors of all updates so far.
        """
        if isinstance(self._optimizer, Adam):
            self._optimizer.factor = self._optimizer.factor * c
        else:  # within that of --zero-sharding
            super().multiply_grads(c)

    def clip_grad_norm(
        self, max_norm: float, aggregate_norm_fn: Optional[Callable[[Tensor], Tensor]] = None
    ) -> Tensor:
        """Scale the gradients down to a norm when the update reads them; return their norm.

        The same numbers as fairseq's, which measures one parameter after the other.

        Args:
            max_norm: the norm; 0 only measures.
            aggregate_norm_fn: makes the norm that of all workers, where each has a part.
        """
        if not isinstance(self._optimizer, Adam):
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        params = [p for p in self.params if p.grad is not None]
        grads = [p.grad.detach() for p in params]
        plain = all(g.dtype == torch.float32 and g.layout == torch.strided for g in grads)
        experts = any(hasattr(p, "expert") for p in params)  # not part of the norm
        if not plain or experts or len({g.device for g in grads}) != 1:
            super().multiply_grads(self._optimizer.factor)
            self._optimizer.factor = 1.0
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        if grads[0].device.type == "cpu":  # where a dot product is faster (docs/optimizer.md)
            flat = [grad.reshape(-1) for grad in grads]
            norm = torch.stack([torch.dot(x, x) for x in flat]).sum().sqrt()
        else:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        norm = norm * self._optimizer.factor
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            self.multiply_grads((float(max_norm) / (norm + 1e-6)).clamp_(max=1))
        return norm


@functools.cache
def has_fused_kernel(device: torch.device) -> bool:
    """Return whether this torch updates all parameters on a device in one operation."""
    try:
        torch.optim.AdamW([torch.zeros(1, device=device, requires_grad=True)], fused=True)
    except RuntimeError:
        return False
    return True


class Adam(torch.optim.Optimizer):
    r"""Adam with decoupled weight decay, in fairseq's form, by torch's kernel.

    .. math::
        \theta_t = (1 - \eta \lambda) \theta_{t-1}
        - \eta \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \frac{m_t}{\sqrt{v_t} + \epsilon}

    torch divides by :math:`\sqrt{v_t / (1 - \beta_2^t)} + \epsilon` instead. It is given
    :math:`\epsilon / \sqrt{1 - \beta_2^t}`, which makes them equal. This matters in the first
    updates, for rare words whose gradients are close to :math:`\epsilon`.

    The state is fairseq's: ``step`` is a number, and the moments of half-precision parameters are
    fp32. Where torch has no fused kernel (on CPUs before 2.3), its loops over all tensors run.

    Here :math:`\eta` is ``lr`` and :math:`\lambda` is ``weight_decay``. The next update multiplies
    the gradients by ``factor``.
    """

    supports_memory_efficient_fp16 = True
    supports_flat_params = True
    factor: Union[float, Tensor] = 1.0  # of the class: torch copies no other attributes

    def __init__(self, params: Iterable[nn.Parameter], **settings: Any) -> None:
        super().__init__(params, {**settings, "amsgrad": False})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients, and what the next update was to multiply them by."""
        self.factor = 1.0
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Update the parameters that have a gradient, by ``factor`` times the gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        factor, self.factor = self.factor, 1.0
        for group in self.param_groups:
            batches: Dict[Any, List[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    # half-precision ones each alone: they are copied to fp32
                    alone = id(p) if p.dtype in HALF else 0
                    batches.setdefault((p.device, self._step_of(p, group), alone), []).append(p)
            for (device, step, _), batch in batches.items():
                self._update(batch, group, step + 1, device, factor)
        return loss

    def _step_of(self, p: nn.Parameter, group: Dict[str, Any]) -> int:
        """Return how many updates a parameter has had; a new one gets its state."""
        state = self.state[p]
        if not state:
            moment = torch.zeros_like(p, dtype=torch.float32 if p.dtype in HALF else p.dtype)
            state.update(step=0, exp_avg=moment, exp_avg_sq=moment.clone())
        # torch's own optimizers store a tensor, and apex stores one number for the group
        return int(state.get("step", group.get("step", 0)))

    def _update(
        self,
        batch: List[nn.Parameter],
        group: Dict[str, Any],
        step: int,
        device: torch.device,
        factor: Union[float, Tensor],
    ) -> None:
        """Make an update of parameters that have had the same number of them."""
        params = [p.float() if p.dtype in HALF else p for p in batch]
        moments: Dict[str, List[Tensor]] = {}
        for name in ("exp_avg", "exp_avg_sq"):
            moments[name] = [self.state[p][name].to(q) for p, q in zip(batch, params)]
        fused = has_fused_kernel(device)
        # torch counts the step itself, in one tensor for each parameter
        place = {"dtype": torch.float32, "device": device if fused else "cpu"}
        counts = torch.full((len(batch),), float(step - 1), **place)
        beta1, beta2 = group["betas"]
        # D: fp32 before they are multiplied; fairseq's would vanish in half precision
        grads = [p.grad.to(q.dtype) for p, q in zip(batch, params)]
        divisor = None
        if isinstance(factor, Tensor) or factor != 1:
            if fused and all(g.dtype == torch.float32 for g in grads):
                # in several processes fairseq's factor is in fp64, which the kernel refuses
                divisor = (torch.ones((), device=device) / factor).float()
            else:
                torch._foreach_mul_(grads, factor)
        adamw(
            params,
            grads,
            moments["exp_avg"],
            moments["exp_avg_sq"],
            [],
            list(counts.unbind()),
            fused=fused,
            grad_scale=divisor,
            foreach=not fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta2**step),
            maximize=False,
        )
        for p, q, *pair in zip(batch, params, moments["exp_avg"], moments["exp_avg_sq"]):
            self.state[p].update(step=step, exp_avg=pair[0], exp_avg_sq=pair[1])
            if q is not p:
                p.copy_(q)
            elif fused:  # torch's kernel does not say that it writes
                torch.autograd.graph.increment_version(p)


# fairseq registers no two classes of one name, and resumes if the name is that in the checkpoint.
# With its name runs of either class resume from the other's.
FusedAdam.__name__ = FairseqAdam.__name__
