"""DeepSeek-V4 checkpoints whose draft is incomplete, inconsistent or none (failures.md 1d)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.options import Options
from dspark_convert.plan import Plan, plan_for_directory
from tests.conftest import Convert
from tests.stage_layout import Layout, facts, layout, write_config, write_index, write_shards

FLASH = "deepseek_v4_flash_dspark"
EXPERT = "mtp.1.ffn.experts.1.w2"
WKV = "mtp.1.attn.wkv"
MARKOV = "mtp.2.markov_head.markov_w1.weight"

Change = Callable[[Layout], object]


def lay_out(root: Path, *changes: Change, index: bool = True, **config: Any) -> Path:
    """Flash with two experts, its tensors changed."""
    fact = facts(FLASH)
    tensors = layout(fact, 2)
    for change in changes:
        change(tensors)
    write_config(root, {**fact["config"], "n_routed_experts": 2, "num_experts_per_tok": 1, **config})
    write_shards(root, fact, tensors)
    if index:
        write_index(root, fact, tensors)
    return root


def without(*starts: str) -> Change:
    return lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith(starts)]


def put(name: str, dtype: str, *shape: int) -> Change:
    return lambda tensors: tensors.update({name: (dtype, shape)})


def told(plan: Plan, severity: str = "error") -> list[tuple[str, str]]:
    return [(f.rule, f.where) for f in plan.findings if f.severity == severity]


@dataclass(frozen=True)
class Case:
    """``errors`` are all of them as (rule, where); each of ``says`` stands in a message."""

    id: str
    changes: tuple[Change, ...]
    errors: tuple[tuple[str, str], ...]
    says: tuple[str, ...] = ()
    config: tuple[tuple[str, Any], ...] = ()


CASES = [
    Case(
        "D54 an expert's matrix",
        (without(f"{EXPERT}."),),
        (("tensor-missing", f"{EXPERT}.weight"),),
        ("expert 1 of stage 1 has no w2", f"{EXPERT}.weight"),
    ),
    Case(
        "D54 a whole expert",
        (without("mtp.2.ffn.experts.0."),),
        tuple(("tensor-missing", f"mtp.2.ffn.experts.0.w{i}.weight") for i in (1, 2, 3)),
        ("expert 0 of stage 2 has no w3",),
    ),
    Case(
        "an expert too many",
        (put("mtp.0.ffn.experts.2.w1.weight", "I8", 2048, 2048),),
        (("tensor-unknown", "mtp.0.ffn.experts.2.w1.weight"),),
    ),
    Case(
        "FP8 without its scale",
        (without(f"{WKV}.scale"),),
        (("tensor-scale-missing", f"{WKV}.weight"),),
        (f"{WKV}.weight", f"{WKV}.scale"),
    ),
    Case(
        "FP4 without its scale",
        (without(f"{EXPERT}.scale"),),
        (("tensor-scale-missing", f"{EXPERT}.weight"),),
        (f"{EXPERT}.weight", f"{EXPERT}.scale"),
    ),
    Case(
        "a scale without its weight",
        (without(f"{WKV}.weight"),),
        (("tensor-missing", f"{WKV}.weight"),),
        (f"{WKV}.weight is missing, although its scale {WKV}.scale is there",),
    ),
    Case(
        "a scale without the head that may be missing",
        (put("mtp.2.head.scale", "F8_E8M0", 1010, 32),),
        (("tensor-missing", "mtp.2.head.weight"),),
        ("mtp.2.head.scale",),
    ),
    Case(
        "FP8 with a scale of other tiles",
        (put(f"{WKV}.scale", "F8_E8M0", 8, 64),),
        (("tensor-scale", f"{WKV}.scale"),),
        (f"{WKV}.weight [512, 4096]", "has shape [8, 64]", "[4, 32]", "[128, 128]"),
    ),
    Case(
        "FP8 with a flat scale",
        (put(f"{WKV}.scale", "F8_E8M0", 128),),
        (("tensor-scale", f"{WKV}.scale"),),
        ("rows and columns of tiles",),
    ),
    Case(
        "FP4 with a scale for 16",
        (put(f"{EXPERT}.scale", "F8_E8M0", 4096, 128),),
        (("tensor-scale", f"{EXPERT}.scale"),),
        (f"{EXPERT}.weight", "[4096, 64]", "one for 32 of the 2048 columns"),
    ),
    Case(
        "FP4 with its scale transposed",
        (put(f"{EXPERT}.scale", "F8_E8M0", 64, 4096),),
        (("tensor-scale", f"{EXPERT}.scale"),),
        ("[64, 4096]",),
    ),
    Case(
        "scales that are no powers of two",
        (put(f"{WKV}.scale", "F32", 4, 32),),
        (("tensor-scale", f"{WKV}.scale"),),
        (f"the scale of {WKV}.weight, is F32, expected F8_E8M0",),
    ),
    Case(
        "numbers with a scale beside them",
        (put(f"{WKV}.weight", "BF16", 512, 4096),),
        (("tensor-scale", f"{WKV}.weight"),),
        ("needs no scale", f"{WKV}.scale"),
    ),
    Case(
        "FP8 of the wrong shape",
        (put(f"{WKV}.weight", "F8_E4M3", 4096, 512),),
        (("tensor-shape", f"{WKV}.weight"),),
        ("[head_dim, hidden_size] = [512, 4096]",),
    ),
    Case(
        "FP4 that is not packed",
        (put(f"{EXPERT}.weight", "I8", 4096, 2048),),
        (("tensor-shape", f"{EXPERT}.weight"),),
        ("[4096, 4096]", "[4096, 2048]"),
    ),
    Case(
        "experts stored in two ways",
        (put(f"{EXPERT}.weight", "BF16", 4096, 2048), without(f"{EXPERT}.scale")),
        (("tensor-dtype", "mtp.1.ffn.experts.0.w2.weight"),),
        ("stored in different ways: fp4, plain",),
    ),
    Case(
        "a norm of integers",
        (put("mtp.0.main_norm.weight", "I32", 4096),),
        (("tensor-dtype", "mtp.0.main_norm.weight"),),
    ),
    Case(
        "D47 the middle stage",
        (without("mtp.1."),),
        (("tensor-missing", "mtp.1.*"),),
        ("stage 1 of 3 is missing",),
    ),
    Case("D47 the first stage", (without("mtp.0."),), (("tensor-missing", "mtp.0.*"),), ("stage 0 of 3 is missing",)),
    Case(
        "D47 the last stage",
        (without("mtp.2."),),
        (("tensor-missing", "mtp.1.norm.weight"),),
        ("stage 1 holds nothing that the last stage has", "the checkpoint ends before the last stage"),
    ),
    Case(
        "D47 what only the first stage has",
        (without("mtp.0.main_"),),
        (("tensor-missing", "mtp.0.main_proj.weight"),),
        ("stage 0 holds nothing that the first stage has",),
    ),
    Case(
        "one of the heads", (without("mtp.2.confidence"),), (("tensor-missing", "mtp.2.confidence_head.proj.weight"),)
    ),
    Case(
        "experts chosen by token",
        (put("mtp.0.ffn.gate.tid2eid", "I64", 129280, 6),),
        (("tensor-unsupported", "mtp.0.ffn.gate.tid2eid"),),
    ),
    Case(
        "an MTP layer's norm",
        (put("mtp.0.enorm.weight", "BF16", 4096),),
        (("tensor-unsupported", "mtp.0.enorm.weight"),),
    ),
    Case(
        "D47 a rank that is not the head's",
        (),
        (("config-value", "config.json: dspark_markov_rank"),),
        ("declared_rank = 512", "markov_rank = 256"),
        (("dspark_markov_rank", 512),),
    ),
    Case(
        "a name that counts to stages without end",
        (put("mtp.999999999.norm.weight", "BF16", 4096),),
        (("config-value", "the tensors (numbered('mtp.{layer}.'))"),),
        ("is 1000000000, expected an integer from 1 to 32",),
    ),
    Case(
        "another router",
        (),
        (("config-unsupported", "scoring_func"),),
        ("sigmoid",),
        (("scoring_func", "sigmoid"),),
    ),
    Case(
        "a Markov head of another vocabulary",
        (put(MARKOV, "BF16", 1000, 256),),
        (("tensor-shape", MARKOV),),
        ("[129280, 256]",),
    ),
    Case(
        "experts without a number",
        (),
        (("config-value", "config.json: n_routed_experts"),),
        (),
        (("n_routed_experts", "two"),),
    ),
    Case(
        "more layers than can be written down",
        (),
        (("config-value", "config.json: num_hidden_layers"),),
        ("expected an integer from 0 to 4096",),
        (("num_hidden_layers", 2**63),),
    ),
    Case(
        "a tile of one number",
        (),
        (("config-value", "config.json: quantization_config.weight_block_size"),),
        ("a tile has rows and columns",),
        (("quantization_config", {"quant_method": "fp8", "weight_block_size": [128]}),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / "v4", *case.changes, **dict(case.config)))
    assert told(plan) == list(case.errors), plan.errors
    text = "\n".join(finding.message for finding in plan.errors)
    for words in case.says:
        assert words in text, text
    assert plan.tensors == ()


def test_another_tile_than_the_config_says(tmp_path: Path) -> None:
    scheme = facts(FLASH)["config"]["quantization_config"]
    root = lay_out(tmp_path / "v4", quantization_config={**scheme, "weight_block_size": [32, 32]})
    found = told(plan_for_directory(root))
    assert {rule for rule, _ in found} == {"tensor-scale"}
    assert ("tensor-scale", "mtp.0.main_proj.scale") in found


def test_tiles_without_a_config_come_from_the_shapes(tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / "even", quantization_config=None))
    assert plan.errors == ()
    assert {s.tile for job in plan.tensors for s in job.sources if s.encoding == "fp8"} == {(128, 128)}
    uneven = put("mtp.1.attn.wq_a.scale", "F8_E8M0", 9, 32)
    plan = plan_for_directory(lay_out(tmp_path / "odd", uneven, quantization_config=None))
    assert told(plan) == [("tensor-scale", "mtp.1.attn.wq_a.scale")]
    assert "weight_block_size" in plan.errors[0].message


def test_a_markov_rank_of_zero_in_the_config_is_the_heads(tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / "v4", dspark_markov_rank=0))
    assert plan.errors == ()
    assert plan.draft is not None
    assert plan.draft.markov_rank == 256


def test_experts_that_are_not_fp4_follow_the_outtype(tmp_path: Path) -> None:
    def as_bf16(tensors: Layout) -> None:
        for name in [name for name in tensors if ".experts." in name and name.endswith(".weight")]:
            _, (rows, columns) = tensors[name]
            tensors[name] = ("BF16", (rows, 2 * columns))
            del tensors[name.removesuffix(".weight") + ".scale"]

    root = lay_out(tmp_path / "v4", as_bf16)
    for outtype, kind in (("auto", "BF16"), ("f16", "F16"), ("q8_0", "Q8_0")):
        plan = plan_for_directory(root, None, Options(outtype=outtype))  # type: ignore[arg-type]
        assert {job.type.name for job in plan.tensors if job.name.endswith("_exps.weight")} == {kind}


def test_matrices_that_are_f32_anyway_have_no_say_in_auto(tmp_path: Path) -> None:
    """Of a small vocabulary the hyper-connections' F32 is most of what is plain."""
    heads = [put(f"mtp.2.markov_head.markov_w{i}.weight", "BF16", 1000, 256) for i in (1, 2)]
    plan = plan_for_directory(lay_out(tmp_path / "v4", *heads, vocab_size=1000, dspark_noise_token_id=7))
    kinds = {job.name: job.type.name for job in plan.tensors}
    assert {kinds[name] for name in ("markov_w1.weight", "conf_proj.weight", "blk.0.ffn_gate_inp.weight")} == {"BF16"}
    assert kinds["blk.0.hc_attn_fn.weight"] == "F32"


