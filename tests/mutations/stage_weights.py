"""Mutants of a DeepSeek-V4 draft's tensors, on a file of F32: what a converter of this family can mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.mutations.changes import Array, lost, on, swapped
from tests.mutations.copies import Change, Copy, Mutant

#: of fixtures.deepseek4_config
STAGES, HIDDEN, HEAD_DIM, ROTATED, GROUPS, COPIES, TAPS = 3, 192, 32, 16, 2, 4, 3
EXPERTS = ("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight")
SHARED = ("ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight")
MIXES = ("fn", "base", "scale")

#: a head's numbers in the order in which a NeoX rotation pairs its last ones
NEOX = np.concatenate(
    [np.arange(HEAD_DIM - ROTATED), HEAD_DIM - ROTATED + np.arange(ROTATED).reshape(-1, 2).T.reshape(-1)]
)
#: and as if all of them rotated
NEOX_ALL = np.arange(HEAD_DIM).reshape(-1, 2).T.reshape(-1)

QUERIES, KEYS, KEY_NORM = "attn_q_b.weight", "attn_kv.weight", "attn_kv_a_norm.weight"


def stage_weights() -> Iterator[Mutant]:
    yield from rotations()
    yield from routed()
    yield from connections()
    yield from attention()
    yield from heads()


def at(*parts: str, stages: range = range(STAGES)) -> list[str]:
    return [f"blk.{stage}.{part}" for stage in stages for part in parts]


def ordered(order: Array) -> Callable[[Array], Array]:
    return lambda a: a.reshape(-1, HEAD_DIM, *a.shape[1:])[:, order].reshape(a.shape)


def both(*changes: Change) -> Change:
    def change(file: Copy) -> None:
        for each in changes:
            each(file)

    return change


def exchanged(first: str, second: str) -> Change:
    """Two kinds of tensors of every stage."""
    return both(*(swapped(f"blk.{stage}.{first}", f"blk.{stage}.{second}") for stage in range(STAGES)))


def rotations() -> Iterator[Mutant]:
    everything = (QUERIES, KEYS, KEY_NORM)
    yield Mutant("rotated as NeoX", on(at(*everything), ordered(NEOX)))
    yield Mutant("rotated as NeoX, all dimensions", on(at(*everything), ordered(NEOX_ALL)))
    yield Mutant("rotated as NeoX in one stage", on(at(*everything, stages=range(1, 2)), ordered(NEOX)))
    yield Mutant("queries permuted to NeoX", on(at(QUERIES), ordered(NEOX)))
    yield Mutant("keys permuted to NeoX", on(at(KEYS, KEY_NORM), ordered(NEOX)))
    yield Mutant("keys permuted to NeoX without their norm", on(at(KEYS), ordered(NEOX)))
    front = np.roll(np.arange(HEAD_DIM), ROTATED)
    yield Mutant("rotated dimensions first", on(at(*everything), ordered(front)))


def routed() -> Iterator[Mutant]:
    yield Mutant("experts in reverse order", on(at(*EXPERTS), lambda a: a[::-1]))
    yield Mutant(
        "experts as text sorts them: 1, 0", on(at(*EXPERTS, stages=range(1)), lambda a: a[[1, 0, *range(2, 8)]])
    )
    for part in EXPERTS:
        yield Mutant(f"{part} one expert late", on(at(part, stages=range(2, 3)), lambda a: np.roll(a, 1, 0)))
    yield Mutant("w1 and w3 swapped", exchanged(EXPERTS[0], EXPERTS[1]))
    yield Mutant("w1 and w3 of the shared expert swapped", exchanged(SHARED[0], SHARED[1]))
    yield Mutant("w2 transposed", on(at(EXPERTS[2]), lambda a: a.swapaxes(1, 2).reshape(a.shape)))
    yield Mutant("w2 of the shared expert transposed", on(at(SHARED[2]), lambda a: a.T.reshape(a.shape)))
    yield Mutant("experts of another stage", exchanged_stages(*EXPERTS))
    yield Mutant("router bias lost", on(at("exp_probs_b.bias"), np.zeros_like))
    yield Mutant("router bias of experts in reverse", on(at("exp_probs_b.bias"), lambda a: a[::-1]))
    yield Mutant("router bias negated", on(at("exp_probs_b.bias"), np.negative))
    yield Mutant("router in reverse", on(at("ffn_gate_inp.weight"), lambda a: a[::-1]))
    yield Mutant("shared expert lost", on(at(SHARED[2]), np.zeros_like))
    yield Mutant("shared expert missing", lost(*at(*SHARED)))
    yield Mutant("router bias missing", lost(*at("exp_probs_b.bias")))


def connections() -> Iterator[Mutant]:
    for part in MIXES:
        yield Mutant(
            f"hc_attn_{part} and hc_ffn_{part} swapped", exchanged(f"hc_attn_{part}.weight", f"hc_ffn_{part}.weight")
        )
    whole = both(*(exchanged(f"hc_attn_{part}.weight", f"hc_ffn_{part}.weight") for part in MIXES))
    yield Mutant("hc_attn and hc_ffn swapped", whole)
    places = [f"hc_{where}" for where in ("attn", "ffn")]
    scales, bases, functions = ([f"{place}_{part}.weight" for place in places] for part in ("scale", "base", "fn"))
    yield Mutant("hc scales in reverse", on(at(*scales), lambda a: a[::-1]))
    yield Mutant("hc bases: reading and writing swapped", on(at(*bases), written_first))
    yield Mutant("hc functions: reading and writing swapped", on(at(*functions), written_first))
    yield Mutant("hc bases: from and to swapped", on(at(*bases), turned))
    yield Mutant("hc functions: from and to swapped", on(at(*functions), turned))
    yield Mutant("hc functions: streams in reverse", on(at(*functions), streams_reversed))
    yield Mutant("hc bases lost", on(at(*bases), np.zeros_like))
    yield Mutant("head's hc base lost", on(["output_hc_base.weight"], np.zeros_like))
    yield Mutant("head's hc base in reverse", on(["output_hc_base.weight"], lambda a: a[::-1]))
    yield Mutant("head's hc function in reverse", on(["output_hc_fn.weight"], lambda a: a[::-1]))
    yield Mutant("head's hc streams in reverse", on(["output_hc_fn.weight"], streams_reversed))
    yield Mutant("head's hc scale x2", on(["output_hc_scale.weight"], lambda a: 2 * a))


def written_first(a: Array) -> Array:
    return np.concatenate([a[COPIES : 2 * COPIES], a[:COPIES], a[2 * COPIES :]])


def turned(a: Array) -> Array:
    mixing = a[2 * COPIES :].reshape(COPIES, COPIES, *a.shape[1:]).swapaxes(0, 1)
    return np.concatenate([a[: 2 * COPIES], mixing.reshape(COPIES**2, *a.shape[1:])])


def streams_reversed(a: Array) -> Array:
    return a.reshape(len(a), COPIES, HIDDEN)[:, ::-1].reshape(a.shape)


def exchanged_stages(*parts: str) -> Change:
    """Those of stages 0 and 2."""
    return both(*(swapped(f"blk.0.{part}", f"blk.2.{part}") for part in parts))


def attention() -> Iterator[Mutant]:
    yield Mutant("sinks lost", on(at("attn_sinks.weight"), lambda a: a - 100))
    yield Mutant("sinks zero", on(at("attn_sinks.weight"), np.zeros_like))
    yield Mutant("sinks of heads in reverse", on(at("attn_sinks.weight"), lambda a: a[::-1]))
    yield Mutant("sinks missing", lost(*at("attn_sinks.weight")))
    yield Mutant("wo_a groups swapped", on(at("attn_output_a.weight"), groups_reversed))
    yield Mutant("wo_a groups interleaved", on(at("attn_output_a.weight"), interleaved))
    yield Mutant("wo_b columns of groups swapped", on(at("attn_output_b.weight"), lambda a: groups_reversed(a.T).T))
    yield Mutant(
        "query heads in reverse", on(at(QUERIES), lambda a: a.reshape(-1, HEAD_DIM, a.shape[1])[::-1].reshape(a.shape))
    )
    yield Mutant("attn_norm and ffn_norm swapped", exchanged("attn_norm.weight", "ffn_norm.weight"))
    yield Mutant("q_norm in reverse", on(at("attn_q_a_norm.weight"), lambda a: a[::-1]))
    yield Mutant("kv_norm in reverse", on(at(KEY_NORM), lambda a: a[::-1]))
    yield Mutant("kv_norm taken as q_norm", on(at("attn_q_a_norm.weight"), lambda a: np.resize(a[:HEAD_DIM], a.shape)))
    yield Mutant("norms stored less 1", on(at("attn_norm.weight"), lambda a: a - 1))


def groups_reversed(a: Array) -> Array:
    return a.reshape(GROUPS, -1, a.shape[1])[::-1].reshape(a.shape)


def interleaved(a: Array) -> Array:
    return a.reshape(GROUPS, -1, a.shape[1]).swapaxes(0, 1).reshape(a.shape)


def all_of(stage: int) -> Callable[[Copy], list[str]]:
    prefix = f"blk.{stage}."
    return lambda file: [name.removeprefix(prefix) for name in file.tensors if name.startswith(prefix)]


def stages_as(order: list[int]) -> Change:
    def change(file: Copy) -> None:
        old = dict(file.tensors)
        for stage, source in enumerate(order):
            for part in all_of(stage)(file):
                file.tensors[f"blk.{stage}.{part}"] = old[f"blk.{source}.{part}"]

    return change


def heads() -> Iterator[Mutant]:
    yield Mutant("stages in reverse order", stages_as([2, 1, 0]))
    yield Mutant("stages 0 and 1 swapped", stages_as([1, 0, 2]))
    yield Mutant("stage 0 three times", stages_as([0, 0, 0]))

    def taps(order: list[int]) -> Callable[[Array], Array]:
        return lambda a: a.reshape(HIDDEN, TAPS, HIDDEN)[:, order].reshape(a.shape)

    yield Mutant("fc's taps as [2, 1, 0]", on(["fc.weight"], taps([2, 1, 0])))
    yield Mutant("fc's taps as [1, 2, 0]", on(["fc.weight"], taps([1, 2, 0])))
    yield Mutant("output_norm and enc.output_norm swapped", swapped("output_norm.weight", "enc.output_norm.weight"))
    yield Mutant("markov_w1 and markov_w2 swapped", swapped("markov_w1.weight", "markov_w2.weight"))
    yield Mutant("Markov tables one token late", on(["markov_w1.weight"], lambda a: np.roll(a, 1, 0)))
    yield Mutant("confidence: Markov part first", on(["conf_proj.weight"], lambda a: np.roll(a, -HIDDEN, -1)))
    yield Mutant("confidence negated", on(["conf_proj.weight"], np.negative))
    yield Mutant("confidence missing", lost("conf_proj.weight"))
