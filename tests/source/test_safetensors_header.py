"""Headers byte by byte, and the safetensors library as the judge of what must be refused."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from dspark_convert.errors import InputError
from dspark_convert.source.safetensors_header import DTYPE_BITS, MAX_HEADER_BYTES, read_bytes, read_header
from tests.checkpoints import header_bytes


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file_of(path: Path, header: Any, data: bytes) -> Path:
    path.write_bytes(header_bytes(header if isinstance(header, str | bytes) else json.dumps(header)) + data)
    return path


def rules(path: Path) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in read_header(path)[1]]


def library_reads(path: Path) -> bool:
    try:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                file.get_tensor(name)
    except (SafetensorError, OverflowError):
        return False
    return True


def test_a_file_by_hand(tmp_path: Path) -> None:
    text = (
        b'{"b":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    )
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"abcd" + struct.pack("<2e", 1.0, -2.0))
    refs, findings = read_header(path)
    assert findings == []
    places = {ref.name: (ref.path, ref.dtype, ref.shape, ref.offset - 8 - len(text), ref.nbytes) for ref in refs}
    assert places == {"a": (path, "U8", (4,), 0, 4), "b": (path, "F16", (2, 1), 4, 4)}
    by_name = {ref.name: ref for ref in refs}
    assert read_bytes(by_name["a"]) == b"abcd"
    assert read_bytes(by_name["a"], 1, 2) == b"bc"
    assert read_bytes(by_name["b"], 2) == struct.pack("<e", -2.0)


def test_every_dtype_of_the_library(tmp_path: Path) -> None:
    kinds = {
        "BOOL": torch.bool,
        "U8": torch.uint8,
        "I8": torch.int8,
        "I16": torch.int16,
        "U16": torch.uint16,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "I32": torch.int32,
        "U32": torch.uint32,
        "F32": torch.float32,
        "F64": torch.float64,
        "I64": torch.int64,
        "U64": torch.uint64,
        "C64": torch.complex64,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "F8_E8M0": torch.float8_e8m0fnu,
        "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
        "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    }
    assert set(DTYPE_BITS) - set(kinds) == {"F4", "F6_E2M3", "F6_E3M2"}  # torch has no dtype of these sizes
    tensors = {name: torch.zeros(3, 2).to(kind) for name, kind in kinds.items()}
    tensors |= {"empty": torch.zeros(0, 4), "scalar": torch.tensor(1.5)}
    save_file(tensors, tmp_path / "all.safetensors", metadata={"format": "pt"})
    refs, findings = read_header(tmp_path / "all.safetensors")
    assert findings == []
    assert {r.name: (tuple(tensors[r.name].shape), r.nbytes) for r in refs} == {
        r.name: (r.shape, r.nbytes) for r in refs
    }
    assert {r.name: r.dtype for r in refs} == {**{name: name for name in kinds}, "empty": "F32", "scalar": "F32"}
    for ref in refs:
        expected = tensors[ref.name].reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        assert read_bytes(ref) == expected


GOOD = {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 8, 16)}

#: header, bytes behind it, rule, where
BAD: dict[str, tuple[Any, bytes, str, str]] = {
    "overlap": ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, bytes(12), "shard-header", "b"),
    "same place": ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, bytes(8), "shard-header", "b"),
    "gap": ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, bytes(20), "shard-header", "b"),
    "gap at the start": ({"a": entry("F32", [2], 4, 12)}, bytes(12), "shard-header", "a"),
    "trailing": (GOOD, bytes(17), "shard-header", "x.safetensors"),
    "cut": (GOOD, bytes(15), "shard-truncated", "x.safetensors"),
    "no data": (GOOD, b"", "shard-truncated", "x.safetensors"),
    "trailing without tensors": ({}, b"x", "shard-header", "x.safetensors"),
    "backwards": ({"a": entry("F32", [2], 8, 0)}, bytes(8), "shard-header", "a"),
    "negative": ({"a": entry("F32", [2], -8, 0)}, bytes(8), "shard-header", "a"),
    "too few bytes": ({"a": entry("F32", [3], 0, 8)}, bytes(8), "shard-header", "a"),
    "too many bytes": ({"a": entry("F32", [1], 0, 8)}, bytes(8), "shard-header", "a"),
    "size of 2^64": ({"a": entry("F32", [2**32, 2**32], 0, 0)}, b"", "shard-header", "a"),
    "size of 2^64 and some": ({"a": entry("U8", [2**32, 2**32, 1, 1], 0, 0)}, b"", "shard-header", "a"),
    "unknown dtype": ({"a": entry("F12", [2], 0, 8)}, bytes(8), "shard-header", "a"),
    "dtype in small letters": ({"a": entry("f32", [2], 0, 8)}, bytes(8), "shard-header", "a"),
    "negative size": ({"a": entry("F32", [-1, -2], 0, 8)}, bytes(8), "shard-header", "a"),
    "fraction": ({"a": {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 10]}}, bytes(10), "shard-header", "a"),
    "size as text": ({"a": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}}, bytes(8), "shard-header", "a"),
    "true as size": ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, bytes(4), "shard-header", "a"),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8), "shard-header", "a"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [2]}}, bytes(8), "shard-header", "a"),
    "one offset": ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, bytes(8), "shard-header", "a"),
    "entry no object": ({"a": [1]}, b"", "shard-header", "a"),
    "half a byte": ({"a": entry("F4", [3], 0, 2)}, bytes(2), "shard-header", "a"),
    "list": ([1], b"", "shard-unreadable", "x.safetensors"),
    "no JSON": ("{", b"", "shard-unreadable", "x.safetensors"),
    "empty header": ("", b"", "shard-unreadable", "x.safetensors"),
    "no UTF-8": (b'{"\xff": 1}', b"", "shard-unreadable", "x.safetensors"),
    "deep": ('{"a":' + "[" * 5000 + "]" * 5000 + "}", b"", "shard-unreadable", "x.safetensors"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_headers_are_refused_by_us_and_by_the_library(case: str, tmp_path: Path) -> None:
    header, data, rule, where = BAD[case]
    path = file_of(tmp_path / "x.safetensors", header, data)
    assert rules(path) == [(rule, where)]
    assert not library_reads(path)


def test_sizes_that_disagree_are_both_told(tmp_path: Path) -> None:
    header = {"a": entry("F32", [2], 0, 8), "b": entry("F16", [3, 2], 8, 16)}
    _, findings = read_header(file_of(tmp_path / "x.safetensors", header, bytes(16)))
    assert "'b' is bad: F16 [3, 2] needs 12 bytes, data_offsets give 8" in findings[0].message


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    """The library lets the later one win, silently."""
    one, two = json.dumps(entry("F32", [2], 0, 8)), json.dumps(entry("I32", [2], 0, 8))
    path = file_of(tmp_path / "x.safetensors", f'{{"a":{one},"a":{two}}}', bytes(8))
    assert rules(path) == [("shard-unreadable", "x.safetensors")]
    inner = '{"a":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}}'
    assert rules(file_of(path, inner, bytes(8))) == [("shard-unreadable", "x.safetensors")]


@pytest.mark.parametrize("size", range(8 + 40))
def test_every_cut_of_the_header(size: int, tmp_path: Path) -> None:
    whole = file_of(tmp_path / "x.safetensors", GOOD, bytes(16))
    data = whole.read_bytes()
    whole.write_bytes(data[:size])
    refs, findings = read_header(whole)
    assert refs == []
    assert [f.rule for f in findings] == ["shard-truncated" if size else "shard-unreadable"]
    assert not library_reads(whole)


def test_length_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for length in (MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1):
        path.write_bytes(struct.pack("<Q", length) + b"{}")
        assert rules(path) == [("shard-unreadable", "x.safetensors")]
    path.write_bytes(struct.pack("<Q", MAX_HEADER_BYTES) + b"{}")
    assert rules(path) == [("shard-truncated", "x.safetensors")]


def test_padding_and_metadata_are_no_fault(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}, **GOOD}) + " " * 13
    path = file_of(tmp_path / "x.safetensors", header, bytes(16))
    assert rules(path) == []
    assert library_reads(path)
    assert [ref.name for ref in read_header(path)[0]] == ["a", "b"]


def test_order_of_the_entries_does_not_matter(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.safetensors", dict(reversed(GOOD.items())), bytes(16))
    assert rules(path) == []
    assert library_reads(path)


def test_a_file_that_shrinks_after_its_header_was_read(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.safetensors", GOOD, bytes(16))
    refs, _ = read_header(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert read_bytes(refs[0]) == bytes(8)
    with pytest.raises(InputError, match=r"x\.safetensors changed while it was read: tensor 'b' is cut"):
        read_bytes(refs[1])
    path.unlink()
    with pytest.raises(InputError, match=r"x\.safetensors cannot be read: No such file"):
        read_bytes(refs[0])


def test_a_device_is_not_read(tmp_path: Path) -> None:
    # a pipe would be waited for; this one ends at once where it is read after all
    (tmp_path / "x.safetensors").symlink_to(os.devnull)
    refs, findings = read_header(tmp_path / "x.safetensors")
    assert refs == []
    assert [(f.rule, f.message) for f in findings] == [("shard-unreadable", "x.safetensors is no regular file.")]
