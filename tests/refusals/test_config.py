"""Configs that are wrong by themselves or against the tensors (failures.md 1b, 1e)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkpoints import ABSENT, Pair, Tensors
from tests.conftest import Convert
from tests.refusals.case import Case, both, check_refused, config, put, tensors

MASK = "config.json: mask_token_id"
TAPS = "target_layer_ids"


def mask(value: Any, *says: str) -> Case:
    shown = str(value).replace("'", "")
    return Case(f"D18 mask {value!r}", config(mask_token_id=value), (("config-value", MASK),), (shown, *says))


def heads(q: Any, kv: Any, where: str, more: tuple[tuple[str, str], ...] = ()) -> Case:
    return Case(
        f"D65 {q} heads, {kv} of keys",
        config(num_attention_heads=q, num_key_value_heads=kv),
        (("config-value", f"config.json: {where}"), *more),
    )


def value(key: str, bad: Any, *says: str) -> Case:
    return Case(f"{key} {bad!r}"[:60], config(**{key: bad}), (("config-value", f"config.json: {key}"),), says)


def unsupported(where: str, *says: str, **changes: Any) -> Case:
    return Case(f"{where} {changes}", config(**changes), (("config-unsupported", where),), (where, *says))


def rotation(key: str, rope: dict[str, Any]) -> Case:
    where = f"config.json: rope_parameters.{key}"
    return Case(f"rotation {rope}"[:60], config(rope_parameters=rope), (("config-value", where),), ("'yarn'",))


def unscaled(kind: str, changes: dict[str, Any]) -> Case:
    """A scaled rotation without its factor."""
    return Case(f"{kind} without a factor", config(**changes), (("config-missing", "rope_factor"),), (kind, "factor"))


def endless(changes: dict[str, Any]) -> Case:
    """Windows without a length."""
    return Case(f"{changes}"[:60], config(**changes), (("config-missing", "sliding_window"),), ("window", "length"))


def missing(key: str, name: str | None = None) -> Case:
    return Case(f"{key} missing", config(**{key: ABSENT}), (("config-missing", name or key),), (key, "config.json"))


#: with other head counts the projections have another shape too
WIDE = tuple(("tensor-shape", f"layers.{i}.self_attn.{kv}_proj.weight") for i in range(3) for kv in "kv")


def no_heads(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith(("markov_head.", "confidence_head."))]:
        del tensors[name]


def no_layers(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith("layers.")]:
        del tensors[name]


ROPE = {"rope_theta": 10000.0, "rope_type": "default"}

CASES = [
    Case(
        "D17 no mask",
        config(mask_token_id=ABSENT),
        (("config-missing", "mask_token_id"),),
        ("mask_token_id", "dflash_config.mask_token_id"),
    ),
    mask(99999, "512"),
    mask(512, "512"),
    mask("507", "an integer"),
    mask(507.0, "an integer"),
    mask(True, "an integer"),
    mask([507], "an integer"),
    mask(-1, "at least 0"),
    Case("D20 tap beyond", config(target_layer_ids=[0, 1, 77]), (("taps-out-of-range", TAPS),), ("78", "4-layer")),
    Case("D20 tap at the end", config(target_layer_ids=[0, 1, 3]), (("taps-out-of-range", TAPS),), ("0 to 3",)),
    Case(
        "D20 tap below the embeddings",
        config(target_layer_ids=[-2, 0, 1]),
        (("config-value", "config.json: target_layer_ids"),),
        ("-2", "-1"),
    ),
    Case(
        "D21 two taps",
        config(target_layer_ids=[0, 1]),
        (("tensor-shape", "fc.weight"),),
        ("[128, 384]", "[128, 256]", "n_taps"),
    ),
    Case(
        "D21 four taps",
        config(target_layer_ids=[-1, 0, 1, 2]),
        (("tensor-shape", "fc.weight"),),
        ("[128, 384]", "[128, 512]"),
    ),
    Case(
        "D21 duplicates, --strict",
        config(target_layer_ids=[1, 1, 1]),
        (),
        ("[2, 2, 2]", "twice"),
        ("--strict",),
        warnings=(("taps-duplicate", TAPS),),
    ),
    Case(
        "D21 unsorted, --strict",
        config(target_layer_ids=[2, 0, 1]),
        (),
        ("[3, 1, 2]", "order"),
        ("--strict",),
        warnings=(("taps-unsorted", TAPS),),
    ),
    missing("target_layer_ids"),
    value("target_layer_ids", [], "a list of integers"),
    value("target_layer_ids", [0, 1.0, 2], "a list of integers"),
    value("target_layer_ids", [0, True, 2], "a list of integers"),
    value("target_layer_ids", ["x"] * 100_000, "a list of integers"),
    missing("block_size"),
    value("block_size", 0, "1 to 256"),
    value("block_size", 2**31, "1 to 256"),
    value("block_size", "7", "an integer"),
    # the tensors that hang on it are neither missing nor in the way
    value("markov_rank", "16", "an integer"),
    Case(
        "block of the anchor alone",
        config(block_size=1, sample_from_anchor=False),
        (("config-value", "config.json: block_size"),),
        ("drafts nothing",),
    ),
    Case(
        "no layers, and nothing that says how many",
        both(config(num_hidden_layers=ABSENT), tensors(no_layers)),
        (("config-missing", "n_layer"),),
        ("num_hidden_layers",),
    ),
    Case(
        "what cannot be computed is not told as wrong",
        config(block_size=1, sample_from_anchor=False, vocab_size=ABSENT),
        (("config-value", "config.json: block_size"), ("config-missing", "vocab_size")),
    ),
    Case(
        "early dialect without a Markov head",
        both(config(markov_rank=0, enable_confidence_head=False, sample_from_anchor=False), tensors(no_heads)),
        (("dialect", "markov_rank"),),
        ("--dialect dflash",),
        ("--dialect", "dspark"),
    ),
    missing("hidden_size"),
    missing("rms_norm_eps"),
    missing("max_position_embeddings", "context_length"),
    value("max_position_embeddings", 2**32, "2147483647"),
    value("hidden_size", 2**40, "1048576"),
    Case(
        "D24 padded vocabulary",
        both(
            config(draft_vocab_size=576),
            tensors(put("lm_head.weight", "BF16", 576, 128), put("markov_head.markov_w2.weight", "BF16", 576, 16)),
        ),
        (("config-value", "config.json: draft_vocab_size"),),
        ("576", "512", "d2t"),
    ),
    Case(
        "D29 a reduced vocabulary, and heads of the whole one",
        both(config(draft_vocab_size=256), tensors(put("d2t", "I64", 256))),
        (("tensor-shape", "lm_head.weight"), ("tensor-shape", "markov_head.markov_w2.weight")),
        ("[256, 128]", "[256, 16]"),
    ),
    Case(
        "D29 a reduced vocabulary without its table",
        both(
            config(draft_vocab_size=256),
            tensors(put("lm_head.weight", "BF16", 256, 128), put("markov_head.markov_w2.weight", "BF16", 256, 16)),
        ),
        (("config-value", "config.json: draft_vocab_size"), ("tensor-missing", "d2t")),
        ("256", "reduced"),
    ),
    Case(
        "D15 gated",
        config(markov_head_type="gated"),
        (("config-value", "config.json: markov_head_type"),),
        ("'gated'", "'vanilla'", "llama.cpp"),
    ),
    Case(
        "D15 rnn, nested",
        config(markov_head_type=ABSENT, dflash_config={"markov_head_type": "rnn"}),
        (("config-value", "config.json: dflash_config.markov_head_type"),),
        ("'rnn'", "'vanilla'"),
    ),
    Case(
        "two rotations that disagree",
        config(rope_scaling={"rope_type": "yarn", "factor": 4.0}),
        (("config-disagrees", "rope_type"),),
        ("'default'", "'yarn'"),
    ),
    rotation("rope_type", {"rope_theta": 1e4, "rope_type": "llama3", "factor": 8.0}),
    rotation("type", {"rope_theta": 1e4, "type": "dynamic", "factor": 8.0}),
    rotation("full_attention.rope_type", {"full_attention": {"rope_theta": 1e4, "rope_type": "longrope"}}),
    unscaled("yarn", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}),
    unscaled("linear", {"rope_parameters": {"full_attention": {"rope_theta": 1e4, "rope_type": "linear"}}}),
    endless({"dflash_config": {"use_swa": True}}),
    endless({"use_sliding_window": True}),
    endless({"use_sliding_window": ABSENT, "layer_types": ["full_attention"] * 2 + ["sliding_attention"]}),
    value("layer_types", ["full_attention"] * 2 + ["linear_attention"], "'full_attention' or 'sliding_attention'"),
    value("layer_types", ["full_attention"] * 2, "every layer needs a type"),
    value("sliding_window", 0, "1 to 2147483647"),
    Case(
        "causal in two places that disagree",
        config(is_causal=False, dflash_query_causal=True),
        (("config-disagrees", "causal"),),
        ("is_causal", "dflash_query_causal"),
    ),
    unsupported("hidden_act", "'gelu'", hidden_act="gelu"),
    Case(
        "D60 no theta",
        config(rope_parameters=ABSENT),
        (("config-missing", "rope_theta"),),
        ("rope_theta", "rope_parameters.rope_theta"),
    ),
    Case(
        "D60 two that disagree",
        config(rope_theta=5e6),
        (("config-disagrees", "rope_theta"),),
        ("rope_parameters.rope_theta", "10000.0", "5000000.0"),
    ),
    Case(
        "D60 a container that is none",
        config(rope_parameters=[ROPE]),
        (("config-missing", "rope_theta"), ("config-value", "config.json: rope_parameters")),
        ("rope_parameters", "an object of keys"),
    ),
    Case(
        "a scaling that is no object",
        config(rope_scaling="linear"),
        (("config-value", "config.json: rope_scaling"),),
        ("'linear'", "an object of keys"),
    ),
    Case(
        "a factor without a kind",
        config(rope_scaling={"factor": 4.0}, rope_parameters=ABSENT, rope_theta=1e4),
        (("config-missing", "rope_type"),),
        ("rope_scaling.factor", "rope_type is missing"),
    ),
    Case(
        "two lengths of a window, of which none is missing",
        config(dflash_config={"use_swa": True, "swa_window_size": 8}, sliding_window=9),
        (("config-disagrees", "sliding_window"),),
        ("swa_window_size says 8", "sliding_window says 9"),
    ),
    Case(
        "a factor that is none, and so not missing",
        config(rope_parameters={"rope_theta": 1e4, "rope_type": "yarn", "factor": "4"}),
        (("config-value", "config.json: rope_parameters.factor"),),
        ("'4'",),
    ),
    Case(
        "mask in two places that disagree",
        config(dflash_config={"mask_token_id": 506}),
        (("config-disagrees", "mask_token_id"),),
        ("506", "507", "dflash_config.mask_token_id"),
    ),
    Case(
        "anchor in two places that disagree",
        config(sample_from_anchor=True, dspark_bonus_anchor=True),
        (("config-disagrees", "sample_from_anchor"),),
        ("dspark_bonus_anchor", "sample_from_anchor"),
    ),
    heads(4, 3, "num_key_value_heads", WIDE),
    heads(4, 8, "num_key_value_heads", WIDE),
    heads(4, 0, "num_key_value_heads"),
    heads(0, 2, "num_attention_heads"),
    value("head_dim", 0, "2 to 4096"),
    value("attention_bias", True, "no attention biases"),
    Case(
        "several at once",
        both(
            config(mask_token_id=ABSENT, block_size=0, hidden_act="gelu", target_layer_ids=[0, 1], some_new_field=3),
            tensors(lambda t: t.pop("norm.weight"), put("extra.weight", "BF16", 4)),
        ),
        (
            ("config-missing", "mask_token_id"),
            ("config-value", "config.json: block_size"),
            ("config-unsupported", "hidden_act"),
            ("tensor-shape", "fc.weight"),
            ("tensor-missing", "norm.weight"),
            ("tensor-unknown", "extra.weight"),
        ),
        ("6 problems",),
        warnings=(("config-unread", "some_new_field"),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)
