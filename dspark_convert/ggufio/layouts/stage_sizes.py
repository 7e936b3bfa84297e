"""Sizes of DeepSeek-V4 stages in a file that states few of them: from its tensors, its target, or as published.

ds4 has the target's shape in its engine, so its files say neither how wide a stage is nor how it scales,
rotates or sees. Widths are those of the tensors; the rest is the target's own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from math import isqrt, prod

from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import KV, SQRT_SOFTPLUS, ValueType, array, boolean, f32, u32
from dspark_convert.words import listed

Shapes = Mapping[str, tuple[int, ...]]

#: what stages take from their target, and the type of mainline's key for it
INHERITED: dict[str, ValueType] = {
    "context_length": ValueType.UINT32,
    "rope.freq_base": ValueType.FLOAT32,
    "rope.dimension_count": ValueType.UINT32,
    "attention.layer_norm_rms_epsilon": ValueType.FLOAT32,
    "attention.sliding_window": ValueType.UINT32,
    "expert_used_count": ValueType.UINT32,
    "expert_weights_scale": ValueType.FLOAT32,
    "expert_weights_norm": ValueType.BOOL,
    "swiglu_clamp_exp": ValueType.FLOAT32,
    "hyper_connection.sinkhorn_iterations": ValueType.UINT32,
    "hyper_connection.epsilon": ValueType.FLOAT32,
}

#: architectures whose stages these are; another target's values would be another model's
TARGETS = ("deepseek4", "deepseek41")

#: the configs of all published DeepSeek-V4 and V4.1
COMMON: dict[str, float | bool] = {
    "context_length": 1_048_576,
    "rope.freq_base": 10_000.0,
    "rope.dimension_count": 64,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 128,
    "expert_used_count": 6,
    "expert_weights_scale": 1.5,
    "expert_weights_norm": True,
    "swiglu_clamp_exp": 10.0,
    "hyper_connection.sinkhorn_iterations": 20,
    "hyper_connection.epsilon": 1e-6,
}

#: hidden size -> name, and where its config says otherwise
PUBLISHED: dict[int, tuple[str, dict[str, float | bool]]] = {
    4096: ("DeepSeek-V4-Flash", {}),
    7168: ("DeepSeek-V4-Pro", {"expert_weights_scale": 2.5}),
    5120: ("DeepSeek-V4.1-Flash", {"expert_used_count": 3, "attention.layer_norm_rms_epsilon": 1e-20}),
}

#: names shown of a list; the rest is counted
SHOWN = 4


def stage_keys(shapes: Shapes, n_layer: int, known: set[str], target: GGUFFile | None) -> tuple[list[KV], Finding]:
    """Mainline's keys that the file leaves out, and what there is to tell of them.

    ``shapes``: those of the tensors by mainline's names; ``known``: names of keys that the file has
    itself. The finding is an error if a value cannot be known.
    """
    found = {name: u32(f"dflash.{name}", value) for name, value in _widths(shapes) if name not in known}
    found["expert_gating_func"] = u32("dflash.expert_gating_func", SQRT_SOFTPLUS)
    found["attention.compress_ratios"] = array("dflash.attention.compress_ratios", ValueType.INT32, [0] * n_layer)
    hidden = shapes.get("blk.0.attn_norm.weight", (0,))[0]
    inherited, assumed, unknown = [], [], []
    for name, kind in INHERITED.items():
        if name in known:
            continue
        value = _of_target(target, name, kind) if target is not None else None
        if value is not None:
            inherited.append(name)
        elif hidden in PUBLISHED:
            value = (COMMON | PUBLISHED[hidden][1])[name]
            assumed.append(name)
        else:
            unknown.append(name)
            continue
        found[name] = _kv(f"dflash.{name}", kind, value)
    return list(found.values()), _tell(inherited, assumed, unknown, hidden, target)


def _widths(shapes: Shapes) -> Iterator[tuple[str, int]]:
    """What the first stage's tensors say; each shape is in ggml order."""

    def axis(name: str, number: int = 0) -> int:
        shape = shapes.get(f"blk.0.{name}", ())
        return shape[number] if number < len(shape) else 0

    heads, width = axis("attn_sinks.weight"), axis("attn_kv_a_norm.weight")
    output = shapes.get("blk.0.attn_output_a.weight", ())
    groups = heads * width // output[0] if output and output[0] else 0
    experts = axis("ffn_gate_exps.weight", 1)
    sizes = {
        "embedding_length": axis("attn_norm.weight"),
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.q_lora_rank": axis("attn_q_a_norm.weight"),
        "attention.output_group_count": groups,
        "attention.output_lora_rank": prod(output[1:]) // groups if groups else 0,
        "expert_count": axis("exp_probs_b.bias"),
        "expert_feed_forward_length": experts,
        "expert_shared_count": axis("ffn_gate_shexp.weight", 1) // experts if experts else 0,
        # The streams' mixing has 2 s + s^2 values.
        "hyper_connection.count": isqrt(axis("hc_attn_base.weight")),
    }
    return ((name, value) for name, value in sizes.items() if value > 0)


def _of_target(target: GGUFFile, name: str, kind: ValueType) -> float | bool | None:
    """The target's own value; of a list with one item a layer the last, where the stages follow."""
    architecture = target.metadata.get("general.architecture")
    key = f"{architecture}.{name}"
    entry = target.metadata.entries.get(key)
    if architecture not in TARGETS or entry is None:
        return None
    if entry.array is None:
        value: float | bool = target.metadata[key]
        return value if entry.type is kind else None
    return target.metadata[key][-1] if entry.array.item_type is kind and entry.array.count else None


def _kv(key: str, kind: ValueType, value: float | bool) -> KV:
    if kind is ValueType.UINT32:
        return u32(key, int(value))
    if kind is ValueType.BOOL:
        return boolean(key, bool(value))
    return f32(key, struct.unpack("f", struct.pack("f", value))[0])  # as it would stand in the file


def _tell(
    inherited: list[str], assumed: list[str], unknown: list[str], hidden: int, target: GGUFFile | None
) -> Finding:
    if unknown:
        source = "the target does not state" if target is not None else "the file leaves to its target"
        message = f"{source} {listed(unknown, SHOWN)}, without which the draft cannot be run."
        return error("layout-sizes", unknown[0], message, "give the target: --target-gguf TARGET.gguf")
    if assumed:
        name = PUBLISHED[hidden][0]
        message = f"the file leaves {listed(assumed, SHOWN)} to its target; taken here are those of {name}."
        return warning("layout-sizes", assumed[0], message, "give the target: --target-gguf TARGET.gguf")
    message = f"the file leaves {listed(inherited, SHOWN)} to its target, from which they are taken."
    return info("layout-sizes", inherited[0] if inherited else "metadata", message)
