"""Ablation: how much the loss increases without a part of the model."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch
from torch import Tensor
from tqdm import tqdm

from capsnmt.analysis.base import Analysis, Cell, NotApplicableError
from capsnmt.analysis.forward_pass import Batch

Key = Tuple[Any, ...]
INTACT: Key = ()
MEASURES = ("loss", "increase", "standard_error")


class Ablation(Analysis):
    r"""Loss with a part of the model replaced, and its increase over that of the intact model.

    The loss is the cross-entropy without label smoothing, in nats per target token, with the
    decoder teacher-forced. With sentence losses :math:`\ell_s` and :math:`\ell'_s`, of
    :math:`n_s` tokens, the increase is the ratio :math:`R = \sum_s d_s / \sum_s n_s` of the paired
    differences :math:`d_s = \ell'_s - \ell_s`, with the standard error of a ratio of sums over S
    sentences

    .. math:: \sqrt{\tfrac{S}{S - 1} \sum_s (d_s - R n_s)^2} \Big/ \sum_s n_s

    It runs the model once for each part, on a sample of ``--ablation-sentences`` sentences, after
    the other analyses.
    """

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.sentences: int = system.options.ablation_sentences
        if not self.sentences:
            raise NotApplicableError("--ablation-sentences is 0")
        self.losses: Dict[Key, Tensor] = {}

    def ablations(self, batch: Batch) -> Iterator[Tuple[Key, Tensor]]:
        """Yield ``INTACT`` and every ablation, with the loss of each sentence."""
        raise NotImplementedError

    @torch.no_grad()
    def finish(self) -> None:
        """Run all ablations on the sample."""
        sample = self.system.sample(self.sentences)
        losses: Dict[Key, List[Tensor]] = {}
        tokens = []
        with tqdm(
            total=sum(map(len, sample.numbers)),
            desc=f"{sample.name}, {self.title.lower()}",
            unit=" sentences",
            mininterval=1,
            disable=None,  # a log is no terminal
        ) as progress:
            for batch in sample.batches():
                tokens.append(real_targets(batch, sample.task).sum(1).double().cpu())
                for key, of_sentences in self.ablations(batch):
                    losses.setdefault(key, []).append(of_sentences.cpu())
                progress.update(len(batch.numbers))
        self.tokens = torch.cat(tokens)
        self.losses = {key: torch.cat(parts) for key, parts in losses.items()}

    def loss_of(self, batch: Batch, encoded: Any) -> Tensor:
        """Return the loss of each sentence from an encoder's output, ``[B]``, in fp64."""
        model = self.system.model
        output = model.decoder(batch.sample["net_input"]["prev_output_tokens"], encoder_out=encoded)
        log_probs = model.get_normalized_probs(output, log_probs=True, sample=batch.sample)
        of_target = log_probs.gather(-1, batch.sample["target"].unsqueeze(-1)).squeeze(-1)
        return -(of_target.double() * real_targets(batch, self.system.task)).sum(1)

    def encode(self, batch: Batch, return_all_hiddens: bool = False) -> Any:
        """Return the encoder's output on a batch."""
        inputs = batch.sample["net_input"]
        return self.system.model.encoder(
            inputs["src_tokens"],
            src_lengths=inputs["src_lengths"],
            return_all_hiddens=return_all_hiddens,
        )

    def rows(self) -> List[Sequence[Cell]]:
        intact = self.losses[INTACT]
        return [
            (*key, (losses.sum() / self.tokens.sum()).item(), *self.increase(losses - intact))
            for key, losses in self.losses.items()
            if key != INTACT
        ]

    def increase(self, differences: Tensor) -> Tuple[float, float]:
        """Return the increase per token and its standard error; NaN for one sentence."""
        count, tokens = len(differences), self.tokens.sum()
        ratio = differences.sum() / tokens
        squares = (differences - ratio * self.tokens).square().sum()
        error = (
            (squares * count / (count - 1)).sqrt() / tokens if count > 1 else squares * torch.nan
        )
        return ratio.item(), error.item()


@contextmanager
def method_replaced(
    module: torch.nn.Module, name: str, method: Callable[..., Any]
) -> Iterator[None]:
    """Replace a method of one module inside the ``with`` block."""
    module.__dict__[name] = method  # hides the method of the class
    try:
        yield
    finally:
        del module.__dict__[name]


def real_targets(batch: Batch, task: Any) -> Tensor:
    """Return ``[B, T]``, true at the real tokens of the references."""
    return batch.sample["target"].ne(task.target_dictionary.pad())
