"""Whole conversions against tests/oracle.py: every key, every tensor, every byte accounted for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert import __version__
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests.checkpoints import Pair, Tensor, read_tensors, write_tensors
from tests.conftest import Convert
from tests.oracle import Expected, expected, read

MASK = "tokenizer.ggml.mask_token_id"


def written(pair: Pair, convert: Convert, *args: str, gguf: bool = False) -> Expected:
    """The file of a run that must succeed, as the ``gguf`` package reads it."""
    target = ("--target-gguf", pair.gguf) if gguf else ("--target-model-dir", pair.target)
    ended = convert(pair.draft, *target, "-o", "out.gguf", "--force", "--json", *args)
    assert ended.code == 0, ended.told
    return read(Path("out.gguf"))


def own_kv(want: Expected, *, head: str = "vanilla", rank: int = 16) -> dict[str, tuple[str, Any]]:
    """What this package adds to the runtime's keys for the tiny pair, whose names are "draft" and "target"."""
    arch = want.kv["general.architecture"][1]
    return {
        "general.type": ("STRING", "model"),
        "general.name": ("STRING", "draft"),
        "general.quantization_version": ("UINT32", 2),
        "general.base_model.count": ("UINT32", 1),
        "general.base_model.0.name": ("STRING", "target"),
        f"{arch}.sample_from_anchor": ("BOOL", True),
        f"{arch}.has_confidence_head": ("BOOL", "conf_proj.weight" in want.tensors),
        "dspark.backbone": ("STRING", "qwen3"),
        "dspark.block_size": want.kv[f"{arch}.block_size"],
        "dspark.target_layers": want.kv[f"{arch}.target_layers"],
        "dspark.mask_token_id": want.kv[MASK],
        "dspark.sample_from_anchor": ("BOOL", True),
        "dspark.markov_rank": ("UINT32", rank),
        "dspark.markov_head_type": ("STRING", head),
        "dspark.has_confidence_head": ("BOOL", "conf_proj.weight" in want.tensors),
        "dspark.rope_style": ("STRING", "neox"),
        "dspark.source": ("STRING", "draft"),
        "dspark.converter_version": ("STRING", __version__),
        "dspark.target.name": ("STRING", "target"),
        "dspark.target.block_count": ("UINT32", 4),
    }


def tokenizer_kv(pair: Pair, gguf: bool) -> dict[str, tuple[str, Any]]:
    """The tokenizer that a target's GGUF, written without this package, has."""
    kv = {key: value for key, value in read(pair.gguf).kv.items() if key.startswith("tokenizer.")}
    # llama.cpp's converter takes it from the ByteLevel post-processor; the fixture's writer leaves it out.
    return kv if gguf else {**kv, "tokenizer.ggml.add_eos_token": ("BOOL", False)}


def check(got: Expected, want: Expected, pair: Pair, gguf: bool = False, **own: Any) -> None:
    assert list(got.tensors) == list(dict.fromkeys(got.tensors))
    assert got.tensors.keys() == want.tensors.keys()
    for name, (kind, shape, data) in want.tensors.items():
        assert got.tensors[name][:2] == (kind, shape), name
        assert got.tensors[name][2] == data, name
    assert got.kv == {**tokenizer_kv(pair, gguf), **own_kv(want, **own), **want.kv}


OUTTYPES = ["f32", "f16", "bf16", "q8_0", "auto"]


@pytest.mark.parametrize("gguf", [False, True], ids=["directory", "gguf"])
@pytest.mark.parametrize(("dialect", "shared"), [("dflash", "omit"), ("dflash", "include"), ("dspark", "omit")])
@pytest.mark.parametrize("outtype", OUTTYPES)
def test_file(outtype: str, shared: str, dialect: str, gguf: bool, pair: Pair, convert: Convert) -> None:
    got = written(pair, convert, "--outtype", outtype, "--shared-tensors", shared, "--dialect", dialect, gguf=gguf)
    want = expected(pair.draft, pair.target, outtype, shared=shared, dialect=dialect)
    check(got, want, pair, gguf)


