"""Directories that are no DeepSpec draft for Qwen3 (failures.md 1a, G09) and arguments that are no directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.checkpoints import ABSENT, Pair, snapshot
from tests.conftest import Convert
from tests.refusals.case import Case, Damage, both, check_refused, config, put, tensors

LOG_SNR = put("log_snr_embed.fc1.weight", "BF16", 8, 8)


def config_text(text: str | bytes) -> Case:
    """A config.json of exactly this text."""
    data = text.encode() if isinstance(text, str) else text
    return Case(repr(data[:20]), lambda pair: (pair.draft / "config.json").write_bytes(data), says=("config.json",))


def retext(old: str, new: str) -> Damage:
    def damage(pair: Pair) -> None:
        path = pair.draft / "config.json"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return damage


def broken(pair: Pair) -> None:
    path = pair.draft / "config.json"
    path.write_text(path.read_text().rstrip().removesuffix("}") + ",}")


def oversized(pair: Pair) -> None:
    with (pair.draft / "config.json").open("r+b") as file:
        file.truncate(65 * 2**20)


CASES = [
    Case("D06 swapped", Pair.swap, says=("itself a draft (Qwen3DSparkModel)", "swapped")),
    Case(
        "D06 the target as the draft",
        lambda pair: shutil.copytree(pair.target, pair.draft, dirs_exist_ok=True),
        says=("a full model (Qwen3ForCausalLM, 4 layers), not a DSpark draft", "Qwen3DSparkModel"),
    ),
    Case(
        "D06 the draft as the target",
        lambda pair: shutil.copytree(pair.draft, pair.target, dirs_exist_ok=True),
        says=("itself a draft (Qwen3DSparkModel)",),
    ),
    Case("architecture of another family", config(architectures=["OtherDSparkModel"]), says=("OtherDSparkModel",)),
    Case(
        "the class of a draft on the tensors of a model",
        lambda pair: shutil.copy(pair.target / "model.safetensors", pair.shard),
        says=("full model", "fc.weight"),
    ),
    Case(
        "Bonsai",
        tensors(LOG_SNR),
        errors=(
            ("family-unsupported", "bonsai"),
            ("tensor-shape", "log_snr_embed.fc1.weight"),
            *(("tensor-missing", f"log_snr_embed.{name}") for name in ("fc1.bias", "fc2.bias", "fc2.weight")),
        ),
        says=("llama.cpp has no graph for log-SNR conditioning",),
    ),
    Case("sinks", tensors(put("layers.0.self_attn.sinks", "BF16", 4)), says=("layers.0.self_attn.sinks",)),
    Case("architectures absent", config(architectures=ABSENT), says=("architectures", "Qwen3DSparkModel")),
    Case("architectures empty", config(architectures=[]), says=("architectures",)),
    Case("architectures a string", config(architectures="Qwen3DSparkModel"), says=("architectures",)),
    Case("architectures of odd types", config(architectures=[None, 7]), says=("None, 7",)),
    Case("trailing comma", broken, says=("not valid JSON", "line", "column")),
    Case(
        "duplicate key", retext('"block_size": 7', '"block_size": 7, "block_size": 5'), says=("'block_size'", "twice")
    ),
    Case(
        "NaN literal",
        retext('"rms_norm_eps": 1e-06', '"rms_norm_eps": NaN'),
        errors=(("config-value", "config.json: rms_norm_eps"),),
        says=("nan", "finite"),
    ),
    Case(
        "infinite literal",
        retext('"rope_theta": 10000.0', '"rope_theta": 1e999'),
        errors=(("config-value", "config.json: rope_parameters.rope_theta"),),
        says=("inf", "finite"),
    ),
    Case(
        "a number too large for a float",
        retext('"rope_theta": 10000.0', '"rope_theta": 1' + "0" * 400),
        errors=(("config-value", "config.json: rope_parameters.rope_theta"),),
        says=("rope_theta",),
    ),
    Case("a number of 5,000 digits", retext('"block_size": 7', '"block_size": 1' + "0" * 5000), says=("config.json",)),
    Case("larger than any config", oversized, says=("config.json", str(65 * 2**20))),
    Case(
        "no config.json",
        lambda pair: (pair.draft / "config.json").unlink(),
        says=("no config.json", "model.safetensors"),
    ),
    Case(
        "an empty directory",
        both(lambda pair: shutil.rmtree(pair.draft), lambda pair: pair.draft.mkdir()),
        says=("no config.json", "it holds nothing"),
    ),
    Case("no weights", lambda pair: pair.shard.unlink(), says=("no *.safetensors", "no weights")),
    Case(
        "PyTorch weights",
        lambda pair: pair.shard.rename(pair.draft / "pytorch_model.bin"),
        says=("pytorch_model.bin", "safetensors"),
    ),
    config_text("[1, 2]"),
    config_text(""),
    config_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
    config_text("<!DOCTYPE html><html></html>"),
    config_text('{"error": "Repository not found"}'),
    config_text(b'{"a": "\xff\xfe"}'),
    config_text('{"a": ' + "[" * 200 + "]" * 200 + "}"),
    config_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)


def usage(pair: Pair, convert: Convert, *args: str | Path) -> str:
    before = snapshot(pair.root)
    ended = convert(*args)
    assert (ended.code, ended.out) == (2, "")
    assert snapshot(pair.root) == before
    assert list(Path.cwd().iterdir()) == []
    assert len(ended.err.strip().splitlines()) == 1
    return ended.err


def test_paths_of_the_wrong_kind(pair: Pair, convert: Convert) -> None:
    target = ("--target-model-dir", pair.target)
    assert f"give its directory {pair.draft}" in usage(pair, convert, pair.shard, *target)
    assert "does not exist" in usage(pair, convert, pair.root / "no-such-thing", *target)
    assert "does not exist" in usage(pair, convert, pair.draft, "--target-model-dir", pair.root / "nothing")
    assert "does not exist" in usage(pair, convert, pair.draft, "--target-gguf", pair.root / "nothing.gguf")
    assert "--target-model-dir" in usage(pair, convert, pair.draft, "--target-gguf", pair.target)
    assert "--target-gguf" in usage(pair, convert, pair.draft, "--target-model-dir", pair.gguf)


def test_a_targets_gguf_is_no_draft(pair: Pair, convert: Convert) -> None:
    ended = convert(pair.gguf, "--target-model-dir", pair.target)
    assert ended.code == 3
    assert "complete qwen3 model" in ended.err
    assert "give the draft" in ended.err


def test_no_target_says_what_is_needed(pair: Pair, convert: Convert) -> None:
    told = usage(pair, convert, pair.draft)
    assert "--target-model-dir" in told
    assert "--target-gguf" in told


def test_the_target_alone_is_told_from_a_draft(pair: Pair, convert: Convert) -> None:
    ended = convert(pair.target, "--dry-run")
    assert ended.code == 3
    assert "the target?" in ended.err


def test_a_bom_and_an_odd_shard_name_are_no_fault(pair: Pair, convert: Convert) -> None:
    path = pair.draft / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    pair.shard.rename(pair.draft / "dflash_draft_model.safetensors")
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", "--json")
    assert ended.code == 0
    assert len(ended.document["plan"]["tensors"]) == 40


def test_a_hostile_architecture_name_does_not_reach_the_terminal(pair: Pair, convert: Convert) -> None:
    pair.config({"architectures": ["\x1b[2J\u202eevil\r\n"]})
    ended = convert(pair.draft, "--target-model-dir", pair.target)
    assert ended.code == 3
    assert "\\x1b[2J\\u202eevil\\r\\n" in ended.err
    assert json.dumps("\x1b")[1:-1] not in ended.err
