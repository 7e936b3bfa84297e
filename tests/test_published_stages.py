"""Published DeepSeek-V4 drafts at their full dimensions, planned from the names of the whole checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert import __version__
from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import KV
from dspark_convert.options import Options
from dspark_convert.plan import Plan, plan_for_directory, refuse
from tests.stage_layout import each, facts, lay_out, stage_shard

FLASH, PRO, V41 = "deepseek_v4_flash_dspark", "deepseek_v4_pro_dspark", "deepseek_v4.1_flash_dspark"

#: keys of llama.cpp's converter that are left out: they describe the target's layers and no stage's
OF_THE_TARGET = (
    "dflash.rope.scaling.",
    "dflash.attention.indexer.",
    "dflash.attention.compress_rope_freq_base",
    "dflash.hash_layer_count",
)


def planned_tensors(plan: Plan) -> dict[str, tuple[str, tuple[int, ...]]]:
    result = {job.name: (job.type.name, job.shape) for job in plan.tensors}
    assert len(result) == len(plan.tensors)
    return result


def entry(kv: KV) -> tuple[str, Any]:
    item = f":{kv.item_type.name}" if kv.item_type is not None else ""
    return kv.type.name + item, kv.value


def published_tensors(experts: int = 256, **types: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Of Flash, or what it would be with fewer experts; ``types``: published type -> the one to expect instead."""
    fact = facts(FLASH)
    tensors = each(fact["gguf_tensors"], fact["stages"], fact["experts"])
    return {
        name: (types.get(kind, kind), tuple(experts if size == 256 and ".ffn_" in name else size for size in shape))
        for name, (kind, shape) in tensors
    } | {f"blk.{i}.exp_probs_b.bias": ("F32", (experts,)) for i in range(fact["stages"])}


def published_kvs() -> dict[str, tuple[str, Any]]:
    kvs = facts(FLASH)["gguf_kv"]
    return {key: (kind, value) for key, (kind, value) in kvs.items() if not key.startswith(OF_THE_TARGET)}


@pytest.fixture(scope="module")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("flash") / "DeepSeek-V4-Flash-DSpark", FLASH)


