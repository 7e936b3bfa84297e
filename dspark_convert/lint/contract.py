"""The tensors that llama.cpp's dflash loader wants of a draft, with their shapes as formulas.

Sizes: h hidden, V target vocabulary, Vd draft vocabulary, R Markov rank, f feed-forward, H and K
query and key/value heads, d and e key and value head width, T taps. Shapes are in ggml order.
Source: ``llama_model_dflash::load_arch_tensors`` (src/models/dflash.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.draft import DFlash2, Draft
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.lint.stage_contract import stages
from dspark_convert.lint.wanted import Wanted


def wanted(file: GGUFFile, draft: Draft) -> Iterator[Wanted]:
    """Every tensor that the loader knows for this draft."""
    h, v, vd, rank = draft.hidden_size, draft.vocab_size, draft.draft_vocab_size, draft.markov_rank
    yield Wanted("fc.weight", (len(draft.target_layers) * h, h))
    yield Wanted("enc.output_norm.weight", (h,))
    yield Wanted("output_norm.weight", (h,))
    yield Wanted("token_embd.weight", (h, v), required=False)
    yield Wanted("output.weight", (h, vd), required=False)
    yield Wanted("d2t", (vd,), required=False)
    if draft.kind == "dspark":
        yield Wanted("markov_w1.weight", (rank, v))
        yield Wanted("markov_w2.weight", (rank, vd))
        yield Wanted("conf_proj.weight", (h + rank, 1), required=draft.has_confidence_head)
        yield Wanted("conf_proj.bias", (1,), required=False)
    if draft.dflash2 is not None:
        selector = draft.dflash2.selector_rank
        yield Wanted("selector_predecessor.weight", (selector, v))
        yield Wanted("selector_successor.weight", (selector, v))
        yield Wanted("selector_hidden.weight", (h, selector))
    if draft.deepseek4 is not None:
        yield from stages(draft, draft.deepseek4)
    else:
        yield from _layers(file, draft)


def _layers(file: GGUFFile, draft: Draft) -> Iterator[Wanted]:
    """Layers like Qwen3's."""
    h = draft.hidden_size
    yield Wanted("rope_freqs.weight", (draft.head_dim // 2,), required=False)
    stated = _number(file, f"{file.metadata['general.architecture']}.attention.value_length")
    # llama.cpp's default; the width of the keys is its own key.
    value_length = stated or h // max(draft.n_head, 1)
    conv = _conv(draft, draft.dflash2) if draft.dflash2 else {}
    for layer in range(draft.n_layer):
        block = f"blk.{layer}."
        yield from _layer(draft, block)
        yield Wanted(f"{block}attn_v.weight", (h, value_length * draft.n_head_kv), required=not draft.shared_kv)
        for name, shape in conv.items():
            yield Wanted(f"{block}{name}", shape)


def _layer(draft: Draft, block: str) -> Iterator[Wanted]:
    h, d, f = draft.hidden_size, draft.head_dim, draft.intermediate_size
    yield Wanted(f"{block}attn_norm.weight", (h,))
    yield Wanted(f"{block}attn_q.weight", (h, d * draft.n_head))
    yield Wanted(f"{block}attn_k.weight", (h, d * draft.n_head_kv))
    yield Wanted(f"{block}attn_output.weight", (d * draft.n_head, h))
    yield Wanted(f"{block}attn_q_norm.weight", (d,))
    yield Wanted(f"{block}attn_k_norm.weight", (d,))
    yield Wanted(f"{block}ffn_norm.weight", (h,))
    yield Wanted(f"{block}ffn_gate.weight", (h, f))
    yield Wanted(f"{block}ffn_up.weight", (h, f))
    yield Wanted(f"{block}ffn_down.weight", (f, h))
    yield Wanted(f"{block}post_attention_norm.weight", (h,), required=False)
    yield Wanted(f"{block}post_ffw_norm.weight", (h,), required=False)
    yield Wanted(f"{block}layer_output_scale.weight", (1,), required=False)
    yield Wanted(f"{block}attn_sinks.weight", (draft.n_head,), required=False)


def _conv(draft: Draft, parts: DFlash2) -> dict[str, tuple[int, ...]]:
    """DFlash2's convolutions of one layer."""
    h, kernel = draft.hidden_size, parts.conv_kernel_size
    projected = 2 * kernel * (h // max(parts.conv_group_size, 1))
    return {
        "attn_conv_base": (h, kernel, 2),
        "attn_conv_proj.weight": (h, projected),
        "ffn_conv_base": (h, kernel, 2),
        "ffn_conv_proj.weight": (h, projected),
    }


def _number(file: GGUFFile, key: str) -> int:
    value = file.metadata.get(key)
    return value if isinstance(value, int) else 0
