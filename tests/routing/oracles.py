"""The routing algorithms as in the papers: one scalar at a time, in nested loops.

Every function takes float64 tensors of one example (no leading dims) and returns tensors that
autograd can differentiate. Nothing here is shared with the operators.
"""

import math

import torch
from torch import Tensor

MASS_FLOOR, VARIANCE_FLOOR = 1e-9, 1e-6


def zero() -> Tensor:
    return torch.zeros((), dtype=torch.float64)


def total(terms) -> Tensor:
    result = zero()
    for term in terms:
        result = result + term
    return result


def squash(s: list) -> list:
    """li2019 eq 8, dou2019 eq 5, duan2020 eq 6."""
    squared = total(x * x for x in s)
    if squared == 0:
        return [x * 0 for x in s]
    length = squared.sqrt()
    return [squared / (1 + squared) * (x / length) for x in s]


def softmax(logits: list) -> list:
    top = max(x.item() for x in logits)
    exps = [(x - top).exp() for x in logits]
    return [x / total(exps) for x in exps]


def capsule_tensor(capsules: list) -> Tensor:
    return torch.stack([torch.stack(capsule) for capsule in capsules])


def agreement_routing(votes, iterations, normalise, input_mask=None, output_mask=None):
    """li2019 Algorithm 1, dou2019 Algorithm 1, duan2020 Algorithm 1.

    Returns capsules [N, D], logits [I, N] after the last update, and C of each iteration.
    """
    I, N, D = votes.shape
    inputs = [i for i in range(I) if input_mask is None or input_mask[i]]
    outputs = [n for n in range(N) if output_mask is None or output_mask[n]]
    b = [[zero() for _ in range(N)] for _ in range(I)]  # line 2: B = 0
    trace = []
    for _ in range(iterations):  # line 3
        C = [[zero() for _ in range(N)] for _ in range(I)]
        for i in inputs:  # line 4: C = softmax(B), over the output capsules
            for n, c in zip(outputs, softmax([b[i][n] for n in outputs]) if outputs else []):
                C[i][n] = c
        out = [[votes[0, n, d] * 0 for d in range(D)] for n in range(N)]
        for n in outputs:
            S = [total(C[i][n] * votes[i, n, d] for i in inputs) for d in range(D)]  # duan eq 7
            if normalise:  # li2019 eq 7
                mass = total(C[i][n] for i in inputs).clamp(min=MASS_FLOOR)
                S = [s / mass for s in S]
            out[n] = squash(S)  # li2019 eq 8
        for i in inputs:  # line 6: B += out . V
            for n in outputs:
                b[i][n] = b[i][n] + total(out[n][d] * votes[i, n, d] for d in range(D))
        trace.append(capsule_tensor(C))
    return capsule_tensor(out), capsule_tensor(b), trace


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
                r[i] = softmax(
                    [total(p[n][d] * votes[i, n, d] for d in range(D)) / D**0.5 for n in range(N)]
                )
        trace.append(capsule_tensor(r))
        p = [
            [total(r[i][n] * votes[i, n, d] for i in range(I)) for d in range(D)] for n in range(N)
        ]
        if D > 1:  # LayerNorm
            for n in range(N):
                mean = total(p[n]) / D
                variance = total((x - mean) ** 2 for x in p[n]) / D
                p[n] = [(x - mean) / (variance + 1e-5).sqrt() for x in p[n]]
    return capsule_tensor(p), trace


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
    I, N, D = votes.shape
    C = [[zero() + 1 / N for _ in range(N)] for _ in range(I)]  # line 2
    if coefficients is not None:  # a control starts with others
        C = [list(row) for row in coefficients]
    trace = []
    for t in range(iterations):  # line 3
        trace.append(capsule_tensor(C))
        lam = 1 + (min(iterations, 3) - 1) * t / max(1, iterations - 1)
        # M-step
        mu = [[zero() for _ in range(D)] for _ in range(N)]
        var = [[zero() for _ in range(D)] for _ in range(N)]
        A = [zero() for _ in range(N)]
        for n in range(N):
            R = [C[i][n] for i in range(I)]
            if activation is not None:  # dou2019 Algorithm 2, M-step line 3
                R = [
                    R[i] * (activation[i] if activation.dim() == 1 else activation[i, n])
                    for i in range(I)
                ]
            r = total(R)
            mass = r.clamp(min=MASS_FLOOR)
            chi = zero()
            for d in range(D):
                mu[n][d] = total(R[i] * votes[i, n, d] for i in range(I)) / mass  # eq 10
                var[n][d] = (  # eq 11
                    total(R[i] * (votes[i, n, d] - mu[n][d]) ** 2 for i in range(I)) / mass
                    + variance_floor
                )
                chi = chi + (var[n][d].sqrt().log() + (1 + math.log(2 * math.pi)) / 2) * r
            A[n] = 1 / (1 + (-lam * (beta_a[n] - beta_u[n] * r - chi)).exp())
        # E-step
        if t == iterations - 1:
            break
        for i in range(I):
            weighted = []
            for n in range(N):
                p = zero() + 1
                for d in range(D):
                    distance = (votes[i, n, d] - mu[n][d]) ** 2
                    p = p * ((-distance / (2 * var[n][d])).exp() / (2 * math.pi * var[n][d]).sqrt())
                weighted.append(A[n] * p)
            for n in range(N):
                C[i][n] = weighted[n] / total(weighted)  # eq 12
    return capsule_tensor([[A[n] * mu[n][d] for d in range(D)] for n in range(N)]), trace


def real(mask, position) -> bool:
    return mask is None or bool(mask[position])


def vertical_routing(e, iterations, query_mask=None, key_mask=None):
    """duan2020 Algorithm 2, for one cube e [H, L, K]: capsules [L, K], logits [H, L]."""
    H, L, K = e.shape
    votes = torch.stack(  # eq 8, padded keys at 0
        [
            torch.stack(
                [
                    torch.stack(
                        [e[h, q, k] if real(key_mask, k) else e[h, q, k] * 0 for k in range(K)]
                    )
                    for q in range(L)
                ]
            )
            for h in range(H)
        ]
    )
    capsules, logits, _ = dynamic_routing(votes, iterations, output_mask=query_mask)  # eq 9
    return capsules, logits


def horizontal_routing(e, iterations, query_mask=None, key_mask=None, causal=False):
    """duan2020 Algorithm 3, for one cube e [H, L, K]: a loop over positions, capsules [H, L, K]."""
    H, L, K = e.shape

    def vote(t, h, k):  # eq 12; padded and, in decoders, future keys at 0 (section 3.4.3)
        return e[h, t, k] if real(key_mask, k) and not (causal and k > t) else e[h, t, k] * 0

    rows = []
    for q in range(L):  # Algorithm 3: for l = 1 -> L, over t <= l
        if not real(query_mask, q):
            rows.append(e[:, q] * 0)
            continue
        inputs = [t for t in range(q + 1) if real(query_mask, t)]
        votes = torch.stack(
            [
                torch.stack([torch.stack([vote(t, h, k) for k in range(K)]) for h in range(H)])
                for t in inputs
            ]
        )
        rows.append(dynamic_routing(votes, iterations)[0])  # eq 14
    return torch.stack(rows, dim=1)