@pytest.fixture(scope="module")
def planned(flash: Path) -> Plan:
    return plan_for_directory(flash)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with 16 experts, which still are most of the weights."""
    return lay_out(tmp_path_factory.mktemp("few") / "DeepSeek-V4-Few", FLASH, experts=16)


def test_auto_is_the_published_layout(flash: Path, planned: Plan) -> None:
    assert len(json.loads((flash / "model.safetensors.index.json").read_text())["weight_map"]) == 72_317
    plan = planned
    assert plan.findings == ()
    assert planned_tensors(plan) == published_tensors()
    assert len(plan.tensors) == 81
    kvs = {kv.key: entry(kv) for kv in plan.metadata}
    assert len(kvs) == len(plan.metadata)
    assert kvs == {
        **published_kvs(),
        "dflash.sample_from_anchor": ("BOOL", True),
        "dflash.has_confidence_head": ("BOOL", True),
        "general.type": ("STRING", "model"),
        "general.name": ("STRING", "DeepSeek-V4-Flash-DSpark"),
        "general.quantization_version": ("UINT32", 2),
        "dspark.backbone": ("STRING", "deepseek4"),
        "dspark.block_size": ("UINT32", 5),
        "dspark.target_layers": ("ARRAY:INT32", [41, 42, 43]),
        "dspark.mask_token_id": ("UINT32", 128799),
        "dspark.sample_from_anchor": ("BOOL", True),
        "dspark.markov_rank": ("UINT32", 256),
        "dspark.markov_head_type": ("STRING", "vanilla"),
        "dspark.has_confidence_head": ("BOOL", True),
        "dspark.rope_style": ("STRING", "norm"),
        "dspark.source": ("STRING", "DeepSeek-V4-Flash-DSpark"),
        "dspark.converter_version": ("STRING", __version__),
    }


def test_every_tensor_of_the_draft_is_read_once(planned: Plan) -> None:
    refs = [ref for job in planned.tensors for ref in job.refs]
    assert len({ref.name for ref in refs}) == len(refs) == 4705
    assert sum(ref.nbytes for ref in refs) == 10_862_838_300
    assert {ref.path.name for ref in refs} == {f"model-{i:05d}-of-00048.safetensors" for i in (46, 47, 48)}


def test_experts_are_stacked_in_order_with_their_own_scales(planned: Plan) -> None:
    parts = {"gate": "w1", "down": "w2", "up": "w3"}
    jobs = {job.name: job for job in planned.tensors}
    for stage in range(3):
        for part, name in parts.items():
            job = jobs[f"blk.{stage}.ffn_{part}_exps.weight"]
            stems = [f"mtp.{stage}.ffn.experts.{i}.{name}" for i in range(256)]
            assert [source.values.name for source in job.sources] == [f"{stem}.weight" for stem in stems]
            assert [source.scales and source.scales.name for source in job.sources] == [
                f"{stem}.scale" for stem in stems
            ]
            assert {source.encoding for source in job.sources} == {"fp4"}
    fc = jobs["fc.weight"].sources[0]
    assert (fc.values.name, fc.encoding, fc.tile) == ("mtp.0.main_proj.weight", "fp8", (128, 128))
    assert fc.scales is not None
    assert fc.scales.name == "mtp.0.main_proj.scale"
    assert jobs["blk.1.ffn_gate_inp.weight"].sources[0].encoding == "plain"


@pytest.mark.parametrize(
    ("outtype", "types"),
    [
        ("bf16", {"Q8_0": "BF16"}),
        ("f16", {"Q8_0": "F16", "BF16": "F16"}),
        ("f32", {"Q8_0": "F32", "BF16": "F32"}),
    ],
)
def test_float_outtypes_do_what_they_say_and_keep_the_experts(outtype: Any, types: dict[str, str], few: Path) -> None:
    plan = plan_for_directory(few, None, Options(outtype=outtype))
    assert planned_tensors(plan) == published_tensors(16, **types)
    assert plan.findings == ()
    # Nine of ten weights are experts, whatever the others are.
    assert {kv.key: kv.value for kv in plan.metadata}["general.file_type"] == 38
    assert plan.label == outtype.upper()


@pytest.mark.parametrize("outtype", ["q8_0", "q4_k", "q6_k", "q5_0", "mxfp4"])
def test_smaller_outtypes_keep_router_and_heads(outtype: Any, few: Path) -> None:
    wanted = published_tensors(16, Q8_0=outtype.upper())
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight"):
        wanted[name] = ("Q8_0", wanted[name][1])
    assert planned_tensors(plan_for_directory(few, None, Options(outtype=outtype))) == wanted


@pytest.mark.parametrize(("experts", "number"), [("q8_0", 7), ("q4_k", 14), ("q6_k", 18), ("bf16", 32), ("f32", 0)])
def test_experts_in_another_type(experts: Any, number: int, few: Path) -> None:
    plan = plan_for_directory(few, None, Options(experts=experts))
    assert planned_tensors(plan) == published_tensors(16, MXFP4=experts.upper())
    assert {kv.key: kv.value for kv in plan.metadata}["general.file_type"] == number
    assert plan.label == f"experts-{experts.upper()}"
    both = plan_for_directory(few, None, Options(outtype="q8_0", experts=experts))
    assert both.label == f"Q8_0-experts-{experts.upper()}"


def test_pro(tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / "DeepSeek-V4-Pro", PRO))
    assert plan.findings == ()
    tensors = planned_tensors(plan)
    assert {name: kind for name, (kind, _) in tensors.items()} == {n: k for n, (k, _) in published_tensors().items()}
    assert tensors["blk.2.ffn_down_exps.weight"] == ("MXFP4", (3072, 7168, 384))
    assert tensors["blk.0.attn_output_a.weight"] == ("Q8_0", (4096, 16384))
    assert tensors["output_hc_fn.weight"] == ("F32", (28672, 4))
    assert round(sum(job.nbytes for job in plan.tensors) / 1e9, 2) == 42.06
    assert plan.draft is not None
    assert (plan.draft.target_layers, plan.draft.markov_rank, plan.draft.n_layer) == ((59, 60, 61), 512, 3)
    assert plan.draft.deepseek4 is not None
    assert plan.draft.deepseek4.expert_weights_scale == 2.5


def test_v41_is_read_in_full_and_refused(tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / "DeepSeek-V4.1-Flash", V41))
    assert [(f.severity, f.rule, f.where) for f in plan.findings] == [
        *[("error", "family-unsupported", "deepseek-v4.1")] * 2,
        *[("info", "tensor-dropped", f"mtp.{i}.ffn.gate.bias_vl") for i in range(3)],
    ]
    assert "output_hc_*" in plan.errors[0].message
    assert "target architecture" in plan.errors[1].message
    draft = plan.draft
    assert draft is not None
    assert draft.deepseek4 is not None
    assert (draft.target_layers, draft.markov_rank, draft.rms_norm_eps) == ((37, 38, 39), 256, 1e-20)
    assert (draft.deepseek4.n_expert, draft.deepseek4.n_expert_used) == (128, 3)
    assert len(plan.tensors) == 78
    assert {source.tile for job in plan.tensors for source in job.sources if source.encoding == "fp8"} == {(32, 32)}
    with pytest.raises(InputError):
        refuse(plan, strict=False)


def test_meaning_of_flash(planned: Plan) -> None:
    draft = planned.draft
    assert draft is not None
    assert (draft.kind, draft.block_size, draft.drafts_per_block) == ("dspark", 5, 5)
    assert (draft.rope.style, draft.rope.dimension_count, draft.rope.freq_base) == ("norm", 64, 10000.0)
    assert draft.rope.scaling is None
    assert (draft.sliding_window, draft.has_sinks, draft.causal) == (128, True, False)
    assert (draft.n_layer, draft.n_head, draft.n_head_kv, draft.head_dim) == (3, 64, 1, 512)
    assert draft.deepseek4 is not None
    assert draft.deepseek4.to_json() == {
        "q_lora_rank": 1024,
        "o_group_count": 8,
        "o_lora_rank": 1024,
        "n_expert": 256,
        "n_expert_used": 6,
        "n_expert_shared": 1,
        "expert_weights_scale": 1.5,
        "expert_weights_norm": True,
        "swiglu_clamp": 10.0,
        "hyper_connections": 4,
        "sinkhorn_iterations": 20,
        "hyper_connection_epsilon": 1e-06,
    }


def test_nested_config_of_a_vision_model(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "vision", FLASH, experts=4)
    config = json.loads((root / "config.json").read_text())
    top = {"architectures": config.pop("architectures"), "quantization_config": config.pop("quantization_config")}
    vision = {"vision_n_layers": 27, "vision_dim": 1152, "image_token_id": 128815}
    (root / "config.json").write_text(json.dumps({**top, **vision, "text_config": config}))
    plan = plan_for_directory(root)
    assert plan.findings == ()
    assert plan.draft is not None
    assert plan.draft.origin["block_size"] == "config.json: text_config.dspark_block_size"


def test_early_dialect_has_no_stages(few: Path) -> None:
    plan = plan_for_directory(few, None, Options(dialect="dspark"))
    assert [(f.rule, f.fix) for f in plan.errors] == [("dialect", "use --dialect dflash")]


def test_shards_of_the_target_are_not_looked_at(flash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: set[str] = set()
    whole = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        touched.add(path.name)
        return whole(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert plan_for_directory(flash).findings == ()
    fact = facts(FLASH)
    shards = {name for name in touched if name.startswith("model-")}
    assert shards == {stage_shard(fact, f"mtp.{i}.") for i in range(3)}
