"""Published drafts of every other family at their full dimensions, planned from headers alone.

``fixtures/published_families/NAME.json`` states a checkpoint (config.json; tensors with dtype and shape, those of the
layers once) and, apart from it, what llama.cpp's own converter of October 2026 makes of it: key/values (type, value)
and tensors (type with --outtype bf16, type with q8_0, shape in ggml order), or why it refuses. ``deviating_kv`` and
``deviating_tensors`` are what is right where that is not, null for what is not written.
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
from dspark_convert.source.checkpoint import open_checkpoint
from dspark_convert.specs.load import Spec, load_specs
from dspark_convert.specs.match import match_spec
from dspark_convert.target import open_target_directory
from fixtures.bpe import copy_tiny
from tests.checkpoints import header_of
from tests.published_layout import each_layer, lay_out_headers, read_facts
from tests.test_published import planned_tensors

PUBLISHED = Path(__file__).parent.parent / "fixtures" / "published_families"
NAMES = sorted(path.stem for path in PUBLISHED.glob("*.json"))
#: read and shown, and never converted
REFUSED = {"bonsai_27b_dspark", "laguna_s_2.1_dflash"}
#: what llama.cpp leaves out, and a key (backbone_rotary_base) of which nobody says what it is for
WARNED = {"dspark_gemma4_12b_block7": {"logits-unscaled"}, "mimo_v2.5_pro_dflash": {"config-unread"}}
CONVERTED = [name for name in NAMES if name not in REFUSED]


def facts(name: str) -> dict[str, Any]:
    return read_facts(PUBLISHED / f"{name}.json")


def spec_of(name: str) -> Spec:
    return next(spec for spec in load_specs() if spec.name == facts(name)["family"])


def lay_out(root: Path, name: str) -> Path:
    return lay_out_headers(root, facts(name))


def right(given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """What llama.cpp's converter writes, where that is right, and what is where it is not."""
    return {key: value for key, value in (given | changes).items() if value is not None}


def runtime_kvs(name: str, outtype: str) -> dict[str, tuple[str, Any]]:
    fact = facts(name)
    file_type = {"general.file_type": ["UINT32", fact.get("file_type", {"bf16": 32, "q8_0": 7})[outtype]]}
    kvs = right(fact.get("gguf_kv", {}) | file_type, fact["deviating_kv"])
    return {key: tuple(value) for key, value in kvs.items()}


def own_kvs(name: str) -> dict[str, tuple[str, Any]]:
    """The keys that this package adds for a directory that says nothing of where it came from."""
    kv = {key.removeprefix("dflash."): value for key, value in runtime_kvs(name, "bf16").items()}
    rank = tensors(name, "bf16").get("markov_w1.weight", ("", (0, 0)))[1][0]
    proportional = "rope_freqs.weight" in tensors(name, "bf16")
    return {
        "general.type": ("STRING", "model"),
        "general.name": ("STRING", name),
        "general.quantization_version": ("UINT32", 2),
        "dspark.backbone": ("STRING", "gemma4" if proportional else "qwen3"),
        "dspark.block_size": kv["block_size"],
        "dspark.target_layers": kv["target_layers"],
        "dspark.mask_token_id": kv["tokenizer.ggml.mask_token_id"],
        "dspark.sample_from_anchor": kv["sample_from_anchor"],
        "dspark.markov_rank": ("UINT32", rank),
        "dspark.markov_head_type": ("STRING", "vanilla" if rank else "none"),
        "dspark.has_confidence_head": kv["has_confidence_head"],
        "dspark.rope_style": ("STRING", "neox"),
        "dspark.source": ("STRING", name),
        "dspark.converter_version": ("STRING", __version__),
        # a quarter of each head's 512 dimensions
        **({"dspark.rope_rotated": ("UINT32", 128)} if proportional else {}),
    }