def test_shared_tensors_are_both_or_neither(pair: Pair, convert: Convert) -> None:
    both = {"token_embd.weight", "output.weight"}
    assert not both & set(written(pair, convert).tensors)
    assert both <= set(written(pair, convert, "--shared-tensors", "include").tensors)


def variant(tmp_path: Path, **options: Any) -> Pair:
    made = make_tiny_pair(tmp_path / "variant", **options)
    pair = Pair(made.draft_dir.parent)
    write_target_gguf(pair.target, pair.gguf)
    return pair


@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("outtype", OUTTYPES)
def test_other_source_dtypes(outtype: str, dtype: str, tmp_path: Path, convert: Convert) -> None:
    pair = variant(tmp_path, dtype=dtype)
    got = written(pair, convert, "--outtype", outtype, "--shared-tensors", "include")
    check(got, expected(pair.draft, pair.target, outtype, shared="include"), pair)


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"confidence": "hidden_only"}, {}),
        ({"confidence": "none"}, {}),
        ({"markov_rank": 0}, {"head": "zero", "rank": 32}),
        ({"markov_rank": 32}, {"rank": 32}),
        ({"target_layer_ids": (-1, 1, 2)}, {}),
        ({"target_layer_ids": (1,), "draft_layers": 1, "block_size": 5}, {}),
        ({"hidden_size": 96, "heads": 6, "kv_heads": 3, "head_dim": 16, "intermediate_size": 112}, {}),
        ({"heads": 2, "kv_heads": 2, "head_dim": 128}, {}),
        ({"rope_theta": 5e6, "context": 40960}, {}),
        ({"vocab_size": 640, "mask_token_id": 499}, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dialect", ["dflash", "dspark"])
@pytest.mark.parametrize("outtype", ["bf16", "q8_0"])
def test_variants(
    options: dict[str, Any], own: dict[str, Any], outtype: str, dialect: str, tmp_path: Path, convert: Convert
) -> None:
    pair = variant(tmp_path, **options)
    got = written(pair, convert, "--outtype", outtype, "--dialect", dialect)
    check(got, expected(pair.draft, pair.target, outtype, dialect=dialect), pair, **own)


def confidence(tensors: dict[str, Tensor], columns: int) -> None:
    ramp = np.arange(1, columns + 1, dtype=np.uint16) + 0x3F00
    tensors["confidence_head.proj.weight"] = Tensor("BF16", (1, columns), ramp.tobytes())
    tensors["confidence_head.proj.bias"] = Tensor("BF16", (1,), b"\x80\x3f")


@pytest.mark.parametrize("with_markov", [True, False, None])
def test_rank_0_with_a_confidence_head(with_markov: bool | None, tmp_path: Path, convert: Convert) -> None:
    """The head of zeros has 32 columns, so the confidence head gets 32 of zeros too, whatever the config says."""
    pair = variant(tmp_path, markov_rank=0)
    pair.tensors(lambda tensors: confidence(tensors, 128))
    pair.config({"enable_confidence_head": True, "confidence_head_with_markov": with_markov})
    got = written(pair, convert, "--outtype", "bf16")
    check(got, expected(pair.draft, pair.target, "bf16"), pair, head="zero", rank=32)
    kind, shape, data = got.tensors["conf_proj.weight"]
    assert (kind, shape) == ("BF16", (160, 1))
    assert data[:256] == read_tensors(pair.shard)["confidence_head.proj.weight"].data
    assert data[256:] == bytes(64)
    assert got.kv["dflash.has_confidence_head"] == ("BOOL", True)


@pytest.mark.parametrize("outtype", OUTTYPES)
def test_padding_is_zero_in_every_type(outtype: str, tmp_path: Path, convert: Convert) -> None:
    pair = variant(tmp_path, confidence="hidden_only", markov_rank=32)
    got = written(pair, convert, "--outtype", outtype)
    check(got, expected(pair.draft, pair.target, outtype), pair, rank=32)
    kind, shape, data = got.tensors["conf_proj.weight"]
    size = {"F32": 128, "F16": 64, "BF16": 64, "Q8_0": 34}[kind]
    assert shape == (160, 1)
    assert data[-size:] == bytes(size)
    assert data[-2 * size : -size] != bytes(size)


def test_zero_head_is_zero_in_every_type(tmp_path: Path, convert: Convert) -> None:
    pair = variant(tmp_path, markov_rank=0)
    for outtype in OUTTYPES:
        tensors = written(pair, convert, "--outtype", outtype).tensors
        for name in ("markov_w1.weight", "markov_w2.weight"):
            kind, shape, data = tensors[name]
            assert (kind, shape) == (outtype.upper() if outtype != "auto" else "BF16", (32, 512))
            assert not any(data)


def test_a_draft_that_does_not_sample_from_the_anchor_gets_no_zero_head(tmp_path: Path, convert: Convert) -> None:
    pair = variant(tmp_path, markov_rank=0)
    got = written(pair, convert, "--no-sample-from-anchor")
    assert not any(name.startswith("markov") for name in got.tensors)
    assert got.kv["dflash.sample_from_anchor"] == got.kv["dspark.sample_from_anchor"] == ("BOOL", False)
    assert got.kv["dspark.markov_head_type"] == ("STRING", "none")
    assert got.kv["dspark.markov_rank"] == ("UINT32", 0)


def test_tied_target_may_leave_its_head_out(tmp_path: Path, convert: Convert) -> None:
    pair = variant(tmp_path, tie=True)
    want = expected(pair.draft, pair.target, "bf16", shared="include")
    check(written(pair, convert, "--shared-tensors", "include"), want, pair)
    pair.tensors(lambda tensors: tensors.pop("lm_head.weight"))
    alone = replace(want, tensors={n: t for n, t in want.tensors.items() if n != "output.weight"})
    for gguf in (False, True):
        check(written(pair, convert, "--shared-tensors", "include", gguf=gguf), alone, pair, gguf)


def sharded(pair: Pair) -> None:
    pair.split(shards=5)


def sharded_without_index(pair: Pair) -> None:
    pair.split(index=False, shards=3)


def prefixed(pair: Pair) -> None:
    write_tensors(pair.shard, {f"model.{name}": tensor for name, tensor in read_tensors(pair.shard).items()})


def prefixed_and_sharded(pair: Pair) -> None:
    prefixed(pair)
    pair.split(shards=2)


def renamed(pair: Pair) -> None:
    pair.shard.rename(pair.draft / "dflash_draft_model.safetensors")


def reordered(pair: Pair) -> None:
    write_tensors(pair.shard, dict(reversed(read_tensors(pair.shard).items())))


def linked(pair: Pair) -> None:
    """As the hub's cache has it."""
    blob = pair.root / "blob"
    pair.shard.rename(blob)
    pair.shard.symlink_to(blob)


LAYOUTS = [sharded, sharded_without_index, prefixed, prefixed_and_sharded, renamed, reordered, linked]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("shared", ["omit", "include"])
def test_the_files_layout_changes_no_byte(layout: Any, shared: str, pair: Pair, convert: Convert) -> None:
    args = ("--shared-tensors", shared, "--outtype", "q8_0")
    first = written(pair, convert, *args)
    plain = Path("out.gguf").read_bytes()
    layout(pair)
    assert written(pair, convert, *args) == first
    assert Path("out.gguf").read_bytes() == plain


def test_runs_repeat_byte_by_byte(pair: Pair, convert: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for zone in ("UTC", "Pacific/Kiritimati"):
        monkeypatch.setenv("TZ", zone)
        ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", f"{zone[:3]}.gguf", "--json")
        digests.add(ended.document["output"]["sha256"])
    assert len(digests) == 1
    assert Path("UTC.gguf").read_bytes() == Path("Pac.gguf").read_bytes()


def test_json_says_what_the_file_holds(pair: Pair, convert: Convert) -> None:
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", "--json")
    file = read(Path("out.gguf"))
    shown = {t["name"]: (t["type"], tuple(t["shape"]), t["bytes"]) for t in ended.document["plan"]["tensors"]}
    assert shown == {name: (kind, shape, len(data)) for name, (kind, shape, data) in file.tensors.items()}
    metadata = ended.document["plan"]["metadata"]
    assert metadata.keys() == file.kv.keys()
    for key, (kind, value) in file.kv.items():
        assert metadata[key] == (pytest.approx(value, rel=1e-6) if kind == "FLOAT32" else value), key
