"""What is written of a checkpoint of any family is read back as what the checkpoint means, and is a good file."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from dspark_convert.diff.meaning import compare_meaning
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from dspark_convert.plan import plan_for_directory
from dspark_convert.target import open_target_directory
from fixtures.families import NAMES, sizes_of
from fixtures.families.parts import Draw
from tests.conftest import Convert
from tests.families.proofs import recorded
from tests.test_family_bytes import made

#: what llama.cpp cannot run, as tests/families holds it
UNCONVERTED = {name for name, entry in recorded().items() if entry["refused"]}
CONVERTED = [*sorted({*NAMES} - UNCONVERTED), "gemma4", "dflash2", "dflash2_muse"]

#: findings that a good file of some families has
TOLD = {"no-confidence-head", "own-tables", "causal-mixed", "logits-unscaled"}


@pytest.mark.parametrize("name", CONVERTED)
def test_the_file_means_the_checkpoint(name: str, tmp_path: Path, convert: Convert) -> None:
    pair = made(name, tmp_path / "pair")
    plan = plan_for_directory(pair.draft_dir, open_target_directory(pair.target_dir))
    assert plan.draft is not None
    path = Path("dspark-x.gguf" if plan.draft.kind == "dspark" else "dflash-x.gguf")
    ended = convert(pair.draft_dir, "--target-model-dir", pair.target_dir, "-o", path)
    assert ended.code == 0, ended.told
    with open_gguf(path) as gguf:
        reading = read_draft(gguf)
        found = lint(gguf, reading, deep=True)
    assert reading.draft is not None, reading.findings
    assert compare_meaning(plan.draft, reading.draft) == []
    assert {finding.rule for finding in found} <= TOLD, found


def test_sinks_come_along_in_a_family_that_has_published_none(tmp_path: Path, convert: Convert) -> None:
    pair = made("lfm2", tmp_path / "pair")
    path = pair.draft_dir / "model.safetensors"
    sinks = Draw(sizes_of("lfm2")).sinks()
    save_file(load_file(path) | sinks, path)
    ended = convert(pair.draft_dir, "--target-model-dir", pair.target_dir, "-o", "dspark-x.gguf")
    assert ended.code == 0, ended.told
    with open_gguf(Path("dspark-x.gguf")) as gguf:
        draft = read_draft(gguf).draft
        assert draft is not None
        assert draft.has_sinks
        for layer in range(draft.n_layer):
            tensor = gguf.tensor(f"blk.{layer}.attn_sinks.weight")
            assert tensor is not None
            want = sinks[f"layers.{layer}.self_attn.attention_sink_bias"].float()
            assert bytes(gguf.data(tensor)) == want.numpy().tobytes()
