"""Mutants of Gemma4's layers: keys that are values too, norms around each half, scales of layers and embeddings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gguf import GGUFValueType as Type

from tests.mutations.changes import HIDDEN, LAYERS, Array, copied, lost, on, swapped
from tests.mutations.copies import Change, Copy, Mutant
from tests.mutations.family_layers import dropped, every, together
from tests.mutations.metadata import add, write

#: of fixtures.gemma4
HEAD_DIM = 64
FREQS = "rope_freqs.weight"
NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def gemma4() -> Iterator[Mutant]:
    yield from rotation()
    yield from norms()
    yield from scales()
    yield from values()


def rotation() -> Iterator[Mutant]:
    """8 of the 32 pairs turn: the others are divided by 1e30."""
    yield Mutant("rope_freqs lost", lost(FREQS))
    yield Mutant("rope_freqs one pair late", on([FREQS], lambda a: np.concatenate([a[:1], a[:-1]])))
    yield Mutant("rope_freqs one pair early", on([FREQS], lambda a: np.concatenate([a[1:], a[-1:]])))
    yield Mutant("rope_freqs in reverse", on([FREQS], lambda a: a[::-1]))
    yield Mutant("rope_freqs all 1", on([FREQS], np.ones_like))
    yield Mutant("rope_freqs inverted", on([FREQS], lambda a: 1 / a))
    yield Mutant("rope_freqs doubled", on([FREQS], lambda a: np.where(a == 1, 2, a).astype(a.dtype)))
    yield Mutant(
        "rope_freqs every fourth", on([FREQS], lambda a: np.where(np.arange(len(a)) % 4, 1e30, 1).astype("f4"))
    )
    yield Mutant("a quarter of the dimensions rotated", add(rope__dimension_count=(Type.UINT32, HEAD_DIM // 4)))
    yield Mutant(
        "a quarter of the dimensions rotated without rope_freqs",
        together(lost(FREQS), add(rope__dimension_count=(Type.UINT32, HEAD_DIM // 4))),
    )
    yield Mutant("base of the windowed layers", write("rope.freq_base", 10_000.0))
    order = np.arange(HEAD_DIM).reshape(2, -1).T.reshape(-1)

    def permuted(a: Array) -> Array:
        return a.reshape(-1, HEAD_DIM, *a.shape[1:])[:, order].reshape(a.shape)

    yield Mutant("queries permuted to NORM", on(every("attn_q"), permuted))
    yield Mutant("queries' norms permuted to NORM", on(every("attn_q_norm"), permuted))


def norms() -> Iterator[Mutant]:
    post, ffw = "blk.{}.post_attention_norm.weight", "blk.{}.post_ffw_norm.weight"
    yield Mutant("post norms swapped", together(*(swapped(post.format(i), ffw.format(i)) for i in range(LAYERS))))
    yield Mutant("post norms of one layer swapped", swapped(post.format(1), ffw.format(1)))
    yield Mutant("post_attention_norm and ffn_norm swapped", together(*(pair(i, "ffn_norm") for i in range(LAYERS))))
    yield Mutant("all norms + 1, as Gemma3 stores them", on(every(*NORMS), lambda a: a + 1))
    yield Mutant("all norms - 1", on(every(*NORMS), lambda a: a - 1))
    yield Mutant("final norms + 1", on(["output_norm.weight", "enc.output_norm.weight"], lambda a: a + 1))
    yield Mutant("q_norm and k_norm swapped", together(*(pair(i, "attn_q_norm", "attn_k_norm") for i in range(LAYERS))))
    yield Mutant("post_attention_norm lost", lost(*every("post_attention_norm")))
    yield Mutant("post_ffw_norm all 1", on(every("post_ffw_norm"), np.ones_like))


def pair(layer: int, one: str, other: str = "post_attention_norm") -> Change:
    return swapped(f"blk.{layer}.{one}.weight", f"blk.{layer}.{other}.weight")


def scales() -> Iterator[Mutant]:
    names = every("layer_output_scale")
    yield Mutant("layer scales lost", lost(*names))
    yield Mutant("layer scale of one layer lost", lost(names[1]))
    yield Mutant("layer scales 1", on(names, np.ones_like))
    yield Mutant("last layer's scale 1", on(names[2:], np.ones_like))
    yield Mutant("layer scales squared", on(names, np.square))
    yield Mutant("layer scales of two layers swapped", swapped(names[0], names[1]))
    yield Mutant("layer scales + 1", on(names, lambda a: a + 1))
    root = float(np.float32(HIDDEN**0.5))
    yield Mutant("embedding scale dropped", dropped("embedding_scale"))
    yield Mutant("embedding scale squared", write("embedding_scale", root * root))
    yield Mutant("embedding scale inverted", write("embedding_scale", 1 / root))
    yield Mutant("embedding scale of another width", write("embedding_scale", float(np.sqrt(np.float32(256)))))
    yield Mutant("attention scale dropped", dropped("attention.scale"))
    yield Mutant("attention scale as usual", write("attention.scale", HEAD_DIM**-0.5))
    yield Mutant("attention scale 0", write("attention.scale", 0.0))


def values() -> Iterator[Mutant]:
    yield Mutant("SiLU for GELU", write("hidden_activation", "silu"))
    yield Mutant("activation dropped", dropped("hidden_activation"))
    yield Mutant("ReLU for GELU", write("hidden_activation", "relu"))
    yield Mutant("projections of values too many", with_values)
    yield Mutant("normed keys as values", together(with_values, on(every("attn_v"), lambda a: a[::-1])))
    yield Mutant("gate and up swapped", together(*(pair(i, "ffn_gate", "ffn_up") for i in range(LAYERS))))
    yield Mutant("key norm lost", lost(*every("attn_k_norm")))
    yield Mutant("backbone qwen3", backbone_of_qwen3)


def with_values(file: Copy) -> None:
    """Keys as projections of values, which a converter adds that knows no shared ones."""
    for layer in range(LAYERS):
        copied(f"blk.{layer}.attn_k.weight", f"blk.{layer}.attn_v.weight")(file)


def backbone_of_qwen3(file: Copy) -> None:
    """Without all that tells Gemma4's layers."""
    with_values(file)
    dropped("attention.scale", "embedding_scale", "hidden_activation")(file)
    lost(*every("post_attention_norm", "post_ffw_norm", "layer_output_scale"), FREQS)(file)


def softcap() -> Iterator[Mutant]:
    """Written though llama.cpp does not compute it, so that what it says has to be right."""
    yield Mutant("cap 20", write("final_logit_softcapping", 20.0))
    yield Mutant("cap 0", write("final_logit_softcapping", 0.0))


def no_softcap() -> Iterator[Mutant]:
    yield Mutant("cap added", add(final_logit_softcapping=(Type.FLOAT32, 30.0)))
