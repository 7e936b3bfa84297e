"""Rotary position embeddings (Su et al. 2021) and what the drafts' configs make of them.

YaRN (Peng et al. 2023) as transformers' ``modeling_rope_utils`` computes it. llama.cpp's is the same but for one thing:
it multiplies a file's attention factor by 0.1 · ln(factor) + 1, where transformers takes the config's for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, log, pi

import torch

from dspark_convert.reference.config import Config

#: YaRN's two numbers of turns, where a config leaves them out
BETA_FAST, BETA_SLOW = 32.0, 1.0

#: where a config says which share of a head turns
SHARE = tuple(f"{rope}partial_rotary_factor" for rope in ("", "rope_parameters.", "rope_scaling."))

#: the least width of YaRN's ramp
NARROW = 0.001


@dataclass(frozen=True)
class Yarn:
    """Pairs that turn often within ``original_context`` keep their angles, slow ones have theirs divided by ``factor``.

    Queries and keys are multiplied by ``magnitude``.
    """

    factor: float
    original_context: int
    magnitude: float
    beta_fast: float = BETA_FAST
    beta_slow: float = BETA_SLOW
    truncate: bool = True

    @property
    def usual(self) -> Yarn:
        """With the numbers of turns that llama.cpp takes for every draft, its ramp from whole pairs to whole pairs."""
        return replace(self, beta_fast=BETA_FAST, beta_slow=BETA_SLOW, truncate=True)

    def kept(self, dims: int, theta: float) -> torch.Tensor:
        """[dims / 2] float64: how much of its own angle each pair keeps, from 1 to 0."""
        low, high = (
            dims * log(self.original_context / (turns * 2 * pi)) / (2 * log(theta))
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        pairs = torch.arange(dims // 2, dtype=torch.float64)
        return 1 - ((pairs - low) / max(high - low, NARROW)).clamp(0, 1)


@dataclass(frozen=True)
class Rotation:
    """Of the first ``dims`` numbers of a head; the others stand still.

    A pair are the numbers i and i + dims/2 (NeoX), or ``neighbours`` 2i and 2i + 1. ``divisor`` of all angles.
    """

    theta: float
    dims: int
    neighbours: bool = False
    divisor: float = 1.0
    yarn: Yarn | None = None

    @property
    def usual(self) -> Rotation:
        """See ``Yarn.usual``."""
        return self if self.yarn is None else replace(self, yarn=self.yarn.usual)

    def turn(self, x: torch.Tensor, positions: torch.Tensor, *, float32: bool = False) -> torch.Tensor:
        """``x`` [n, heads, d] at ``positions`` [n]; ``float32``: see ``angles``."""
        by = angles(positions, self.dims // 2, self.theta, float32=float32) / self.divisor
        turned, still = x[..., : self.dims], x[..., self.dims :]
        if self.yarn is not None:
            kept = self.yarn.kept(self.dims, self.theta)
            by = by * kept + by / self.yarn.factor * (1 - kept)
            turned = turned * self.yarn.magnitude
        if self.neighbours:
            apart = torch.cat((turned[..., 0::2], turned[..., 1::2]), -1)
            turned = torch.stack(turn(apart, by).chunk(2, -1), -1).flatten(-2)
        else:
            turned = turn(turned, by)
        return torch.cat((turned, still), -1)


def angles(positions: torch.Tensor, half: int, theta: float, *, float32: bool) -> torch.Tensor:
    """[n, half] float64: position · theta^(-i/half), the angles of RoPE.

    With ``float32`` as llama.cpp rounds them on a CPU: each from the one before it, times theta^(-1/half),
    in float32. PyTorch's float32 rounds otherwise, but as much; far from 0 it is most of the difference.
    """
    if not float32:
        return positions.to(torch.float64)[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    step = torch.tensor(theta ** (-1 / half), dtype=torch.float32)
    turned = [positions.to(torch.float32)]
    while len(turned) < half:
        turned.append(turned[-1] * step)
    return torch.stack(turned, -1).to(torch.float64)


def turn(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Entry i and entry i + d/2 of ``x`` [n, heads, d] turn by the angle i of ``by`` [n, d/2]."""
    half = by.shape[-1]
    cos, sin = (f(by).to(x.dtype)[:, None, :] for f in (torch.cos, torch.sin))
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def read_rotation(config: Config, head_dim: int, *, in_part: bool = False) -> Rotation:
    """The base in any of its spellings, the scaling, the order of the pairs, and how much of a head turns.

    transformers 5 writes ``rope_parameters`` (flat, or one object per kind of layer), 4 wrote ``rope_theta``
    beside ``rope_scaling``. ``in_part``: the config's share of a head is obeyed. The mrope sections
    are left alone: for text they change nothing.
    """
    theta = config.positive("rope_parameters.rope_theta", "rope_parameters.full_attention.rope_theta", "rope_theta")
    neox = [config.flag("rope_is_neox_style"), config.flag("is_neox_style")]
    interleaved = config.flag("rope_interleaved")
    neighbours = False in neox or interleaved is True
    if neighbours and (True in neox or interleaved is False):
        raise config.wrong("rope_is_neox_style", "the opposite of rope_interleaved", config.get("rope_is_neox_style"))
    divisor, yarn = read_scaling(config)
    turning = turning_share(config, head_dim) if in_part else head_dim
    return Rotation(theta, turning, neighbours, divisor, yarn)


