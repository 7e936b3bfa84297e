"""What a port refuses, with its reason; and that no file, however broken, ends it otherwise."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from dspark_convert.errors import InputError
from dspark_convert.options import Dialect, Options
from dspark_convert.port.planning import plan_for_gguf
from tests.checkpoints import Pair
from tests.conftest import Convert
from tests.draft_file import U32, DraftFile
from tests.ggufio.layout_files import FILES
from tests.hostile.mutate import bend
from tests.hostile.samples import make_samples

#: seconds of it are enough here; the layouts' readers are fuzzed by themselves
FUZZED = 400


def errors(path: Path, options: Options | None = None) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in plan_for_gguf(path, None, options).errors]


@pytest.mark.parametrize(
    ("case", "where"),
    [
        ("prism-conditioned", "dspark.dspark.log_snr_conditioning"),
        ("log-snr", "dflash.log_snr_conditioning"),
        ("ds41", "general.architecture"),
        ("v4.1", "dflash.dsv41_semantics"),
    ],
)
def test_drafts_that_mainline_cannot_run(tmp_path: Path, case: str, where: str) -> None:
    plan = plan_for_gguf(FILES[case][1]().write(tmp_path / "dspark-x.gguf"))
    assert ("not-portable", where) in [(finding.rule, finding.where) for finding in plan.errors]
    assert plan.tensors == () == plan.metadata


def test_big_endian_numbers(tmp_path: Path) -> None:
    assert errors(DraftFile().write(tmp_path / "dspark-x.gguf", ">")) == [("big-endian", "dspark-x.gguf")]


def test_damaged_file(tmp_path: Path) -> None:
    path = DraftFile().write(tmp_path / "dspark-x.gguf")
    os.truncate(path, path.stat().st_size - 100)
    assert [rule for rule, _ in errors(path)] == ["truncated"]


def test_tensor_that_no_draft_has(tmp_path: Path) -> None:
    file = DraftFile()
    file.tensors["blk.0.attn_gate.weight"] = ("F32", (64, 4))
    assert errors(file.write(tmp_path / "dspark-x.gguf")) == [("tensor-unexpected", "blk.0.attn_gate.weight")]


def test_tensor_that_is_missing(tmp_path: Path) -> None:
    file = DraftFile()
    del file.tensors["blk.1.ffn_up.weight"]
    assert errors(file.write(tmp_path / "dspark-x.gguf")) == [("tensor-missing", "blk.1.ffn_up.weight")]


@pytest.mark.parametrize("layers", [0, 513, 2**32 - 1])
def test_layers_without_end(tmp_path: Path, layers: int) -> None:
    file = DraftFile()
    file.kv["dflash.block_count"] = (U32, layers, None)
    assert ("block-count", "block_count") in errors(file.write(tmp_path / "dspark-x.gguf"))


def test_target_instead_of_a_draft(pair: Pair) -> None:
    with pytest.raises(InputError, match="complete qwen3 model"):
        plan_for_gguf(pair.gguf)


def test_a_file_of_another_name_is_known_by_its_content(pair: Pair, convert: Convert) -> None:
    assert convert(pair.draft, "--target-gguf", pair.gguf, "-o", "draft.bin").code == 0
    assert convert("draft.bin", "--outtype", "q8_0", "-o", "out.gguf").code == 0


def test_pre_tokenizer_is_the_donors(pair: Pair, convert: Convert) -> None:
    assert convert(pair.draft, "--target-gguf", pair.gguf, "-o", "a.gguf").code == 0
    ended = convert("a.gguf", "--target-gguf", pair.gguf, "--tokenizer-pre", "qwen2", "-o", "b.gguf")
    assert (ended.code, "a GGUF brings its own" in ended.err) == (2, True)


def test_no_file_ends_it_otherwise_than_with_a_plan_or_a_reason(tmp_path: Path) -> None:
    rng = random.Random(5)
    samples = [several[0] for several in make_samples()]
    path = tmp_path / "dspark-x.gguf"
    planned = refused = 0
    for _ in range(FUZZED):
        header, size = bend(rng.choice(samples), rng)
        path.write_bytes(header)
        os.truncate(path, size)
        options = replace(Options(outtype=rng.choice(["auto", "q8_0"])), dialect=rng.choice(get_args(Dialect)))
        try:
            plan = plan_for_gguf(path, None, options)
        except InputError:
            refused += 1
            continue
        if plan.errors:
            refused += 1
        else:
            planned += 1
            assert plan.tensors
    assert planned
    assert refused > planned
