"""Gated heads: how they start, what they read, and what observers see of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from capsnmt.modules.disagreement import TERMS, record_disagreement
from capsnmt.modules.head_aggregation import HeadGate
from tests.modules.attention_oracle import HEADS, WIDTH, attention
from tests.support import build


def inputs(length: int = 5) -> Tensor:
    return torch.randn(length, 2, WIDTH, dtype=torch.float64)


def test_a_gate_starts_around_one_half_as_further_columns_of_the_query_projection() -> None:
    torch.manual_seed(0)
    gate = HeadGate(512, 8)
    assert {name: p.shape for name, p in gate.named_parameters()} == {"projection.weight": (8, 512)}
    queries = torch.nn.init.xavier_uniform_(torch.empty(512 + 8, 512), gain=1 / math.sqrt(2))
    torch.testing.assert_close(gate.projection.weight.std(), queries.std(), rtol=0.05, atol=0)
    gates = gate(torch.randn(50, 20, 512), torch.ones(20, 8, 50, 1))
    assert abs(gates.mean() - 0.5) < 0.02
    assert 0.1 < gates.std() < 0.25


def test_a_gate_without_weights_halves_every_head() -> None:
    gated, plain = attention("gated"), attention()
    plain.load_state_dict(gated.state_dict(), strict=False)
    x = inputs()
    with torch.no_grad():
        gated.head_gate.projection.weight.zero_()
        plain.out_proj.weight.mul_(0.5)
    torch.testing.assert_close(gated(x, x, x)[0], plain(x, x, x)[0])


def test_the_gates_of_encoder_decoder_attention_read_the_decoder() -> None:
    module = attention("gated", cross=True)
    seen = []
    module.head_gate.projection.register_forward_hook(lambda _, given, out: seen.append(given[0]))
    query, memory = inputs(3), inputs()
    module(query, memory, memory)
    assert len(seen) == 1
    assert seen[0] is query


def test_an_observer_sees_the_heads_before_their_gates() -> None:
    """So that O = A V, as in the papers' terms; a gate changes lengths, not directions."""
    gated, plain = attention("gated"), attention()
    plain.load_state_dict(gated.state_dict(), strict=False)
    x, terms = inputs(), {}
    for module in (gated, plain):
        module.role = "enc-self"
        with record_disagreement(TERMS, ["enc-self"]) as record:
            module(x, x, x)
        terms[module] = record.values
    torch.testing.assert_close(terms[gated], terms[plain])


def test_a_gate_closes_one_head_alone() -> None:
    torch.manual_seed(0)
    gate = HeadGate(WIDTH, HEADS).double()
    with torch.no_grad():
        gate.projection.weight.zero_()[1] = -1000.0
    heads = torch.randn(2, HEADS, 5, 4, dtype=torch.float64)
    scaled = gate(torch.ones(5, 2, WIDTH, dtype=torch.float64), heads)
    assert not scaled[:, 1].any()
    torch.testing.assert_close(scaled[:, [0, 2]], heads[:, [0, 2]] / 2)


def test_a_gate_is_quantised_with_the_projections() -> None:
    noise = ("--quant-noise-pq", "0.5", "--quant-noise-pq-block-size", "4")
    model = build("capsnmt_transformer", "--head-aggregation", "gated", *noise).train()
    attention = model.encoder.layers[0].self_attn
    x = torch.randn(5, 2, 16)
    for projection in (attention.head_gate.projection, attention.q_proj):
        assert not torch.equal(projection(x), projection(x))
        projection.eval()
        assert torch.equal(projection(x), projection(x))
