"""Each usual mix-up is named, also through the noise of a type, and nothing is named that is none."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.runtime.mixups import find_mixup

HIDDEN, HEAD_DIM, TAPS, RANK = 64, 32, 3, 16
FACTS: Any = SimpleNamespace(head_dim=HEAD_DIM, hidden_size=HIDDEN, taps=(1, 2, 3), stages=None, rotation=None)

Q, K, UP, FC = "layers.0.self_attn.q_proj.weight", "layers.1.self_attn.k_proj.weight", "mlp.up", "fc.weight"
NORM, CONFIDENCE = "layers.0.self_attn.q_norm.weight", "confidence_head.proj.weight"


def checkpoint() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return 0.1 * torch.randn(shape, generator=generator)

    return {
        Q: normal(HIDDEN, HIDDEN),
        K: normal(HEAD_DIM, HIDDEN),
        UP: normal(HIDDEN, HIDDEN),
        FC: normal(HIDDEN, TAPS * HIDDEN),
        NORM: 1 + normal(HEAD_DIM),
        "layers.1.self_attn.q_norm.weight": 1 + normal(HEAD_DIM),
        CONFIDENCE: normal(1, HIDDEN + RANK),
    }


def to_norm(t: torch.Tensor) -> torch.Tensor:
    """Pairs (i, i + 16) of each head come to stand side by side."""
    rows = [head * HEAD_DIM + i + half for head in range(len(t) // HEAD_DIM) for i in range(16) for half in (0, 16)]
    return t[rows]


def to_neox(t: torch.Tensor) -> torch.Tensor:
    back = torch.empty_like(t)
    back[to_norm(torch.arange(len(t)))] = t
    return back


def blocks(order: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.cat([t[:, i * HIDDEN : (i + 1) * HIDDEN] for i in order], 1)


def negated_rows(t: torch.Tensor) -> torch.Tensor:
    changed = t.clone()
    changed[[5, 9]] *= -1
    return changed


CASES: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], str]] = {
    "another": (Q, lambda _t: checkpoint()[UP], f"it is {UP}"),
    "transposed": (Q, lambda t: t.T, "it is transposed"),
    "norm": (Q, to_norm, "its heads are permuted as for NORM RoPE"),
    "norm-k": (K, to_norm, "its heads are permuted as for NORM RoPE"),
    "neox": (Q, to_neox, "its heads are permuted as for NeoX RoPE"),
    "norm-of-norm": (NORM, to_norm, "its heads are permuted as for NORM RoPE"),
    "other-norm": (NORM, lambda _t: checkpoint()["layers.1.self_attn.q_norm.weight"], "it is layers.1.self_attn"),
    "taps": (FC, blocks((2, 0, 1)), "its taps are in the order [2, 0, 1]"),
    "interleaved": (FC, lambda t: t.reshape(HIDDEN, TAPS, HIDDEN).mT.reshape(t.shape), "its taps are interleaved"),
    "markov-first": (CONFIDENCE, lambda t: torch.cat((t[:, HIDDEN:], t[:, :HIDDEN]), 1), "its Markov part stands"),
    "doubled": (UP, lambda t: 2 * t, "it is 2 times it"),
    "negated": (UP, lambda t: -t, "it is -1 times it"),
    "a little more": (NORM, lambda t: 1.01 * t, "it is 1.01 times it"),
    "reversed": (UP, lambda t: t.flip(0), "it is reversed"),
    "rows": (UP, negated_rows, "2 of its 64 rows differ, the first is row 5"),
    "unknown": (UP, lambda t: t.roll(7, 1).exp(), ""),
    "zeros": (UP, torch.zeros_like, "it is all zeros"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("noisy", [False, True])
def test_mixup_is_named(name: str, noisy: bool) -> None:
    own, change, words = CASES[name]
    got = change(checkpoint()[own]).contiguous()
    if noisy and got.dim() > 1 and got.shape[1] % 32 == 0:
        packed = gguf.quants.quantize(got.numpy(), gguf.GGMLQuantizationType.Q4_0)
        got = torch.from_numpy(np.array(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q4_0)))
        words = {"it is 2 times it": "it is 1.9", "it is -1 times it": "it is -"}.get(words, words)
    found = find_mixup(got, own, checkpoint(), FACTS)
    assert found.startswith(words)
    assert bool(found) == bool(words)
