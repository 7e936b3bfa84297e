"""Every checkpoint that was published, and every fixture of one, is of exactly one family."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.source.checkpoint import open_checkpoint
from dspark_convert.specs.load import load_specs
from dspark_convert.specs.match import fitting
from fixtures import families
from fixtures.deepseek4 import make_deepseek4
from fixtures.dflash2 import make_dflash2_pair
from fixtures.families.parts import Draw, Sizes
from fixtures.gemma4 import make_gemma4_pair
from tests import stage_layout, test_published, test_published_families
from tests.test_published import each_layer

#: fixture -> its family
FIXTURES = {
    "bonsai": "bonsai",
    "conf_without_markov": "qwen3-deepspec",
    "deepspec_qwen36": "qwen3-deepspec",
    "dflash_deepspec": "qwen3-deepspec",
    "fork_label": "fork-dflash-label",
    "hunyuan_ocr": "zlab-dflash",
    "hunyuan_vllm": "hunyuan-ocr",
    "kolibri": "specforge",
    "laguna": "laguna",
    "lfm2": "lfm2",
    "ling": "ling",
    "markov_gated": "qwen3-deepspec",
    "markov_rnn": "qwen3-deepspec",
    "mimo": "mimo",
    "mimo_bare": "mimo",
    "mimo_keyed": "mimo",
    "muse": "muse",
    "nemotron": "nemotron",
    "nemotron_inner": "nemotron",
    "ornith": "ornith",
    "specforge": "specforge",
    "specforge_early": "specforge",
    "specforge_gated": "specforge",
    "specforge_yarn": "specforge",
    "speculators_dflash": "speculators-dflash",
    "speculators_dflash_full": "speculators-dflash",
    "speculators_dflash_leftovers": "speculators-dflash",
    "speculators_dspark_anchor": "speculators-dspark",
    "speculators_dspark_bonus": "speculators-dspark",
    "zlab_dflash": "zlab-dflash",
    "zlab_dflash_flat": "zlab-dflash",
    "zlab_dflash_windows": "zlab-dflash",
    "zlab_gpt_oss": "zlab-dflash",
}
STAGES = {
    "deepseek_v4.1_flash_dspark": "deepseek-v4.1",
    "deepseek_v4_flash_dspark": "deepseek-v4",
    "deepseek_v4_pro_dspark": "deepseek-v4",
}

Case = tuple[str, dict[str, Any], Collection[str]]


def published() -> Iterator[tuple[str, Case]]:
    for name in test_published.NAMES:
        fact = test_published.facts(name)
        yield name, ("qwen3-deepspec", fact["config"], each_layer(fact["tensors"], fact["layers"]))
    for name in test_published_families.NAMES:
        fact = test_published_families.facts(name)
        yield name, (fact["family"], fact["config"], each_layer(fact["tensors"], fact["layers"]))


def of_fixture(name: str) -> Case:
    sizes = Sizes()
    made = families.MAKERS[name](sizes, Draw(sizes))
    return FIXTURES[name], made.config, made.tensors


def of_directory(family: str, root: Path) -> Case:
    checkpoint = open_checkpoint(root)
    return family, checkpoint.config, checkpoint.names


def check(case: Case) -> None:
    family, config, tensors = case
    for names in (tensors, [f"model.{name}" for name in tensors]):
        assert [spec.name for spec in fitting(config, names)] == [family]


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in published()])
def test_published_draft(case: Case) -> None:
    check(case)


def test_every_fixture_is_here() -> None:
    assert set(families.NAMES) == FIXTURES.keys()
    assert {path.stem for path in stage_layout.PUBLISHED.glob("*.json")} == STAGES.keys()


@pytest.mark.parametrize("name", families.NAMES)
def test_fixture(name: str) -> None:
    check(of_fixture(name))


@pytest.mark.parametrize("name", STAGES)
def test_published_stages(name: str, tmp_path: Path) -> None:
    check(of_directory(STAGES[name], stage_layout.lay_out(tmp_path / name, name)))


def test_further_fixtures(tmp_path: Path) -> None:
    check(of_directory("gemma4-deepspec", make_gemma4_pair(tmp_path / "gemma4").draft_dir))
    check(of_directory("dflash2", make_dflash2_pair(tmp_path / "dflash2").draft_dir))
    check(of_directory("dflash2", make_dflash2_pair(tmp_path / "muse", muse=True).draft_dir))
    check(of_directory("deepseek-v4", make_deepseek4(tmp_path / "deepseek4")))


def test_every_family_is_found_by_some_checkpoint() -> None:
    """vLLM's Hunyuan class has no published checkpoint that is not its author's own."""
    seen = {family for _, (family, _, _) in published()} | {*FIXTURES.values(), *STAGES.values()}
    assert seen | {"hunyuan-ocr"} == {spec.name for spec in load_specs()}


def test_the_names_of_vllms_hunyuan_class_are_a_family_of_their_own() -> None:
    _, config, tensors = of_fixture("hunyuan_ocr")
    renamed = [name.replace("q_norm", "query_layernorm").replace("k_norm", "key_layernorm") for name in tensors]
    for name in ("DFlashDraftModel", "DFlashHunYuanDenseV1ForCausalLM", "DFlashHunYuanMoEV1ForCausalLM"):
        check(("hunyuan-ocr", config | {"architectures": [name]}, renamed))


def test_no_checkpoint_is_of_two_families_by_any_mixture() -> None:
    """What tells families apart, all together and in every choice, under every class name."""
    telling = (
        "markov_head.markov_w1.weight",
        "candidate_selector.hidden_projection.weight",
        "log_snr_embed.fc1.weight",
        "layers.0.self_attn.attention_sink_bias",
        "layers.0.self_attn.query_layernorm.weight",
        "layers.0.self_attn.g_proj.weight",
        "layers.0.mlp.down_proj.weight_scale_2",
    )
    _, plain, _ = of_fixture("zlab_dflash")
    classes = sorted({name for spec in load_specs() if not spec.within for name in spec.architectures})
    choices = [choice for size in range(len(telling) + 1) for choice in itertools.combinations(telling, size)]
    for name, nested, choice in itertools.product(classes, (False, True), choices):
        config = plain | {"architectures": [name]} | ({"transformer_layer_config": {}} if nested else {})
        assert len(fitting(config, ["fc.weight", "hidden_norm.weight", *choice])) <= 1, (name, nested, choice)
