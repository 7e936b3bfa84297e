"""The oracle writes a draft that ``gguf`` reads back, and its bytes are right where a hand can work them out."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests.oracle import encode, expected, read, write


@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("shared", ["omit", "include"])
def test_file_reads_back_as_expected(tmp_path: Path, outtype: str, shared: str) -> None:
    pair = make_tiny_pair(tmp_path, markov_rank=16)
    write_target_gguf(pair.target_dir, tmp_path / "target.gguf")
    want = expected(pair.draft_dir, pair.target_dir, outtype, shared=shared)
    write(want, tmp_path / "draft.gguf", tmp_path / "target.gguf")
    got = read(tmp_path / "draft.gguf")
    assert got.tensors == want.tensors
    assert want.kv.items() <= got.kv.items()
    target = read(tmp_path / "target.gguf")
    copied = {key for key in got.kv if key.startswith("tokenizer.")} - {"tokenizer.ggml.mask_token_id"}
    assert copied == {key for key in target.kv if key.startswith("tokenizer.")}
    assert all(got.kv[key] == target.kv[key] for key in copied)


def test_types_follow_outtype_but_not_for_vectors_and_short_rows(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path, markov_rank=16)
    types = {name: kind for name, (kind, _, _) in expected(pair.draft_dir, pair.target_dir, "q8_0").tensors.items()}
    assert types["fc.weight"] == "Q8_0"
    assert types["markov_w1.weight"] == "F16"  # rows of 16
    assert types["conf_proj.weight"] == "F16"  # a row of 144
    assert types["blk.0.attn_norm.weight"] == types["conf_proj.bias"] == "F32"
    assert "token_embd.weight" not in types
    assert len(types) == 40


def test_auto_keeps_bf16_and_turns_f32_into_f16(tmp_path: Path) -> None:
    for dtype, kind in (("BF16", "BF16"), ("F32", "F16")):
        pair = make_tiny_pair(tmp_path / dtype, dtype=dtype)  # type: ignore[arg-type]
        assert expected(pair.draft_dir, pair.target_dir, "auto").tensors["fc.weight"][0] == kind


def test_taps_are_layer_inputs(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path, target_layer_ids=(-1, 1, 2))
    kv = expected(pair.draft_dir, pair.target_dir, "f32").kv
    assert kv["dflash.target_layers"] == ("ARRAY[INT32]", [0, 2, 3])


def test_casts_by_hand() -> None:
    row = torch.tensor([[1.0, -2.0, 0.5, 1 + 2**-8]], dtype=torch.float32)
    assert encode(row, "f16")[2] == struct.pack("<4e", 1.0, -2.0, 0.5, 1 + 2**-8)
    # BF16 has 8 bits of precision: 1 + 2^-8 lies half way and goes to the even neighbour, 1
    assert encode(row, "bf16")[2] == struct.pack("<4H", 0x3F80, 0xC000, 0x3F00, 0x3F80)
    ramp = torch.arange(-16, 16, dtype=torch.float32).unsqueeze(0)
    scale = 16 / 127
    quants = [round(float(v) / scale) for v in ramp[0]]
    assert encode(ramp, "q8_0")[2] == struct.pack("<e32b", scale, *quants)


def test_missing_heads_become_zeros(tmp_path: Path) -> None:
    bare = make_tiny_pair(tmp_path / "bare", markov_rank=0)
    tensors = expected(bare.draft_dir, bare.target_dir, "bf16").tensors
    assert tensors["markov_w2.weight"] == ("BF16", (32, 512), bytes(2 * 32 * 512))
    hidden = make_tiny_pair(tmp_path / "hidden", confidence="hidden_only")
    kind, shape, data = expected(hidden.draft_dir, hidden.target_dir, "bf16").tensors["conf_proj.weight"]
    source = load_file(hidden.draft_dir / "model.safetensors")["confidence_head.proj.weight"]
    assert (kind, shape) == ("BF16", (144, 1))
    assert data == source.view(torch.uint8).numpy().tobytes() + bytes(2 * 16)


def test_early_dialect_has_its_own_keys(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path, markov_rank=16)
    kv = expected(pair.draft_dir, pair.target_dir, "f32", dialect="dspark").kv
    assert kv["general.architecture"] == ("STRING", "dspark")
    assert list(kv)[-4:] == [
        "dspark.block_size",
        "dspark.target_layers",
        "dspark.markov_rank",
        "tokenizer.ggml.mask_token_id",
    ]
    assert not any(key.startswith("dflash.") for key in kv)
