"""Whole conversions of tiny drafts of other families against tests/family_oracle.py: every key and every byte."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fixtures.dflash2 import make_dflash2_pair
from fixtures.families import make_pair
from fixtures.families.nvfp4 import pack
from fixtures.gemma4 import make_gemma4_pair
from fixtures.hf_pair import TinyPair
from tests.conftest import Convert
from tests.family_oracle import FAMILIES, common_kv, expected_tensors, gguf_name, unpacked
from tests.oracle import Expected, read

NEMOTRON = "nemotron"


def made(name: str, root: Path) -> TinyPair:
    if name == "gemma4":
        return make_gemma4_pair(root)
    if name.startswith("dflash2"):
        return make_dflash2_pair(root, muse=name == "dflash2_muse")
    pair = make_pair(name, root)
    if name == NEMOTRON:  # which hands out what leaves its last layer; a Qwen3 target does not
        path = pair.target_dir / "config.json"
        nemotron = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"}
        path.write_text(json.dumps(json.loads(path.read_text()) | nemotron))
    return pair


def written(pair: TinyPair, convert: Convert, *args: str) -> Expected:
    ended = convert(pair.draft_dir, "--target-model-dir", pair.target_dir, "-o", "out.gguf", "--json", *args)
    assert ended.code == 0, ended.told
    return read(Path("out.gguf"))


@pytest.mark.parametrize("outtype", ["f32", "bf16", "q8_0"])
@pytest.mark.parametrize("name", FAMILIES)
def test_file(name: str, outtype: str, tmp_path: Path, convert: Convert) -> None:
    pair = made(name, tmp_path / "pair")
    got = written(pair, convert, "--outtype", outtype)
    want = expected_tensors(name, pair.draft_dir, outtype)
    packed = {gguf_name(FAMILIES[name], source) for source in unpacked(pair.draft_dir)}
    beside = {f"{source.removesuffix('.weight')}.scale" for source in packed}
    assert got.tensors.keys() == want.keys() | packed | beside
    for tensor, (kind, shape, data) in want.items():
        assert got.tensors[tensor][:2] == (kind, shape), tensor
        assert got.tensors[tensor][2] == data, tensor
    kv = {key: value for key, value in got.kv.items() if key.startswith("dflash.")}
    assert kv == common_kv(pair.draft_dir) | FAMILIES[name].kv
    assert got.kv["tokenizer.ggml.mask_token_id"] == ("UINT32", 507)


@pytest.mark.parametrize("outtype", ["auto", "f32", "q8_0"])
def test_nvfp4_stays_with_its_number_beside_it(outtype: str, tmp_path: Path, convert: Convert) -> None:
    pair = made(NEMOTRON, tmp_path / "pair")
    got = written(pair, convert, "--outtype", outtype)
    sources = load_file(pair.draft_dir / "model.safetensors")
    matrices = unpacked(pair.draft_dir)
    assert len(matrices) == 11
    for source, matrix in matrices.items():
        name = gguf_name(FAMILIES[NEMOTRON], source)
        kind, shape, data = got.tensors[name]
        assert (kind, shape) == ("NVFP4", tuple(reversed(matrix.shape)))
        whole = sources[f"{source}_scale_2"].numpy()
        assert got.tensors[f"{name.removesuffix('.weight')}.scale"] == ("F32", (1,), whole.tobytes())
        rows = np.frombuffer(data, np.uint8).reshape(len(matrix), -1)
        values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType.NVFP4) * np.float64(whole)
        np.testing.assert_allclose(values, matrix.numpy(), rtol=1e-6)


def test_nvfp4_as_plain_numbers(tmp_path: Path, convert: Convert) -> None:
    pair = made(NEMOTRON, tmp_path / "pair")
    got = written(pair, convert, "--outtype", "f32", "--dequantize")
    assert not [name for name in got.tensors if name.endswith(".scale")]
    for source, matrix in unpacked(pair.draft_dir).items():
        kind, shape, data = got.tensors[gguf_name(FAMILIES[NEMOTRON], source)]
        assert (kind, shape) == ("F32", tuple(reversed(matrix.shape)))
        np.testing.assert_allclose(np.frombuffer(data, np.float32), matrix.numpy().ravel(), rtol=1e-6)


def pack_anew(draft: Path, names: tuple[str, ...]) -> None:
    """Matrices of the checkpoint as NVFP4, and what modelopt saves beside them for activations and cache."""
    tensors = load_file(draft / "model.safetensors")
    for name in names:
        tensors |= pack(name, tensors.pop(f"{name}.weight").float())
        tensors[f"{name}.input_scale"] = torch.tensor(0.25)
    tensors["layers.0.self_attn.k_proj.k_scale"] = torch.tensor(0.5)
    save_file(tensors, draft / "model.safetensors")


def test_nvfp4_stays_where_llama_cpp_has_a_number_for_it(tmp_path: Path, convert: Convert) -> None:
    pair = made("dflash2", tmp_path / "pair")
    packed = ("fc", "layers.1.attention_conv.kernel_projection", "layers.1.self_attn.q_proj")
    before = load_file(pair.draft_dir / "model.safetensors")["fc.weight"].shape
    pack_anew(pair.draft_dir, packed)
    got = written(pair, convert, "--outtype", "f16").tensors
    kinds = {name: got[name][0] for name in ("fc.weight", "blk.1.attn_conv_proj.weight", "blk.1.attn_q.weight")}
    assert kinds == {
        "fc.weight": "NVFP4",
        "blk.1.attn_conv_proj.weight": "F16",
        "blk.1.attn_q.weight": "NVFP4",
    }
    assert got["fc.weight"][1] == tuple(reversed(before))
    assert {name for name in got if name.endswith("scale")} == {"fc.scale", "blk.1.attn_q.scale"}