def test_image_bias_is_dropped_with_its_reason(tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / "v4", put("mtp.1.ffn.gate.bias_vl", "F32", 2)))
    assert told(plan, "info") == [("tensor-dropped", "mtp.1.ffn.gate.bias_vl")]
    assert "image tokens" in plan.findings[0].message


EMBED, HEAD = put("mtp.0.embed.weight", "BF16", 129280, 4096), put("mtp.2.head.weight", "BF16", 129280, 4096)


def test_tables_of_their_own_are_never_dropped_in_silence(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "v4", EMBED, HEAD)
    plan = plan_for_directory(root)
    where = "mtp.0.embed.weight and mtp.2.head.weight"
    assert told(plan, "warning") == [("shared-omitted", where)]
    assert len(plan.tensors) == 81
    plan = plan_for_directory(root, None, Options(shared_tensors="include"))
    assert plan.findings == ()
    kinds = {job.name: (job.type.name, job.shape) for job in plan.tensors}
    assert len(kinds) == 83
    assert kinds["token_embd.weight"] == kinds["output.weight"] == ("BF16", (4096, 129280))
    assert plan.draft is not None
    assert (plan.draft.has_token_embd, plan.draft.has_output) == (True, True)


@pytest.mark.parametrize(("change", "name"), [(EMBED, "mtp.0.embed.weight"), (HEAD, "mtp.2.head.weight")])
def test_one_table_without_the_other(change: Change, name: str, tmp_path: Path) -> None:
    root = lay_out(tmp_path / "v4", change)
    plan = plan_for_directory(root)
    assert told(plan, "warning") == [("shared-omitted", name)]
    assert f"only {name} of the two is there" in plan.findings[0].message
    plan = plan_for_directory(root, None, Options(shared_tensors="include"))
    assert told(plan) == [("shared-incomplete", name)]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("mtp.0.enorm.weight", "mtp.0.hnorm.weight", "mtp.0.e_proj.weight"),
            "ordinary MTP layers and no DSpark draft",
        ),
        ((), "a full model (DeepseekV4ForCausalLM, 2 layers), not a DSpark draft"),
        (("mtp.1.attn_norm.weight",), "neither the first nor the last stage of a DSpark draft"),
    ],
)
def test_d46_no_draft_in_it(names: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """Names alone tell: of the shards that the index speaks of none is there."""
    target = ("embed.weight", "layers.0.ffn_norm.weight", "layers.1.ffn_norm.weight")
    write_config(tmp_path, facts(FLASH)["config"])
    document = {"weight_map": dict.fromkeys(target + names, "model-00001-of-00046.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        plan_for_directory(tmp_path)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.findings == ()


def test_d53_a_needed_shard_is_missing(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "v4")
    (root / "model-00047-of-00048.safetensors").unlink()
    plan = plan_for_directory(root)
    assert told(plan) == [("shard-missing", "model-00047-of-00048.safetensors")]
    assert "1 of the 3 files that hold the draft (of 48 in all) is missing: " in plan.errors[0].message


def test_shards_without_an_index(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "v4", index=False)
    plan = plan_for_directory(root)
    assert told(plan) == []
    assert told(plan, "info") == [("shard-absent", "*.safetensors")]
    assert len(plan.tensors) == 81
    (root / "model-00048-of-00048.safetensors").unlink()
    assert told(plan_for_directory(root)) == [("tensor-missing", "mtp.1.norm.weight")]


@pytest.mark.parametrize("index", [True, False])
def test_the_targets_tensors_in_a_shard_are_let_be(index: bool, tmp_path: Path) -> None:
    root = lay_out(tmp_path / "v4", put("layers.0.attn.wkv.weight", "F4", 3, 2), index=index)
    plan = plan_for_directory(root)
    assert plan.errors == ()
    assert len(plan.tensors) == 81


@pytest.mark.parametrize("architectures", [None, [], "DeepseekV4ForCausalLM", ["LlamaForCausalLM"]])
@pytest.mark.parametrize("index", [True, False])
def test_an_unknown_architecture_is_told_before_a_target_is_asked_for(
    architectures: Any, index: bool, tmp_path: Path, convert: Convert
) -> None:
    root = lay_out(tmp_path / "v4", index=index, architectures=architectures)
    (root / "tokenizer.json").write_text("{}")
    ended = convert(root, "-o", "out.gguf")
    assert ended.code == 3
    assert "a DeepSeek-V4 checkpoint with DSpark stages in it" in ended.err
    assert "DeepseekV4ForCausalLM" in ended.err and "tokenizer" not in ended.err


@pytest.mark.parametrize(
    "name", [f"{WKV}.weight", f"{EXPERT}.weight", f"{WKV}.scale", "mtp.0.main_norm.weight", "mtp.0.x"]
)
def test_of_a_shape_without_end_the_beginning_is_told(name: str, tmp_path: Path) -> None:
    dtype = {"scale": "F8_E8M0", "x": "BF16"}.get(name.rsplit(".", 1)[1], "I8" if "experts" in name else "BF16")
    plan = plan_for_directory(lay_out(tmp_path, put(name, dtype, *[1] * 10_000)))
    assert name in [f.where for f in plan.errors]
    assert max(len(f.message) for f in plan.errors) < 400
