"""A tensor is not the checkpoint's: is it one of the usual mix-ups? What it looks like, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, permutations
from typing import TYPE_CHECKING

from dspark_convert.runtime.distance import distance
from dspark_convert.runtime.packing_mixups import other_scales, packings
from dspark_convert.runtime.stored import FP4_BLOCK, Stored

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
OF_HEADS = (
    *("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.q_norm.weight", "self_attn.k_norm.weight"),
    *("attn.wq_b.weight", "attn.wkv.weight", "attn.kv_norm.weight"),
)
#: the projection of the features, one part of its columns a tap
OF_TAPS = ("fc.weight", "main_proj.weight")

#: rows that are compared first; a tensor whose first rows are further away is another
SAMPLE, SAMPLE_NEAR = 16, 0.6


def find_mixup(got: torch.Tensor, own: str, tensors: Mapping[str, torch.Tensor], facts: Facts) -> str:
    """What ``got`` seems to be, given that it should be the checkpoint's ``tensors[own]``; "" if unknown."""
    stored = tensors if isinstance(tensors, Stored) else Stored(tensors)
    if not bool(got.any()):
        return "it is all zeros"
    want = stored[own].float()
    limit = min(NEAR, NEARER * distance(got, want))
    for name in stored:
        if name != own and stored.shape(name) == got.shape and _is(got, stored, name, limit):
            return f"it is {name}"
    for phrase, candidate in chain(packings(want, stored.block(own)), _changed(want, own, facts)):
        if candidate.shape == got.shape and distance(got, candidate) <= limit:
            return phrase
    block = FP4_BLOCK if facts.stages is not None else stored.block(own)
    if block and other_scales(got, want, limit, block):
        return "its numbers are right, and the scales that they share are not"
    factor = float((got.double() * want.double()).sum() / (want.double() ** 2).sum().clamp(min=1e-300))
    if factor and distance(got, factor * want) <= limit:
        return f"it is {factor:.3g} times it"
    return some_rows(got, want)


def _is(got: torch.Tensor, stored: Stored, name: str, limit: float) -> bool:
    """Whether ``got`` is the tensor ``name``; of a stack of experts the first rows tell most apart."""
    if distance(got[:SAMPLE], stored.head(name, SAMPLE).float()) > SAMPLE_NEAR:
        return False
    return distance(got, stored[name].float()) <= limit


def _changed(want: torch.Tensor, own: str, facts: Facts) -> Iterator[tuple[str, torch.Tensor]]:
    """The right tensor, wrong in each of the ways that a converter can mistake it."""

    if want.dim() == 2:
        yield "it is transposed", want.T
    if own.endswith(OF_HEADS):
        turned = _turned(facts)
        heads = want.reshape(-1, facts.head_dim, *want.shape[1:])
        apart, together = "its heads are permuted as for NeoX RoPE", "its heads are permuted as for NORM RoPE"
        if facts.rotation and facts.rotation.neighbours:  # the file's were put back before
            apart = "its heads are permuted twice"
            together = "its heads stand as in the checkpoint, and not as llama.cpp rotates them"
        for phrase, order in ((together, turned.reshape(2, -1).T), (apart, turned.reshape(-1, 2).T)):
            permuted = heads.clone()
            permuted[:, turned] = heads[:, order.reshape(-1)]
            yield phrase, permuted.reshape(want.shape)
    taps = len(facts.taps)
    if own in OF_TAPS and 1 < taps <= MAX_TAPS:
        blocks = want.reshape(len(want), taps, -1)
        for places in map(list, permutations(range(taps))):
            if places != sorted(places):
                yield f"its taps are in the order {places}", blocks[:, places].reshape(want.shape)
        yield "its taps are interleaved", blocks.transpose(1, 2).reshape(want.shape)
    if own == "confidence_head.proj.weight":
        yield "its Markov part stands before the hidden state's", want.roll(-facts.hidden_size, -1)
    yield "it is reversed", want.flip(0)


def _turned(facts: Facts) -> torch.Tensor:
    """Which numbers of a head turn: DeepSeek-V4's last, others' first."""
    import torch

    if facts.stages:
        return torch.arange(facts.head_dim - facts.stages.rope_dims, facts.head_dim)
    return torch.arange(facts.rotation.dims if facts.rotation else facts.head_dim)


def some_rows(got: torch.Tensor, want: torch.Tensor) -> str:
    """How many rows of a tensor differ, where most are right; "" otherwise."""
    if got.dim() < 2:
        return ""
    got, want = got.flatten(0, -2), want.flatten(0, -2)
    sizes = want.double().norm(dim=1)
    far = ((got.double() - want.double()).norm(dim=1) > NEAR * sizes.clamp(min=float(sizes.mean()) / 100)).nonzero()
    if not 0 < len(far) < len(want) / 2:
        return ""
    return f"{len(far):,} of its {len(want):,} rows differ, the first is row {int(far[0])}"
