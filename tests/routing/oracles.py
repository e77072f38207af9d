"""The routing algorithms as in the papers: one capsule at a time, in nested loops.

Every function takes float64 tensors of one example (no leading dims) and returns tensors that
autograd can differentiate. Nothing here is shared with the operators.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

MASS_FLOOR, VARIANCE_FLOOR = 1e-9, 1e-6


def zero() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


def total(terms) -> Tensor:
    result = zero()
    for term in terms:
        result = result + term
    return result


def squash(s: Tensor) -> Tensor:
    """li2019 eq 8, dou2019 eq 5, duan2020 eq 6."""
    squared = s.dot(s)
    return s * 0 if squared == 0 else squared / (1 + squared) * (s / squared.sqrt())


def softmax(logits: list) -> list:
    top = max(x.item() for x in logits)
    exps = [(x - top).exp() for x in logits]
    return [x / total(exps) for x in exps]


def matrix(rows: list) -> Tensor:
    return torch.stack([torch.stack(row) for row in rows])


def agreement_routing(votes, iterations, normalise, input_mask=None, output_mask=None):
    """li2019 Algorithm 1, dou2019 Algorithm 1, duan2020 Algorithm 1.

    Returns capsules [N, D], logits [I, N] after the last update, and C of each iteration.
    """
    I, N, _ = votes.shape
    inputs = [i for i in range(I) if input_mask is None or input_mask[i]]
    outputs = [n for n in range(N) if output_mask is None or output_mask[n]]
    b = [[zero() for _ in range(N)] for _ in range(I)]  # line 2: B = 0
    trace = []
    for _ in range(iterations):  # line 3
        C = [[zero() for _ in range(N)] for _ in range(I)]
        for i in inputs:  # line 4: C = softmax(B), over the output capsules
            for n, c in zip(outputs, softmax([b[i][n] for n in outputs]) if outputs else []):
                C[i][n] = c
        out = [votes[0, n] * 0 for n in range(N)]
        for n in outputs:
            S = out[n] + total(C[i][n] * votes[i, n] for i in inputs)  # duan eq 7
            if normalise:  # li2019 eq 7
                S = S / total(C[i][n] for i in inputs).clamp(min=MASS_FLOOR)
            out[n] = squash(S)  # li2019 eq 8
        for i in inputs:  # line 6: B += out . V
            for n in outputs:
                b[i][n] = b[i][n] + out[n].dot(votes[i, n])
        trace.append(matrix(C))
    return torch.stack(out), matrix(b), trace


def dynamic_routing(votes, iterations, input_mask=None, output_mask=None):
    return agreement_routing(votes, iterations, False, input_mask, output_mask)


def simple_routing(votes, iterations):
    capsules, _, trace = agreement_routing(votes, iterations, True)
    return capsules, trace


def inverted_routing(votes, iterations):
    """Tsai et al. 2020, eq 2 to 4, with uniform r in the first iteration.

    Returns capsules [N, D] and r of each iteration.
    """
    I, N, D = votes.shape
    r = [[zero() + 1 / N for _ in range(N)] for _ in range(I)]
    p, trace = None, []
    for _ in range(iterations):
        if p is not None:
            for i in range(I):
                r[i] = softmax([p[n].dot(votes[i, n]) / D**0.5 for n in range(N)])
        trace.append(matrix(r))
        p = [total(r[i][n] * votes[i, n] for i in range(I)) for n in range(N)]
        if D > 1:
            p = [layer_norm(x, (D,)) for x in p]
    return torch.stack(p), trace


def em_routing(
    votes,
    beta_a,
    beta_u,
    iterations,
    activation=None,
    variance_floor=VARIANCE_FLOOR,
    coefficients=None,
):
    """li2019 Algorithm 2, dou2019 Algorithm 2; densities multiplied over D, as Hinton et al. do.

    Returns capsules [N, D] and C of each iteration.
    """
    I, N, _ = votes.shape
    C = [[zero() + 1 / N for _ in range(N)] for _ in range(I)]  # line 2
    if coefficients is not None:  # a control starts with others
        C = [list(row) for row in coefficients]
    trace = []
    for t in range(iterations):  # line 3
        trace.append(matrix(C))
        lam = 1 + (min(iterations, 3) - 1) * t / max(1, iterations - 1)
        # M-step
        mu, var, A = [], [], []
        for n in range(N):
            R = [C[i][n] for i in range(I)]
            if activation is not None:  # dou2019 Algorithm 2, M-step line 3
                R = [
                    R[i] * (activation[i] if activation.dim() == 1 else activation[i, n])
                    for i in range(I)
                ]
            r = total(R)
            mass = r.clamp(min=MASS_FLOOR)
            mu.append(total(R[i] * votes[i, n] for i in range(I)) / mass)  # eq 10
            squares = total(R[i] * (votes[i, n] - mu[n]) ** 2 for i in range(I))
            var.append(squares / mass + variance_floor)  # eq 11
            chi = total((var[n].sqrt().log() + (1 + math.log(2 * math.pi)) / 2) * r)
            A.append(1 / (1 + (-lam * (beta_a[n] - beta_u[n] * r - chi)).exp()))
        # E-step
        if t == iterations - 1:
            break
        for i in range(I):
            weighted = []
            for n in range(N):
                distance = (votes[i, n] - mu[n]) ** 2
                p = (-distance / (2 * var[n])).exp() / (2 * math.pi * var[n]).sqrt()
                weighted.append(A[n] * math.prod(p))
            for n in range(N):
                C[i][n] = weighted[n] / total(weighted)  # eq 12
    return torch.stack([A[n] * mu[n] for n in range(N)]), trace


def real(mask, position) -> bool:
    return mask is None or bool(mask[position])


def vertical_routing(e, iterations, query_mask=None, key_mask=None):
    """duan2020 Algorithm 2, for one cube e [H, L, K]: capsules [L, K], logits [H, L]."""
    votes = e if key_mask is None else e * key_mask  # eq 8, padded keys at 0
    capsules, logits, _ = dynamic_routing(votes, iterations, output_mask=query_mask)  # eq 9
    return capsules, logits


def horizontal_routing(e, iterations, query_mask=None, key_mask=None, causal=False):
    """duan2020 Algorithm 3, for one cube e [H, L, K]: a loop over positions, capsules [H, L, K]."""
    votes = e if key_mask is None else e * key_mask  # eq 12
    votes = votes.tril() if causal else votes  # future keys at 0, too (section 3.4.3)
    rows = []
    for q in range(e.size(1)):  # Algorithm 3: for l = 1 -> L, over t <= l
        if not real(query_mask, q):
            rows.append(e[:, q] * 0)
            continue
        inputs = [t for t in range(q + 1) if real(query_mask, t)]
        rows.append(dynamic_routing(votes[:, inputs].transpose(0, 1), iterations)[0])  # eq 14
    return torch.stack(rows, dim=1)
