"""A tensor is not the checkpoint's: is it one of the usual mix-ups? What it looks like, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import TYPE_CHECKING

from dspark_convert.runtime.distance import distance

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.facts import Facts

#: a tensor that is this near to another is that one, rounded; unrelated ones are 1.4 apart
NEAR = 0.3
#: and it is that much nearer to it than to the right one: norms lie near each other
NEARER = 0.3
#: so many taps are tried in every order
MAX_TAPS = 6

#: tensors that hold one vector a head, by the end of their checkpoint names
OF_HEADS = ("q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight")


def find_mixup(got: torch.Tensor, own: str, tensors: Mapping[str, torch.Tensor], facts: Facts) -> str:
    """What ``got`` seems to be, given that it should be the checkpoint's ``tensors[own]``; "" if unknown."""
    want = tensors[own].float()
    limit = min(NEAR, NEARER * distance(got, want))
    for name, other in tensors.items():
        if name != own and other.shape == got.shape and distance(got, other.float()) <= limit:
            return f"it is {name}"
    for phrase, candidate in _changed(want, own, facts):
        if candidate.shape == got.shape and distance(got, candidate) <= limit:
            return phrase
    factor = float((got.double() * want.double()).sum() / (want.double() ** 2).sum().clamp(min=1e-300))
    if factor and distance(got, factor * want) <= limit:
        return f"it is {factor:.3g} times it"
    return _some_rows(got, want)


def _changed(want: torch.Tensor, own: str, facts: Facts) -> Iterator[tuple[str, torch.Tensor]]:
    """The right tensor, wrong in each of the ways that a converter can mistake it."""
    import torch

    if want.dim() == 2:
        yield "it is transposed", want.T
    if own.endswith(OF_HEADS):
        half = torch.arange(facts.head_dim)
        heads = want.reshape(-1, facts.head_dim, *want.shape[1:])
        for style, order in (("NORM", half.reshape(2, -1).T), ("NeoX", half.reshape(-1, 2).T)):
            yield f"its heads are permuted as for {style} RoPE", heads[:, order.reshape(-1)].reshape(want.shape)
    taps = len(facts.taps)
    if own == "fc.weight" and 1 < taps <= MAX_TAPS:
        blocks = want.reshape(len(want), taps, -1)
        for places in map(list, permutations(range(taps))):
            if places != sorted(places):
                yield f"its taps are in the order {places}", blocks[:, places].reshape(want.shape)
        yield "its taps are interleaved", blocks.transpose(1, 2).reshape(want.shape)
    if own == "confidence_head.proj.weight":
        yield "its Markov part stands before the hidden state's", want.roll(-facts.hidden_size, -1)
    yield "it is reversed", want.flip(0)


def _some_rows(got: torch.Tensor, want: torch.Tensor) -> str:
    """Where most rows are right."""
    if got.dim() < 2:
        return ""
    sizes = want.double().norm(dim=1)
    far = ((got.double() - want.double()).norm(dim=1) > NEAR * sizes.clamp(min=float(sizes.mean()) / 100)).nonzero()
    if not 0 < len(far) < len(want) / 2:
        return ""
    return f"{len(far):,} of its {len(want):,} rows differ, the first is row {int(far[0])}"