def tensors(name: str, outtype: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    fact = facts(name)
    column = {"bf16": 0, "q8_0": 1}[outtype]
    entries = right(fact.get("gguf_tensors_bf16_q8_0", {}), fact["deviating_tensors"])
    return {name: (entry[column], tuple(entry[2])) for name, entry in each_layer(entries, fact["layers"]).items()}


def entry(kv: KV) -> tuple[str, Any]:
    if kv.type is ValueType.ARRAY:
        flags = all(type(item) is bool for item in kv.value)
        assert kv.item_type is (ValueType.BOOL if flags else ValueType.INT32)
    return kv.type.name, kv.value


def planned(name: str, root: Path, outtype: str) -> Plan:
    return plan_for_directory(lay_out(root / name, name), None, Options(outtype=outtype))  # type: ignore[arg-type]


@pytest.mark.parametrize("outtype", ["bf16", "q8_0"])
@pytest.mark.parametrize("name", CONVERTED)
def test_plan_is_what_llama_cpp_reads(name: str, outtype: str, tmp_path: Path) -> None:
    plan = planned(name, tmp_path, outtype)
    assert {f.rule for f in plan.findings if f.severity != "info"} == WARNED.get(name, set())
    assert planned_tensors(plan) == tensors(name, outtype)
    kvs = {kv.key: entry(kv) for kv in plan.metadata}
    assert kvs == {**runtime_kvs(name, outtype), **own_kvs(name)}


@pytest.mark.parametrize("name", NAMES)
def test_the_family_is_recognised(name: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(lay_out(tmp_path / name, name))
    assert match_spec(checkpoint.config, checkpoint.names).name == facts(name)["family"]


@pytest.mark.parametrize("name", NAMES)
def test_every_deviation_is_in_the_spec(name: str) -> None:
    """So that docs/families.md lists it with its reason. Sections of a rotation come with the target."""
    fact, spec = facts(name), spec_of(name)
    listed = ", ".join(rule.source for rule in spec.deviations).split(", ")
    if "converter_refuses" in fact:
        assert "the whole file" in listed or spec.unsupported
        return
    borrowed = {rule.gguf for rule in spec.tensors if rule.shared != "False"}
    changed = {*fact["deviating_kv"], *fact["deviating_tensors"]}
    assert changed - borrowed - {"dflash.rope.dimension_sections"} <= set(listed)


def test_mimo_with_its_mask_row(tmp_path: Path) -> None:
    """Both of the target's tables, as llama.cpp's converter writes them out of its directory."""
    import torch

    name = "mimo_v2.5_pro_dflash"
    config = facts(name)["config"]
    width, count = config["hidden_size"], config["vocab_size"]
    draft = lay_out(tmp_path / name, name)
    row = {"mask_token_id": 151669, "embedding": torch.zeros(width, dtype=torch.bfloat16)}
    torch.save(row, draft / "mask_embedding.pt")
    target = tmp_path / "target"
    target.mkdir()
    sizes = {"hidden_size": width, "num_hidden_layers": 70, "vocab_size": count}
    (target / "config.json").write_text(json.dumps({"model_type": "mimo_v2", "tie_word_embeddings": False, **sizes}))
    copy_tiny(target)
    nbytes = 2 * count * width
    tables = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (count, width), nbytes))
    with (target / "model.safetensors").open("wb") as file:
        header = header_of(tables)
        file.write(header)
        file.truncate(len(header) + 2 * nbytes)
    plan = plan_for_directory(draft, open_target_directory(target), Options(outtype="q8_0"))
    assert plan.errors == ()
    both = dict.fromkeys(("token_embd.weight", "output.weight"), ("Q8_0", (width, count)))
    assert planned_tensors(plan) == tensors(name, "q8_0") | both
    (patched,) = (job for job in plan.tensors if job.transform == "patch_row")
    assert (patched.name, patched.row) == ("token_embd.weight", 151669)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_no_llama_cpp_runs_is_shown_and_refused(name: str, tmp_path: Path) -> None:
    plan = planned(name, tmp_path, "bf16")
    assert {f.rule for f in plan.errors} == {"family-unsupported"}
    config = facts(name)["config"]
    assert plan.draft is not None and plan.draft.hidden_size == config["hidden_size"]
    assert sum(prod(job.shape) for job in plan.tensors) > 10**9
