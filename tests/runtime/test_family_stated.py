"""The keys of every family's file against its checkpoint: right files, and one wrong key after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.reference.facts import Facts, read_facts
from dspark_convert.runtime.stated import check_stated
from tests.mutations.copies import Copy, Value, read
from tests.runtime.families import (
    ARRAY,
    BOOLEAN,
    CONVERTED,
    FLOAT,
    INTEGER,
    STRING,
    UNSIGNED,
    Change,
    FamilyFile,
    key,
    without,
)

Family = Callable[[str], FamilyFile]

WINDOW = "attention.sliding_window"
PATTERN = "attention.sliding_window_pattern"
YARN_LENGTH = 1.2772588722239782


@pytest.mark.parametrize("name", CONVERTED)
def test_right_file(family: Family, name: str) -> None:
    metadata, values = family(name).judge()
    assert (metadata.status, values.status) == ("pass", "pass"), (metadata, values)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("kolibri", key(WINDOW, UNSIGNED, 13), f"dflash.{WINDOW} is 13, but the checkpoint has 12"),
        ("kolibri", without(WINDOW), f"dflash.{WINDOW} is 0, but the checkpoint has 12"),
        ("kolibri", without(PATTERN), f"dflash.{PATTERN} is absent"),
        ("kolibri", key("attention.causal", BOOLEAN, True), "dflash.attention.causal is true, but"),
        (
            "speculators_dflash",
            key(PATTERN, ARRAY, [True, True, True], BOOLEAN),
            f"dflash.{PATTERN} is [True, True, True], but the checkpoint has [True, False, True]",
        ),
        (
            "speculators_dflash",
            key("dspark.causal_pattern", ARRAY, [True, True, True], BOOLEAN),
            "dspark.causal_pattern is [True, True, True], but what the checkpoint needs is [True, False, True]",
        ),
        ("speculators_dspark_bonus", without("attention.causal"), "dflash.attention.causal is false, but"),
        ("speculators_dspark_bonus", key("sample_from_anchor", BOOLEAN, True), "dflash.sample_from_anchor is true"),
        ("speculators_dspark_bonus", without("sample_from_anchor"), "dflash.sample_from_anchor is true"),
        (
            "speculators_dspark_bonus",
            key("target_layers", ARRAY, [2, 3, 4], INTEGER),
            "dflash.target_layers is [2, 3, 4], but the checkpoint has [1, 2, 3]",
        ),
        ("nemotron_inner", without("has_confidence_head"), "dflash.has_confidence_head is true, but"),
        ("nemotron_inner", key("sample_from_anchor", BOOLEAN, True), "dflash.sample_from_anchor is true, but"),
        (
            "mimo",
            key("attention.value_scale", FLOAT, 0.7),
            "dflash.attention.value_scale is 0.699999988, but the checkpoint has 0.611999989",
        ),
        ("mimo", without("attention.value_scale"), "dflash.attention.value_scale is 1, but"),
        ("mimo", without("rope.dimension_count"), "dflash.rope.dimension_count is 32, but the checkpoint has 16"),
        (
            "mimo",
            key("rope.dimension_sections", ARRAY, [16, 0, 0, 0], INTEGER),
            "dflash.rope.dimension_sections is [16, 0, 0, 0], but a draft rotates all 8 pairs as one",
        ),
        ("mimo", key("rope.freq_base", FLOAT, 5e6), "dflash.rope.freq_base is 5000000, but the checkpoint has 10000"),
        ("deepspec_qwen36", key("rope.dimension_count", UNSIGNED, 8), "dflash.rope.dimension_count is 8, but"),
        ("specforge_yarn", without("rope.scaling.type"), "dflash.rope.scaling.type is linear, but the checkpoint has"),
        ("specforge_yarn", key("rope.scaling.factor", FLOAT, 8.0), "dflash.rope.scaling.factor is 8, but"),
        (
            "specforge_yarn",
            without("rope.scaling.original_context_length"),
            "dflash.rope.scaling.original_context_length is 1024, but the checkpoint has 64",
        ),
        (
            "specforge_yarn",
            key("rope.scaling.attn_factor", FLOAT, YARN_LENGTH),
            "dflash.rope.scaling.attn_factor is 1.27725887, but the checkpoint has 1",
        ),
        ("specforge_yarn", key("rope.scaling.yarn_beta_fast", FLOAT, 16.0), "dflash.rope.scaling.yarn_beta_fast is 16"),
        ("specforge_yarn", key("rope.scaling.alpha", FLOAT, 2.0), "dflash.rope.scaling.alpha is 2, but the checkpoint"),
        ("specforge", key("rope.scaling.type", STRING, "yarn"), "dflash.rope.scaling.type is yarn, but"),
        ("lfm2", key("dspark.rope_style", STRING, "norm"), "dspark.rope_style is norm, but what the checkpoint needs"),
        ("gemma4", without("attention.scale"), "dflash.attention.scale is 0.125, but the checkpoint has 1"),
        ("gemma4", without("embedding_scale"), "dflash.embedding_scale is 1, but the checkpoint has 11.3137083"),
        ("gemma4", without("hidden_activation"), "dflash.hidden_activation is silu, but the checkpoint has gelu"),
        ("gemma4", key("rope.dimension_count", UNSIGNED, 16), "dflash.rope.dimension_count is 16, but"),
        (
            "gemma4",
            key("dspark.rope_rotated", UNSIGNED, 32),
            "dspark.rope_rotated is 32, but what",
        ),
        (
            "gemma4",
            key("rope.dimension_sections", ARRAY, [32, 0, 0, 0], INTEGER),
            "dflash.rope.dimension_sections is [32, 0, 0, 0]",
        ),
        ("gemma4", key("attention.head_count_kv", UNSIGNED, 2), "dflash.attention.head_count_kv is 2, but"),
        (
            "gemma4_softcap",
            key("final_logit_softcapping", FLOAT, 50.0),
            "dflash.final_logit_softcapping is 50, but the checkpoint has 30",
        ),
        ("dflash2", key("conv_kernel_size", UNSIGNED, 3), "dflash.conv_kernel_size is 3, but the checkpoint has 2"),
        ("dflash2", key("conv_group_size", UNSIGNED, 32), "dflash.conv_group_size is 32, but the checkpoint has 16"),
        ("dflash2", without("selector_rank"), "dflash.selector_rank is absent, but the checkpoint has 16"),
        ("dflash2", key("selector_top_k", UNSIGNED, 4), "dflash.selector_top_k is 4, but the checkpoint has 8"),
        ("dflash2_muse", without("logit_scale"), "dflash.logit_scale is 1, but the checkpoint has 0.196116135"),
        ("dflash2_muse", without("final_logit_softcapping"), "dflash.final_logit_softcapping is 0, but"),
        ("dflash2", key("expert_count", UNSIGNED, 2), "dflash.expert_count is 2, but the checkpoint has nothing"),
        ("zlab_dflash", key("block_size", UNSIGNED, 7), "dflash.block_size is 7, but the checkpoint has 8"),
    ],
)
def test_one_wrong_key(family: Family, name: str, change: Change, words: str) -> None:
    metadata, values = family(name).changed(change)
    assert metadata.status == "fail"
    assert metadata.detail.startswith(words)
    assert ";" not in metadata.detail
    assert values.status == "pass"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("zlab_dflash", without("sample_from_anchor")),
        ("zlab_dflash", key("attention.sliding_window_pattern", ARRAY, [True] * 3, BOOLEAN)),
        ("speculators_dflash", key("attention.causal", BOOLEAN, False)),
        ("gemma4", key("hidden_activation", STRING, "gelu")),
        # llama.cpp caps no DSpark draft's logits
        ("gemma4_softcap", without("final_logit_softcapping")),
        ("mimo", key("rope.dimension_sections", ARRAY, [8, 0, 0, 0], INTEGER)),
        ("specforge_yarn", key("rope.scaling.attn_factor", FLOAT, 1.0)),
        ("specforge_yarn", key("rope.scaling.yarn_attn_factor", FLOAT, YARN_LENGTH)),
        ("specforge_yarn", key("rope.scaling.yarn_beta_fast", FLOAT, 32.0)),
    ],
)
def test_harmless_spelling(family: Family, name: str, change: Change) -> None:
    assert family(name).changed(change)[0].status == "pass"


def test_a_draft_read_from_the_anchor_needs_a_markov_head(family: Family) -> None:
    """llama.cpp runs DeepSpec's DFlash drafts as DSpark if there is a head, else as DFlash: from the first mask."""

    def change(copy: Copy) -> None:
        for head in ("markov_w1.weight", "markov_w2.weight"):
            del copy.tensors[head]

    metadata, values = family("dflash_deepspec").changed(change)
    assert metadata.status == "fail"
    assert metadata.detail.startswith("the file has no Markov head, without which llama.cpp reads from the first mask")
    assert values.status == "pass"


