"""Mutants of the tensors: changed in place, taken from somewhere else, lost; ``pieces`` has those of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.mutations.changes import HEADS, HIDDEN, LAYERS, Array, copied, in_layer, lost, negated_row, on, swapped
from tests.mutations.copies import Change, Copy, Mutant
from tests.mutations.pieces import parts, rotations

OWN = (
    "fc.weight",
    "enc.output_norm.weight",
    "output_norm.weight",
    "markov_w1.weight",
    "markov_w2.weight",
    "conf_proj.weight",
    "conf_proj.bias",
)
LAYER = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_q_norm",
    "attn_k_norm",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)
TABLES = ("token_embd.weight", "output.weight")

NORM_FOLLOWS = "a norm follows, which takes the scale away"
NEVER_READ = "no text that is run here reads these rows"

#: mutants that compute what the good file computes, and why: only the comparison of values sees them
SAME_NUMBERS = {
    "fc.weight x2": NORM_FOLLOWS,
    "fc.weight x1.01": NORM_FOLLOWS,
    "blk.1.attn_q.weight x2": NORM_FOLLOWS,
    "blk.1.attn_q.weight x1.01": NORM_FOLLOWS,
    "blk.2.attn_k.weight x2": NORM_FOLLOWS,
    "blk.2.attn_k.weight x1.01": NORM_FOLLOWS,
    "queries and keys negated": "their products are the same",
    "ffn_up x2, ffn_down halved": "what lies between is linear in ffn_up",
    "markov_w1.weight: row 1 negated": NEVER_READ,
    "markov_w1.weight: row 1020 negated": NEVER_READ,
    "markov_w1: rows of the added tokens lost": NEVER_READ,
    "token_embd.weight: row 1020 negated": NEVER_READ,
}

#: what is done to a tensor's values in its place
IN_PLACE: dict[str, Callable[[Array], Array]] = {
    "zeroed": np.zeros_like,
    "x2": lambda a: 2 * a,
    "x1.01": lambda a: a * np.float32(1.01),
    "negated": np.negative,
    "reversed": lambda a: a[::-1],
    "columns reversed": lambda a: a[..., ::-1],
    "rounded to an eighth": lambda a: np.round(a * 8) / np.float32(8),
}


def weights() -> Iterator[Mutant]:
    yield from in_place()
    yield from elsewhere()
    yield from rotations()
    yield from parts()
    yield from tables()


def in_place() -> Iterator[Mutant]:
    """Every kind of tensor, each kind in another layer by turns."""
    places = [(name, [name]) for name in OWN]
    places += [(part, in_layer(index % LAYERS, part)) for index, part in enumerate(LAYER)]
    for kind, names in places:
        for what, make in IN_PLACE.items():
            if kind == "conf_proj.bias" and what in ("reversed", "columns reversed"):
                continue  # one number
            if kind == "conf_proj.weight" and what == "reversed":
                continue  # one row
            if kind.endswith("norm") and what == "columns reversed":
                continue  # its only axis
            if kind in ("enc.output_norm.weight", "output_norm.weight") and what == "columns reversed":
                continue
            yield Mutant(f"{names[0]} {what}", on(names, make))
    for part in ("attn_q", "attn_output"):
        yield Mutant(f"{part} transposed", on(in_layer(1, part), np.transpose))
    yield Mutant("queries and keys negated", on(in_layer(1, "attn_q", "attn_k"), np.negative))
    yield Mutant("ffn_up x2, ffn_down halved", scale_apart)
    yield Mutant(
        "every norm x2", on([n for i in range(LAYERS) for n in in_layer(i, "attn_norm", "ffn_norm")], IN_PLACE["x2"])
    )
    yield Mutant("norms less one, as Gemma stores them", on(in_layer(2, "attn_norm", "ffn_norm"), lambda a: a - 1))


def scale_apart(file: Copy) -> None:
    """The activation between the two is linear in one of them."""
    for name, factor in (("blk.0.ffn_up.weight", 2), ("blk.0.ffn_down.weight", 0.5)):
        file.tensors[name] = file.tensors[name] * np.float32(factor)


def elsewhere() -> Iterator[Mutant]:
    """A tensor where another one belongs."""
    for part in LAYER:
        first, last = in_layer(0, part)[0], in_layer(LAYERS - 1, part)[0]
        yield Mutant(f"{part} of two layers swapped", swapped(first, last))
        yield Mutant(f"{part} taken from the layer before", copied(first, in_layer(1, part)[0]))
    for one, other in (
        ("attn_norm", "ffn_norm"),
        ("attn_q_norm", "attn_k_norm"),
        ("ffn_gate", "ffn_up"),
        ("attn_k", "attn_v"),
        ("attn_q", "attn_output"),
    ):
        yield Mutant(f"{one} and {other} swapped", swapped(*in_layer(1, one, other)))
    yield Mutant("markov_w1 and markov_w2 swapped", swapped("markov_w1.weight", "markov_w2.weight"))
    yield Mutant("output_norm and enc.output_norm swapped", swapped("output_norm.weight", "enc.output_norm.weight"))
    yield Mutant("two layers swapped", two_layers)
    yield Mutant("markov_w1 for markov_w2", copied("markov_w1.weight", "markov_w2.weight"))
    yield Mutant("markov_w2 for markov_w1", copied("markov_w2.weight", "markov_w1.weight"))
    for name in ("fc.weight", "output_norm.weight", "markov_w2.weight", "conf_proj.weight", "blk.2.ffn_up.weight"):
        yield Mutant(f"{name} missing", lost(name))
    yield Mutant("confidence head missing", lost("conf_proj.weight", "conf_proj.bias"))
    yield Mutant("confidence bias missing", lost("conf_proj.bias"))
    yield Mutant("Markov head missing", lost("markov_w1.weight", "markov_w2.weight"))
    yield Mutant("a tensor too many", lambda file: file.tensors.update({"blk.0.attn_q.bias": np.zeros(HIDDEN, "f4")}))
    yield Mutant(
        "a sink too many", lambda file: file.tensors.update({"blk.0.attn_sinks.weight": np.zeros(HEADS, "f4")})
    )


def two_layers(file: Copy) -> None:
    for part in LAYER:
        swapped(*(in_layer(i, part)[0] for i in (0, 1)))(file)


def tables() -> Iterator[Mutant]:
    """The two tables that a draft may share with its target."""
    for name in TABLES:
        for what, make in IN_PLACE.items():
            yield Mutant(f"{name} {what}", on([name], make), "include")
        yield Mutant(f"{name} of another seed", on([name], reseeded), "include")
        yield Mutant(f"{name}: row 1020 negated", on([name], negated_row(1020)), "include")
    yield Mutant("the tables swapped", swapped(*TABLES), "include")
    yield Mutant("the embeddings as head", copied(TABLES[0], TABLES[1]), "include")
    yield Mutant("the head as embeddings", copied(TABLES[1], TABLES[0]), "include")
    yield Mutant("token_embd without output", lost(TABLES[1]), "include")
    yield Mutant("output without token_embd, of another seed", reseeded_head_alone, "include")
    size = 1024
    yield Mutant("d2t shifted", d2t(np.roll(np.arange(size), -1)), "include")
    yield Mutant("d2t as offsets", d2t(np.zeros(size)), "include")
    yield Mutant("d2t beyond the vocabulary", d2t(np.arange(size) + 1), "include")
    yield Mutant("d2t without a head", d2t(np.arange(size)))


def reseeded(a: Array) -> Array:
    return np.random.default_rng(1).normal(0, a.std(), a.shape).astype(a.dtype)


def reseeded_head_alone(file: Copy) -> None:
    del file.tensors[TABLES[0]]
    file.tensors[TABLES[1]] = reseeded(file.tensors[TABLES[1]])


def d2t(ids: Array) -> Change:
    def change(file: Copy) -> None:
        file.tensors["d2t"] = ids.astype(np.int64)

    return change
