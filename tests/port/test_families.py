"""Drafts with ids and NVFP4 in them ported: what a conversion of their checkpoint gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from fixtures.dflash2 import make_dflash2_pair
from fixtures.families import make_pair
from fixtures.gemma4 import make_gemma4_pair
from fixtures.target_gguf import write_target_gguf
from tests.conftest import Convert
from tests.oracle import read

Run = Callable[..., Path]

#: what is told of a family whether it is ported or not; the tiny target is no Gemma
WARNED = {"gemma4": ("logits-unscaled", "target-embedding-scale"), "mimo": ("config-unread",)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("families")
    own = {"gemma4": make_gemma4_pair, "dflash2": make_dflash2_pair}
    for name in ("nemotron", "speculators_dspark_bonus", "mimo", *own):
        pair = own[name](root / name) if name in own else make_pair(name, root / name)
        write_target_gguf(pair.target_dir, root / name / "target.gguf")
    path = root / "nemotron" / "draft" / "config.json"
    config = json.loads(path.read_text())
    config["dflash_config"]["target_layer_ids"] = [0, 1, 2]
    config["eagle_aux_hidden_state_layer_ids"] = [1, 2, 3]
    path.write_text(json.dumps(config))
    return root


@pytest.fixture
def run(root: Path, convert: Convert) -> Run:
    def call(family: str, model: Path, out: str, *args: str) -> Path:
        ended = convert(model, "--target-gguf", root / family / "target.gguf", "-o", out, "--json", *args)
        assert ended.code == 0, ended.told
        assert {rule for rule, _ in ended.findings("warning")} <= {"rounded-twice", *WARNED.get(family, ())}
        return Path(out)

    return call


@pytest.mark.parametrize("args", [(), ("--outtype", "q8_0"), ("--dequantize",), ("--dequantize", "--outtype", "q8_0")])
def test_nvfp4_and_its_scales_are_moved_or_multiplied(root: Path, run: Run, args: tuple[str, ...]) -> None:
    draft = root / "nemotron" / "draft"
    direct = run("nemotron", draft, "direct.gguf", *args)
    ported = run("nemotron", run("nemotron", draft, "auto.gguf"), "ported.gguf", *args)
    assert ported.read_bytes() == direct.read_bytes()
    kinds = {name: kind for name, (kind, _, _) in read(Path("ported.gguf")).tensors.items()}
    kept = "--dequantize" not in args
    assert (kinds["fc.weight"] == kinds["markov_w2.weight"] == "NVFP4") is kept
    assert len([name for name in kinds if name.endswith(".scale")]) == (11 if kept else 0)


def test_a_scale_is_multiplied_into_what_is_no_longer_nvfp4(root: Path, run: Run) -> None:
    auto = run("nemotron", root / "nemotron" / "draft", "auto.gguf")
    run("nemotron", auto, "f32.gguf", "--dequantize", "--outtype", "f32")
    (_, shape, data), (_, _, scale) = (read(Path("auto.gguf")).tensors[f"fc.{part}"] for part in ("weight", "scale"))
    blocks = np.frombuffer(data, np.uint8).reshape(shape[1], -1)
    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.NVFP4) * np.frombuffer(scale, "<f4")
    kind, same, wide = read(Path("f32.gguf")).tensors["fc.weight"]
    assert (kind, same) == ("F32", shape)
    np.testing.assert_array_equal(np.frombuffer(wide, "<f4").reshape(values.shape), values)


@pytest.mark.parametrize("args", [(), ("--outtype", "f16")])
@pytest.mark.parametrize("family", ["gemma4", "dflash2", "mimo"])
def test_what_is_no_matrix_is_moved(root: Path, run: Run, family: str, args: tuple[str, ...]) -> None:
    """Frequencies that the converter computed, coefficients in three axes, tables with a row of the draft's own."""
    direct = run(family, root / family / "draft", "direct.gguf", *args)
    ported = run(family, run(family, root / family / "draft", "auto.gguf"), "ported.gguf", *args)
    assert ported.read_bytes() == direct.read_bytes()


@pytest.mark.parametrize("args", [(), ("--shared-tensors", "omit"), ("--shared-tensors", "include")])
@pytest.mark.parametrize("donor", [True, False])
def test_tables_with_a_mask_row_of_the_draft_s_own_stay(
    root: Path, run: Run, convert: Convert, donor: bool, args: tuple[str, ...]
) -> None:
    direct = run("mimo", root / "mimo" / "draft", "direct.gguf")
    target = ("--target-gguf", root / "mimo" / "target.gguf") if donor else ()
    ended = convert(direct, *target, "-o", "ported.gguf", "--json", *args)
    assert (ended.code, ended.findings("warning")) == (0, []), ended.told
    assert read(Path("ported.gguf")) == read(direct)
    told = [where for rule, where in ended.findings("info") if rule == "mask-embedding-written"]
    assert told == ([] if "include" in args else ["token_embd.weight"])


def test_ids_are_moved(root: Path, run: Run) -> None:
    family = "speculators_dspark_bonus"
    direct = run(family, root / family / "draft", "direct.gguf")
    ported = run(family, direct, "ported.gguf")
    assert ported.read_bytes() == direct.read_bytes()
    assert read(Path("ported.gguf")).tensors["d2t"][0] == "I64"


def test_tables_of_a_reduced_vocabulary_may_be_kept(root: Path, run: Run) -> None:
    family, kept = "speculators_dspark_bonus", ("--shared-tensors", "include")
    direct = run(family, root / family / "draft", "direct.gguf", *kept)
    assert run(family, direct, "ported.gguf", *kept).read_bytes() == direct.read_bytes()
