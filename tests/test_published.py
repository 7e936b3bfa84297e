"""Published drafts at their full dimensions, planned from headers alone.

``fixtures/published/NAME.json`` states a checkpoint (config.json; tensors with dtype and shape, those of the
layers once) and, apart from it, the key/values (type, value) and tensors (type with --outtype bf16, type with
q8_0, shape in ggml order) that llama.cpp's own converter of October 2026 makes of it.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from dspark_convert import __version__
from dspark_convert.ggufio.types import KV, ValueType
from dspark_convert.options import Options
from dspark_convert.plan import Plan, plan_for_directory
from dspark_convert.target import open_target_directory
from fixtures.bpe import copy_tiny
from tests.conftest import Convert
from tests.published_layout import each_layer, lay_out_headers, read_facts

PUBLISHED = Path(__file__).parent.parent / "fixtures" / "published"
NAMES = sorted(path.stem for path in PUBLISHED.glob("*.json"))
DFLASH = "dflash_qwen3_8b_block7"
SATGEZE = "satgeze_qwen3.6_27b_dspark"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def facts(name: str) -> dict[str, Any]:
    return read_facts(PUBLISHED / f"{name}.json")


def lay_out(root: Path, name: str) -> Path:
    return lay_out_headers(root, facts(name))


def lay_out_target(root: Path, name: str, **changes: Any) -> Path:
    """A target that fits: sizes alone, with the tiny tokenizer padded to its vocabulary."""
    config = facts(name)["config"]
    root.mkdir()
    keys = ("hidden_size", "vocab_size", "rope_parameters")
    target = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": config["num_target_layers"],
        **{key: config[key] for key in keys},
        **changes,
    }
    (root / "config.json").write_text(json.dumps(target))
    copy_tiny(root)
    return root


def entry(kv: KV) -> tuple[str, Any]:
    if kv.type is ValueType.ARRAY:
        assert kv.item_type is ValueType.INT32
    return kv.type.name, kv.value


def runtime_kvs(name: str, outtype: str) -> dict[str, tuple[str, Any]]:
    """The keys that llama.cpp reads, as its converter writes them, where that is right."""
    fact = facts(name)
    kvs = {key: tuple(value) for key, value in fact["gguf_kv"].items()}
    # From the target, and only if there is one.
    kvs.pop("dflash.rope.dimension_sections", None)
    # Inherited from the target's config: the draft was trained with the whole head rotated.
    kvs.pop("dflash.rope.dimension_count", None)
    return {**kvs, "general.file_type": ("UINT32", fact["file_type"][outtype])}


def own_kvs(name: str, **more: tuple[str, Any]) -> dict[str, tuple[str, Any]]:
    """The keys that this package adds for a directory that says nothing of where it came from."""
    kv = {key.removeprefix("dflash."): value[1] for key, value in facts(name)["gguf_kv"].items()}
    config = facts(name)["config"]
    return {
        "general.type": ("STRING", "model"),
        "general.name": ("STRING", name),
        "general.quantization_version": ("UINT32", 2),
        "dspark.backbone": ("STRING", "qwen3"),
        "dspark.block_size": ("UINT32", config["block_size"]),
        "dspark.target_layers": ("ARRAY", [i + 1 for i in config["target_layer_ids"]]),
        "dspark.mask_token_id": ("UINT32", config["mask_token_id"]),
        "dspark.sample_from_anchor": ("BOOL", True),
        # a Markov head of 32 columns of zeros makes llama.cpp read an anchor-first block rightly
        "dspark.markov_rank": ("UINT32", config["markov_rank"] or 32),
        "dspark.markov_head_type": ("STRING", "vanilla" if config["markov_rank"] else "zero"),
        "dspark.has_confidence_head": ("BOOL", kv["has_confidence_head"]),
        "dspark.rope_style": ("STRING", "neox"),
        "dspark.source": ("STRING", name),
        "dspark.converter_version": ("STRING", __version__),
        **more,
    }


def tensors(name: str, outtype: str, *, include: bool = False) -> dict[str, tuple[str, tuple[int, ...]]]:
    fact = facts(name)
    column = {"bf16": 0, "q8_0": 1}[outtype]
    result = {
        name: (entry[column], tuple(entry[2]))
        for name, entry in each_layer(fact["gguf_tensors_bf16_q8_0"], fact["layers"]).items()
    }
    # The converter keeps the embeddings and drops the head, which is wrong for untied targets.
    table = result.pop("token_embd.weight")
    if include:
        result |= {"token_embd.weight": table, "output.weight": table}
    if name == DFLASH:
        kind = outtype.upper()
        result |= {f"markov_w{i}.weight": (kind, (32, fact["config"]["vocab_size"])) for i in (1, 2)}
    return result


def planned_kvs(plan: Plan) -> dict[str, tuple[str, Any]]:
    kvs = {kv.key: entry(kv) for kv in plan.metadata}
    assert len(kvs) == len(plan.metadata)
    return kvs


def planned_tensors(plan: Plan) -> dict[str, tuple[str, tuple[int, ...]]]:
    result = {job.name: (job.type.name, job.shape) for job in plan.tensors}
    assert len(result) == len(plan.tensors)
    return result


def test_all_four_are_there() -> None:
    assert NAMES == [DFLASH, "dspark_qwen3_4b_block7", "dspark_qwen3_8b_block7", SATGEZE]


@pytest.mark.parametrize("outtype", ["bf16", "q8_0"])
@pytest.mark.parametrize("name", NAMES)
def test_plan_is_what_llama_cpp_reads(name: str, outtype: str, tmp_path: Path) -> None:
    root = lay_out(tmp_path / name, name)
    plan = plan_for_directory(root, None, Options(outtype=outtype))  # type: ignore[arg-type]
    notes = ["shared-omitted", *(["zero-markov-head"] if name == DFLASH else [])]
    assert [(f.severity, f.rule) for f in plan.findings] == [("info", rule) for rule in notes]
    assert planned_kvs(plan) == {**runtime_kvs(name, outtype), **own_kvs(name)}
    assert planned_tensors(plan) == tensors(name, outtype)


@pytest.mark.parametrize("name", NAMES)
def test_all_of_the_checkpoint_with_shared_tensors(name: str, tmp_path: Path) -> None:
    root = lay_out(tmp_path / name, name)
    for outtype in ("bf16", "q8_0"):
        plan = plan_for_directory(root, None, Options(outtype=outtype, shared_tensors="include"))
        assert planned_tensors(plan) == tensors(name, outtype, include=True)
        read = [job.source for job in plan.tensors if job.source]
        assert len({ref.name for ref in read}) == len(read) == facts(name)["checkpoint_tensors"]
        assert sum(ref.nbytes for ref in read) == facts(name)["checkpoint_bytes"]


@pytest.mark.parametrize(("outtype", "kind"), [("auto", "BF16"), ("f16", "F16"), ("f32", "F32")])
def test_other_outtypes_change_the_matrices_alone(outtype: str, kind: str, tmp_path: Path) -> None:
    name = "dspark_qwen3_4b_block7"
    root = lay_out(tmp_path / name, name)
    plan = plan_for_directory(root, None, Options(outtype=outtype))  # type: ignore[arg-type]
    wanted = {n: (k if k == "F32" else kind, shape) for n, (k, shape) in tensors(name, "bf16").items()}
    assert planned_tensors(plan) == wanted
    file_type = {"BF16": 32, "F16": 1, "F32": 0}[kind]
    assert planned_kvs(plan) == {
        **runtime_kvs(name, "bf16"),
        **own_kvs(name),
        "general.file_type": ("UINT32", file_type),
    }


@pytest.mark.parametrize("name", ["dspark_qwen3_8b_block7", DFLASH])
def test_early_dialect(name: str, tmp_path: Path) -> None:
    plan = plan_for_directory(lay_out(tmp_path / name, name), None, Options(outtype="bf16", dialect="dspark"))
    wanted = {key.replace("dflash.", "dspark."): value for key, value in runtime_kvs(name, "bf16").items()}
    assert planned_kvs(plan) == {**wanted, **own_kvs(name), "general.architecture": ("STRING", "dspark")}
    assert planned_tensors(plan) == tensors(name, "bf16")


def test_target_adds_its_name_and_its_sections(tmp_path: Path) -> None:
    root = lay_out(tmp_path / SATGEZE, SATGEZE)
    target = open_target_directory(lay_out_target(tmp_path / "Qwen3.6-27B", SATGEZE, model_type="qwen3_5"))
    plan = plan_for_directory(root, target, Options(outtype="bf16"))
    kvs = planned_kvs_without_tokenizer(plan)
    assert kvs == {
        **runtime_kvs(SATGEZE, "bf16"),
        **own_kvs(SATGEZE),
        "dflash.rope.dimension_sections": tuple(facts(SATGEZE)["gguf_kv"]["dflash.rope.dimension_sections"]),
        "general.base_model.count": ("UINT32", 1),
        "general.base_model.0.name": ("STRING", "Qwen3.6-27B"),
        "dspark.target.name": ("STRING", "Qwen3.6-27B"),
        "dspark.target.block_count": ("UINT32", 64),
    }


def planned_kvs_without_tokenizer(plan: Plan) -> dict[str, tuple[str, Any]]:
    assert plan.errors == ()
    mask = "tokenizer.ggml.mask_token_id"
    mine = [kv for kv in plan.metadata if kv.key == mask or not kv.key.startswith("tokenizer.")]
    assert len(plan.metadata) - len(mine) >= 5
    return {kv.key: entry(kv) for kv in mine}


def test_the_hub_cache_gives_name_source_and_revision(tmp_path: Path) -> None:
    name = "dspark_qwen3_8b_block7"
    cache = tmp_path / "hub"
    root = lay_out(cache / f"models--deepseek-ai--{name}" / "snapshots" / REVISION, name)
    (root / "README.md").write_text("---\nlicense: mit\nbase_model:\n- Qwen/Qwen3-8B\n---\n# A draft\n")
    plan = plan_for_directory(root, None, Options(outtype="bf16"))
    assert planned_kvs(plan) == {
        **runtime_kvs(name, "bf16"),
        **own_kvs(name),
        "general.source.url": ("STRING", f"https://huggingface.co/deepseek-ai/{name}"),
        "general.source.huggingface.repository": ("STRING", f"deepseek-ai/{name}"),
        "general.base_model.count": ("UINT32", 1),
        "general.base_model.0.name": ("STRING", "Qwen3-8B"),
        "general.base_model.0.organization": ("STRING", "Qwen"),
        "general.base_model.0.repo_url": ("STRING", "https://huggingface.co/Qwen/Qwen3-8B"),
        "dspark.source": ("STRING", f"deepseek-ai/{name}"),
        "dspark.revision": ("STRING", REVISION),
    }


def test_command_shows_the_plan(convert: Convert, tmp_path: Path) -> None:
    name = "dspark_qwen3_4b_block7"
    root = lay_out(tmp_path / name, name)
    target = lay_out_target(tmp_path / "Qwen3-4B", name, tie_word_embeddings=True)
    ended = convert(root, "--target-model-dir", target, "--outtype", "q8_0", "--dry-run", "--json")
    assert ended.code == 0
    shown = {t["name"]: (t["type"], tuple(t["shape"])) for t in ended.document["plan"]["tensors"]}
    assert shown == tensors(name, "q8_0")
    for tensor in ended.document["plan"]["tensors"]:
        size = {"F32": (1, 4), "Q8_0": (32, 34)}[tensor["type"]]
        assert tensor["bytes"] == prod(tensor["shape"]) // size[0] * size[1]
    metadata = ended.document["plan"]["metadata"]
    wanted = {**runtime_kvs(name, "q8_0"), **own_kvs(name)}
    assert {key: metadata[key] for key in wanted} == {key: value for key, (_, value) in wanted.items()}
    assert len(metadata["tokenizer.ggml.tokens"]) == 151936
    assert ended.document["output"] is None
    text = convert(root, "--target-model-dir", target, "--outtype", "q8_0", "--dry-run")
    assert "62 tensors" in text.out
    assert "dspark-Qwen3-4B-Q8_0.gguf" in text.out
    assert list(Path.cwd().iterdir()) == []