def stated(file: FamilyFile, facts: Facts, **kv: Value) -> str:
    """What is wrong of the keys with ``kv`` (behind "dflash.rope.scaling.") against ``facts``; "" if nothing."""
    copy = read(file.draft)
    copy.kv |= {f"dflash.rope.scaling.{name}": value for name, value in kv.items()}
    with open_gguf(copy.write(file.root / "stated.gguf")) as draft:
        check = check_stated(draft, facts)
    return "" if check.status == "pass" else check.detail


def test_linear_scaling(family: Family) -> None:
    """llama.cpp takes a factor without a type for a linear one."""
    file = family("specforge")
    facts = read_facts(file.directory)
    assert facts.rotation is not None
    scaled = replace(facts, rotation=replace(facts.rotation, divisor=4.0))
    factor, linear = Value(FLOAT, 4.0), Value(STRING, "linear")
    assert stated(file, scaled, factor=factor) == ""
    assert stated(file, scaled, factor=factor, type=linear) == ""
    assert stated(file, scaled) == "dflash.rope.scaling.factor is absent, but the checkpoint has 4"
    assert stated(file, scaled, factor=factor, type=Value(STRING, "none")).startswith(
        "dflash.rope.scaling.type is none"
    )
    assert stated(file, facts, factor=factor).startswith(
        "dflash.rope.scaling.factor is 4, but the checkpoint has nothing"
    )


def test_length_that_yarn_gives_is_the_checkpoint_s(family: Family) -> None:
    """llama.cpp lengthens by attn_factor (1 + 0.1 ln 16)."""
    file = family("specforge_yarn")
    facts = read_facts(file.directory)
    assert facts.rotation is not None
    assert facts.rotation.yarn is not None
    longer = replace(facts, rotation=replace(facts.rotation, yarn=replace(facts.rotation.yarn, magnitude=1.5)))
    right = Value(FLOAT, 1.5 / YARN_LENGTH)
    assert stated(file, longer, attn_factor=right) == ""
    assert stated(file, longer, attn_factor=right, yarn_attn_factor=Value(FLOAT, 1.5)) == ""
    assert stated(file, longer) == "dflash.rope.scaling.attn_factor is 1, but the checkpoint has 1.17438996"
    assert "yarn_attn_factor is 1.5" in stated(file, facts, yarn_attn_factor=Value(FLOAT, 1.5))