def turning_share(config: Config, head_dim: int) -> int:
    """How many numbers of a head turn, where the config says it; Qwen3's rotary embedding reads no such key."""
    key = next((key for key in SHARE if config.get(key) is not None), None)
    share = 1.0 if key is None else config.positive(key)
    if share > 1:
        raise config.wrong(key or SHARE[0], "at most 1", share)
    return int(share * head_dim)


def read_scaling(config: Config) -> tuple[float, Yarn | None]:
    """What all angles are divided by, and YaRN."""
    for rope in ("rope_parameters.full_attention", "rope_parameters", "rope_scaling"):
        kind = config.get(f"{rope}.rope_type", f"{rope}.type")
        if kind is None and rope == "rope_scaling" and config.get(rope) is not None:
            kind = "unnamed"
        if kind == "linear":
            return config.positive(f"{rope}.factor"), None
        if kind == "yarn":
            return 1.0, read_yarn(config, rope)
        if kind not in (None, "default"):
            raise ValueError(f"{config.path}: the reference cannot compute RoPE scaling ({rope} of type {kind!r}).")
    return 1.0, None


def read_yarn(config: Config, rope: str) -> Yarn:
    factor = config.positive(f"{rope}.factor")
    mscale, all_dims = config.get(f"{rope}.mscale"), config.get(f"{rope}.mscale_all_dim")
    if config.get(f"{rope}.attention_factor", f"{rope}.attn_factor") is not None:
        magnitude = config.positive(f"{rope}.attention_factor", f"{rope}.attn_factor")
    elif mscale and all_dims:
        mscale, all_dims = config.positive(f"{rope}.mscale"), config.positive(f"{rope}.mscale_all_dim")
        magnitude = magnitude_of(factor, mscale) / magnitude_of(factor, all_dims)
    else:
        magnitude = magnitude_of(factor)
    return Yarn(
        factor=factor,
        original_context=config.integer(
            f"{rope}.original_max_position_embeddings", default=config.integer("max_position_embeddings")
        ),
        magnitude=magnitude,
        beta_fast=config.positive(f"{rope}.beta_fast") if config.get(f"{rope}.beta_fast") else BETA_FAST,
        beta_slow=config.positive(f"{rope}.beta_slow") if config.get(f"{rope}.beta_slow") else BETA_SLOW,
        truncate=config.flag(f"{rope}.truncate") is not False,
    )


def magnitude_of(factor: float, mscale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * log(factor) + 1
