"""A DeepSeek-V4 draft in words, on one screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.cli.describe import meaning_fields, next_step
from dspark_convert.inspection import inspect_directory, inspect_file
from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from tests.conftest import Convert
from tests.draft_file import U32
from tests.hub_place import REPO, HubPlace, repository_of
from tests.stage_file import StageFile, published_flash, write_header


@pytest.fixture
def flash(tmp_path: Path) -> Path:
    return write_header(published_flash(), tmp_path / "dspark-flash.gguf")


def test_the_published_flash_draft(flash: Path) -> None:
    fields = dict(meaning_fields(inspect_file(flash)))
    assert len(fields) < 20
    assert (
        fields
        | {
            "block": "5 slots, 5 drafts a round, the first at the anchor",
            "taps": "the inputs of target layers 41, 42, 43",
            "Markov head": "vanilla, rank 256 (BF16)",
            "confidence head": "yes (BF16), so that --spec-draft-p-min can end a block early",
            "network": "deepseek4, 3 stages of 4096, 64 heads of 512 over 1, experts of 2048",
            "experts": "6 of 256 and 1 shared, weights normed, times 1.5, clamped at 10",
            "projections": "queries through 1024, keys are the values (512), output through 8 groups of 1024",
            "residual": "4 streams (hyper-connections), 20 rounds of Sinkhorn, epsilon 1e-06",
            "attention": "both ways within the block, a window of 128 in all stages, with sinks, context 1,048,576",
            "RoPE": "neighbouring pairs (2i, 2i + 1), the last 64 of 512 dimensions, base 10,000",
            "shared tensors": "embeddings and head are borrowed from the target",
            "weights": "81 tensors, 10.9 GB: MXFP4 10.3 GB, Q8_0 475 MB, BF16 139 MB, F32 9.85 MB",
        }
        == fields
    )


def test_it_can_be_run(flash: Path) -> None:
    assert next_step(inspect_file(flash))[1].endswith("--spec-type draft-dspark --spec-draft-n-max 5")


def test_other_numbers(tmp_path: Path) -> None:
    file = StageFile()
    for name in ("expert_shared_count", "attention.output_group_count"):
        file.kv[f"dflash.{name}"] = (U32, name == "attention.output_group_count", None)
    file.kv["dflash.expert_weights_norm"] = (7, False, None)
    file.tensors["markov_w2.weight"] = ("Q8_0", file.tensors["markov_w2.weight"][1])
    fields = dict(meaning_fields(inspect_file(file.write(tmp_path / "x.gguf"))))
    assert fields["experts"] == "2 of 4, weights times 1.5, clamped at 10"
    assert fields["projections"].endswith("output through 1 group of 32")
    assert fields["Markov head"] == "vanilla, rank 32 (F32 and Q8_0)"


def test_json(flash: Path) -> None:
    draft = inspect_file(flash).to_json()["draft"]
    assert (draft["sinks"], draft["feed_forward"], draft["sliding_window"]) == (True, 2048, 128)
    assert draft["deepseek4"] | {"hyper_connection_epsilon": 0} == {
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
        "hyper_connection_epsilon": 0,
    }
    assert draft["rope"] == {"style": "norm", "dimension_count": 64, "freq_base": 10000.0, "scaling": None}


def test_a_checkpoint_that_holds_the_target_too(tmp_path: Path) -> None:
    inspection = inspect_directory(make_deepseek4(tmp_path / "v4", with_target=False))
    fields = dict(meaning_fields(inspection))
    assert fields["network"] == "deepseek4, 3 stages of 192, 8 heads of 32 over 1, experts of 64"
    assert fields["experts"] == "3 of 8 and 1 shared, weights normed, times 1.5, clamped at 2.5"
    assert fields["attention"] == "both ways within the block, a window of 8 in all stages, with sinks, context 1,024"
    assert fields["RoPE"] == "neighbouring pairs (2i, 2i + 1), the last 16 of 32 dimensions, base 10,000"
    assert next_step(inspection)[1].startswith("dspark-convert ")


def test_the_line_that_converts_names_a_target_only_where_one_is_needed(tmp_path: Path, inspect: Convert) -> None:
    root = make_deepseek4(tmp_path / "v4")
    assert f"\n  dspark-convert {root}\n" in inspect(root).out
    assert f"\n  dspark-convert {root} --target-model-dir {root}\n" in inspect(root, "--target", root).out
    write_deepseek4_gguf(root, target := tmp_path / "target.gguf")
    assert f"\n  dspark-convert {root} --target-gguf {target}\n" in inspect(root, "--target", target).out
    (root / "tokenizer.json").unlink()
    assert f"\n  dspark-convert {root} --target-model-dir TARGET\n" in inspect(root).out


def test_the_same_of_one_on_the_hub(tmp_path: Path, hub: HubPlace, inspect: Convert) -> None:
    hub.server.files = repository_of(make_deepseek4(tmp_path / "v4"))
    assert f"\n  dspark-convert {REPO}@main\n" in inspect(f"{REPO}@main").out
    del hub.server.files["tokenizer.json"]
    hub.server.commit = "b" * 40
    assert f"\n  dspark-convert {REPO} --target-model-dir TARGET\n" in inspect(REPO).out
