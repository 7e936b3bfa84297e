"""Mutants of layers that are Qwen3's but for a detail: windows, causal blocks, sinks, YaRN, part of a head rotated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

import numpy as np
from gguf import GGUFValueType as Type

from tests.mutations.changes import HEAD_DIM, HEADS, LAYERS, copied, in_layer, lost, on, swapped
from tests.mutations.copies import Change, Copy, Mutant, Value
from tests.mutations.metadata import MASK, add, mask, scaled, without, write
from tests.mutations.pieces import TO_NORM, per_head, rotations

WINDOW, PATTERN, CAUSAL = "attention.sliding_window", "attention.sliding_window_pattern", "attention.causal"
FACTOR = 16.0
#: what YaRN multiplies queries and keys with where no key says otherwise
MAGNITUDE = 0.1 * log(FACTOR) + 1


def every(*parts: str) -> list[str]:
    """The tensors ``parts`` of every layer."""
    return [name for layer in range(LAYERS) for name in in_layer(layer, *parts)]


def together(*changes: Change) -> Change:
    def change(file: Copy) -> None:
        for each in changes:
            each(file)

    return change


def dropped(*names: str) -> Change:
    """Keys of the runtime's, and of the file's own where it repeats them."""

    def change(file: Copy) -> None:
        for name in names:
            del file.kv[f"dflash.{name}"]
            file.kv.pop(f"dspark.{name}", None)

    return change


def common(*, anchor: bool, taps: Sequence[int] = (1, 2, 3)) -> Iterator[Mutant]:
    """What can go wrong with every family; ``anchor``: it drafts from the anchor on."""
    yield Mutant("taps as layer outputs", write("target_layers", [tap - 1 for tap in taps]))
    yield Mutant("taps in reverse", write("target_layers", list(taps)[::-1]))
    yield Mutant("mask - 1", lambda file: mask(file.kv[MASK].value - 1)(file))
    yield Mutant("anchor flag flipped", write("sample_from_anchor", not anchor))
    yield Mutant("block_size - 1", scaled("block_size", -1))
    yield Mutant("block_size + 1", scaled("block_size", 1))
    yield Mutant("output_norm and enc.output_norm swapped", swapped("output_norm.weight", "enc.output_norm.weight"))
    yield Mutant("ffn_up of two layers swapped", swapped("blk.0.ffn_up.weight", "blk.2.ffn_up.weight"))


def neox() -> Iterator[Mutant]:
    """Heads whose halves are rotated with each other."""
    whole = every("attn_q", "attn_k", "attn_q_norm", "attn_k_norm")
    yield Mutant("heads permuted to NORM", on(whole, per_head(TO_NORM)))
    yield Mutant("queries permuted to NORM", on(every("attn_q"), per_head(TO_NORM)))


def interleaved() -> Iterator[Mutant]:
    """Heads whose neighbours are rotated with each other in the checkpoint: permuted on writing."""
    yield from (mutant for mutant in rotations() if "permuted" in mutant.name)


def causal() -> Iterator[Mutant]:
    yield Mutant("causal flag dropped", dropped(CAUSAL))
    yield Mutant("causal flag false", write(CAUSAL, False))


def bidirectional() -> Iterator[Mutant]:
    yield Mutant("causal", add(attention__causal=(Type.BOOL, True)))


def windows(width: int, pattern: Sequence[bool] = (True,) * LAYERS) -> Iterator[Mutant]:
    for other in (width - 1, width + 1, width * 2, width // 2):
        yield Mutant(f"window {other}", write(WINDOW, other))
    yield Mutant("window dropped", dropped(WINDOW, PATTERN))
    yield Mutant("window 0", write(WINDOW, 0))
    yield Mutant("window without its pattern", dropped(PATTERN))
    yield Mutant("pattern without its window", dropped(WINDOW))
    rolled, negated = [*pattern[1:], pattern[0]], [not windowed for windowed in pattern]
    others = {"shifted": rolled, "negated": negated, "whole": [True] * LAYERS, "last full": [*pattern[:-1], False]}
    for what, other_pattern in others.items():
        if other_pattern != list(pattern):
            yield Mutant(f"window pattern {what}", write(PATTERN, other_pattern))


def sinks() -> Iterator[Mutant]:
    names = every("attn_sinks")
    yield Mutant("sinks zeroed", on(names, np.zeros_like))
    yield Mutant("sinks of one layer zeroed", on(names[1:2], np.zeros_like))
    yield Mutant("sinks of no weight", on(names, lambda a: a - 100))
    yield Mutant("sinks of one layer lost", lost(names[2]))
    yield Mutant("sinks lost", lost(*names))
    yield Mutant("sinks' heads in reverse", on(names, lambda a: a[::-1]))
    yield Mutant("sinks' heads interleaved over the key heads", on(names, lambda a: a.reshape(2, 2).T.reshape(HEADS)))
    yield Mutant("sinks one head late", on(names, lambda a: np.roll(a, 1)))
    yield Mutant("sinks x2", on(names, lambda a: 2 * a))
    yield Mutant("sinks scaled like scores", on(names, lambda a: a * np.float32(HEAD_DIM**-0.5)))
    yield Mutant("sinks as exponentials", on(names, np.exp))
    yield Mutant("sinks of two layers swapped", swapped(names[0], names[1]))
    yield Mutant("sinks of the first layer in all", together(*(copied(names[0], name) for name in names[1:])))
    yield Mutant("sinks' names as biases", renamed(".attn_sinks.weight", ".attn_sinks.bias"))


def renamed(old: str, new: str) -> Change:
    def change(file: Copy) -> None:
        file.tensors = {name.replace(old, new): tensor for name, tensor in file.tensors.items()}

    return change


def yarn() -> Iterator[Mutant]:
    for name, values in {
        "factor": (FACTOR / 2, FACTOR * 2, 1 / FACTOR, 1.0),
        "original_context_length": (32, 128, 1024),
        "yarn_beta_fast": (16.0, 64.0),
        "yarn_beta_slow": (2.0,),
        "attn_factor": (1 / MAGNITUDE, MAGNITUDE),
    }.items():
        kind = Type.UINT32 if name == "original_context_length" else Type.FLOAT32
        for value in values:
            yield Mutant(f"yarn {name} {value:.3g}", add(**{f"rope__scaling__{name}": (kind, value)}))
    yield Mutant("yarn type linear", add(rope__scaling__type=(Type.STRING, "linear")))
    yield Mutant("yarn type none", add(rope__scaling__type=(Type.STRING, "none")))
    yield Mutant("yarn type dropped", dropped("rope.scaling.type"))
    yield Mutant("yarn factor dropped", dropped("rope.scaling.factor"))
    yield Mutant("yarn original context dropped", dropped("rope.scaling.original_context_length"))
    yield Mutant("yarn lost", lost_keys("dflash.rope.scaling."))
    yield Mutant("yarn base of the target", add(rope__freq_base=(Type.FLOAT32, 50000.0)))


def lost_keys(prefix: str) -> Change:
    def change(file: Copy) -> None:
        file.kv = {key: value for key, value in file.kv.items() if not key.startswith(prefix)}

    return change


def value_scale(scale: float) -> Iterator[Mutant]:
    name = "attention.value_scale"
    yield Mutant("value scale dropped", dropped(name))
    yield Mutant("value scale 1", write(name, 1.0))
    yield Mutant("value scale squared", write(name, scale * scale))
    yield Mutant("value scale inverted", write(name, 1 / scale))
    yield Mutant("value scale rounded", write(name, round(scale, 1)))
    yield Mutant("value scale in the weights too", on(every("attn_v"), lambda a: a * np.float32(scale)))
    yield Mutant(
        "value scale of the scores",
        together(dropped(name), add(attention__scale=(Type.FLOAT32, scale * HEAD_DIM**-0.5))),
    )


def partial_rotary() -> Iterator[Mutant]:
    """Half of each head is rotated."""
    name = "rope.dimension_count"
    yield Mutant("all dimensions rotated", dropped(name))
    yield Mutant("all dimensions rotated, as the key says", write(name, HEAD_DIM))
    yield Mutant("half of the rotated dimensions", write(name, HEAD_DIM // 4))
    yield Mutant("one pair less", write(name, HEAD_DIM // 2 - 2))
    yield Mutant("base of the target's backbone", write("rope.freq_base", 5e6))
    order = np.roll(np.arange(HEAD_DIM), HEAD_DIM // 2)
    heads = every("attn_q", "attn_k", "attn_q_norm", "attn_k_norm")
    yield Mutant("rotated dimensions last", on(heads, per_head(order)))


def inert_rotary() -> Iterator[Mutant]:
    """The config has keys of the target's rotation, which the draft was not trained with."""
    sections = Value(Type.ARRAY, [11, 11, 10, 0], Type.INT32)
    yield Mutant("a quarter rotated, as the target", add(rope__dimension_count=(Type.UINT32, 8)))
    yield Mutant("sections of the target", lambda file: file.kv.update({"dflash.rope.dimension_sections": sections}))


def eps(wrong: float) -> Iterator[Mutant]:
    yield Mutant(f"eps {wrong:g}", write("attention.layer_norm_rms_epsilon", wrong))
    yield Mutant("eps missing", without("dflash.attention.layer_norm_rms_epsilon"))
