"""The reader on good files, against gguf-py and against bytes made by hand."""

from __future__ import annotations

import math
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import InputError
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.types import GGMLType, ValueType
from dspark_convert.ggufio.values import LazyArray
from tests.gguf_bytes import ARRAY, STRING, Builder

SCALARS = [
    ("u8", 0, 200),
    ("i8", 1, -100),
    ("u16", 2, 60_000),
    ("i16", 3, -30_000),
    ("u32", 4, 4_000_000_000),
    ("i32", 5, -2_000_000_000),
    ("f32", 6, 0.5),
    ("yes", 7, True),
    ("no", 7, False),
    ("s", 8, "ünï漢"),
    ("empty", 8, ""),
    ("u64", 10, 2**64 - 1),
    ("i64", 11, -(2**63)),
    ("f64", 12, math.pi),
]
ARRAYS = [
    ("a.i32", 5, [-1, 2, 3]),
    ("a.bool", 7, [True, False, True]),
    ("a.f64", 12, [0.25, -1.5]),
    ("a.str", 8, ["a", "", "漢字", "x" * 300]),
    ("a.none", 4, []),
]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_values_in_each_version_and_byte_order(tmp_path: Path, order: str, version: int) -> None:
    build = Builder(order, version)
    kvs = [build.kv(key, kind, value) for key, kind, value in SCALARS]
    kvs += [build.kv(key, ARRAY, items, kind) for key, kind, items in ARRAYS]
    data = np.arange(6, dtype=f"{order}f4").tobytes()
    path = tmp_path / "x.gguf"
    path.write_bytes(build.file(kvs, [build.tensor("t", (3, 2), 0, 0)], data))
    with open_gguf(path) as file:
        assert (file.version, file.byte_order) == (version, "little" if order == "<" else "big")
        assert file.findings == ()
        assert list(file.metadata) == [key for key, _, _ in SCALARS + ARRAYS]
        for key, kind, value in SCALARS:
            assert file.metadata[key] == value
            assert file.kv(key).type == kind
        for key, kind, items in ARRAYS:
            array = file.metadata[key]
            assert isinstance(array, LazyArray)
            assert array.item_type == kind
            assert list(array) == array.tolist() == items
            assert [array[i] for i in range(len(array))] == items
            assert array[1:] == items[1:]
            assert array == items
            with pytest.raises(IndexError):
                array[len(items)]
            if items:
                assert array[-1] == items[-1]
        (tensor,) = file.tensors
        assert (tensor.name, tensor.shape, tensor.type, tensor.nbytes) == ("t", (3, 2), GGMLType.F32, 24)
        assert file.tensor("t") == tensor
        assert file.tensor("u") is None
        assert bytes(file.data(tensor)) == data


def test_raw_is_what_follows_the_type_number(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for order in "<>":
        build = Builder(order)
        path.write_bytes(build.file([build.kv("k", ARRAY, ["ab", "c"], STRING), build.kv("n", 4, 7)]))
        with open_gguf(path) as file:
            entry = file.kv("k")
            assert (entry.type, entry.item_type) == (ValueType.ARRAY, ValueType.STRING)
            if order == "<":
                assert entry.raw == struct.pack("<IQQ2sQ1s", 8, 2, 2, b"ab", 1, b"c")
                assert file.kv("n").raw == b"\x07\0\0\0"
            else:
                assert entry.raw is None
                assert entry.value == ["ab", "c"]
            with pytest.raises(KeyError):
                file.kv("absent")


def test_agrees_with_gguf_py(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(str(path), "dflash")
    writer.add_uint32("dflash.block_size", 7)
    writer.add_array("dflash.target_layers", [2, 10, 18])
    writer.add_token_list([f"tok{i}" for i in range(500)])
    writer.add_chat_template("{{ x }}")
    writer.add_custom_alignment(64)
    rng = np.random.default_rng(1)
    writer.add_tensor("a", rng.random((4, 5), dtype=np.float32))
    writer.add_tensor("b", rng.random((2, 3, 4), dtype=np.float32).astype(np.float16))
    q8_0 = gguf.quants.quantize(rng.random((4, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("c", q8_0, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("d", np.arange(3, dtype=np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    oracle = gguf.GGUFReader(str(path))
    with open_gguf(path) as file:
        assert file.findings == ()
        assert file.alignment == 64
        theirs = {key: field for key, field in oracle.fields.items() if not key.startswith("GGUF.")}
        assert list(file.metadata) == list(theirs)
        for key, field in theirs.items():
            assert file.metadata[key] == field.contents(), key
        assert len(file.tensors) == len(oracle.tensors)
        for mine, other in zip(file.tensors, oracle.tensors, strict=True):
            assert mine.name == other.name
            assert list(mine.shape) == list(other.shape)
            assert mine.type_name == other.tensor_type.name
            assert (mine.offset, mine.nbytes) == (other.data_offset, other.n_bytes)
            assert bytes(file.data(mine)) == other.data.tobytes()


def test_views_end_with_the_file_and_close_tolerates_them(tmp_path: Path) -> None:
    build = Builder()
    path = tmp_path / "x.gguf"
    path.write_bytes(build.file([], [build.tensor("t", (8,), 0, 0)], bytes(32)))
    file = open_gguf(path)
    view = file.data(file.tensors[0])
    file.close()
    assert len(view) == 32
    view.release()
    file.close()


def test_unknown_type_is_named_and_unreadable(tmp_path: Path) -> None:
    build = Builder()
    path = tmp_path / "x.gguf"
    path.write_bytes(build.file([], [build.tensor("fc.weight", (8,), 9999, 0)], bytes(32)))
    with open_gguf(path) as file:
        (tensor,) = file.tensors
        assert tensor.type == 9999
        assert not isinstance(tensor.type, GGMLType)
        assert tensor.type_name == "unknown type 9999"
        assert [finding.rule for finding in file.findings] == ["unknown-tensor-type"]
        with pytest.raises(InputError, match=r"fc\.weight"):
            file.data(tensor)


def test_a_150_000_token_header_is_cheap(tmp_path: Path) -> None:
    build = Builder()
    path = tmp_path / "big.gguf"
    tokens = [f"token{i}" for i in range(150_000)]
    kvs = [
        build.kv("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
        build.kv("tokenizer.ggml.token_type", ARRAY, [1] * 150_000, 5),
        build.kv("tokenizer.ggml.merges", ARRAY, [f"{t} {t}" for t in tokens], STRING),
    ]
    path.write_bytes(build.file(kvs))
    began = time.process_time()
    open_gguf(path).close()
    assert time.process_time() - began < 0.4
    tracemalloc.start()
    with open_gguf(path) as file:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert file.metadata["tokenizer.ggml.tokens"][149_999] == "token149999"
    assert peak < 200_000
