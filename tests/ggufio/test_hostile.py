"""Damaged and hostile files: one clear error or finding each, and no waste of memory or time."""

from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path

import pytest

from dspark_convert.errors import DsparkError, InputError, UsageError
from dspark_convert.ggufio.reader import open_gguf
from tests.gguf_bytes import ARRAY, STRING, Builder

B = Builder()
TENSOR = B.tensor("t", (8,), 0, 0)


def nested(depth: int) -> bytes:
    data = B.pack("IQ", 4, 0)
    for _ in range(depth - 1):
        data = B.pack("IQ", ARRAY, 1) + data
    return B.string("k") + B.pack("I", ARRAY) + data


#: name -> bytes, and what the message has to say
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    "html": (b"\n<!DOCTYPE html><html></html>", "HTML page"),
    "json": (b'{"error":"Repository not found"}', "is JSON"),
    "safetensors": ((64).to_bytes(8, "little") + b'{"a":{}}', "safetensors"),
    "zip": (b"PK\x03\x04rest", "ZIP archive"),
    "zeros": (bytes(100), "zeros only"),
    "noise": (b"\x12\x34\x56\x78 and so on", "12 34 56 78"),
    "magic only": (b"GGUF", "cut short"),
    "version 1": (b"GGUF" + B.pack("III", 1, 0, 0), "version 1"),
    "version 99": (b"GGUF" + B.pack("IQQ", 99, 0, 0), "version 99"),
    "no counts": (b"GGUF" + B.pack("I", 3), "at byte 8"),
    "2^60 tensors": (B.file([], tensor_count=2**60), "tensors are announced"),
    "2^62 entries": (B.file([], kv_count=2**62), "metadata entries are announced"),
    "u8 array of 2^62": (
        B.file([B.string("k") + B.pack("I", ARRAY) + B.array(0, [], count=2**62)]),
        "k claims 4,611,686,018,427,387,904 items",
    ),
    "string array of 2^40": (
        B.file([B.string("k") + B.pack("I", ARRAY) + B.array(STRING, [], count=2**40)]),
        "remaining bytes cannot hold",
    ),
    "string of 2^63": (B.file([B.string("k") + B.pack("I", STRING) + B.string(b"x", length=2**63)]), "cut short"),
    "item of 2^63": (
        B.file([B.string("k") + B.pack("I", ARRAY) + B.pack("IQ", STRING, 2) + B.pack("QQ", 2**63, 2**63)]),
        "item 1 of 2",
    ),
    "last item too long": (
        B.file([B.string("k") + B.pack("I", ARRAY) + B.pack("IQ", STRING, 1) + B.pack("Q", 9)]),
        "its last item",
    ),
    "key of 2^63": (B.file([B.string(b"k", length=2**63), bytes(32)]), "cut short"),
    "key empty": (B.file([B.kv("", 4, 1)]), "0 bytes"),
    "key of 70,000": (B.file([B.kv("k" * 70_000, 4, 1)]), "70,000 bytes"),
    "type 99": (B.file([B.string("k") + B.pack("I", 99) + bytes(8)]), "value type 99"),
    "item type 99": (B.file([B.string("k") + B.pack("IIQ", ARRAY, 99, 1) + bytes(8)]), "value type 99"),
    "nested 10,000 deep": (B.file([nested(10_000)]), "nests arrays"),
    "alignment 0": (B.file([B.kv("general.alignment", 4, 0)]), "power of two"),
    "alignment 3": (B.file([B.kv("general.alignment", 4, 3)]), "power of two"),
    "alignment 2^31": (B.file([B.kv("general.alignment", 4, 2**31)]), "power of two"),
    "alignment text": (B.file([B.kv("general.alignment", STRING, "32")]), "power of two"),
    "5 dimensions": (B.file([], [B.tensor("t", (1, 1, 1, 1, 1), 0, 0)], bytes(32)), "5 dimensions"),
    "2^32-1 dimensions": (
        B.file([], [B.string("t") + B.pack("I", 2**32 - 1) + bytes(40)], bytes(32)),
        "4,294,967,295 dimensions",
    ),
    "tensor infos cut": (B.file([], [TENSOR[:-4]], tensor_count=1)[: 24 + len(TENSOR) - 4], "cut short"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable(tmp_path: Path, case: str) -> None:
    data, message = UNREADABLE[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(InputError) as caught:
        open_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message in str(caught.value)
    assert "bad.gguf" in str(caught.value)
    assert str(caught.value).endswith(".")
    assert peak < 1_000_000


def two(first: tuple[str, int], second: tuple[str, int], data: int = 64) -> bytes:
    infos = [B.tensor(name, (8,), 0, offset) for name, offset in (first, second)]
    return B.file([], infos, bytes(data))


def shaped(shape: tuple[int, ...], kind: int = 0, data: int = 32) -> bytes:
    return B.file([], [B.tensor("t", shape, kind, 0)], bytes(data))


#: name -> bytes, and the rules that have to fire
READABLE: dict[str, tuple[bytes, list[str]]] = {
    "good": (two(("a", 0), ("b", 32)), []),
    "duplicate key": (B.file([B.kv("k", 4, 1), B.kv("k", 4, 2)]), ["duplicate-key"]),
    "key not utf-8": (B.file([B.kv(b"k\xff", 4, 1)]), ["bad-utf8"]),
    "text not utf-8": (B.file([B.kv("k", STRING, b"\xc3(")]), ["bad-utf8"]),
    "nested": (B.file([nested(2)]), ["nested-array"]),
    "duplicate tensor": (two(("a", 0), ("a", 32)), ["tensor-duplicate"]),
    "same offset": (two(("a", 0), ("b", 0)), ["tensor-overlap", "trailing-bytes"]),
    "swapped": (two(("a", 32), ("b", 0)), ["tensor-gap", "tensor-overlap"]),
    "gap": (two(("a", 0), ("b", 64), 96), ["tensor-gap"]),
    "misaligned": (two(("a", 0), ("b", 33), 96), ["tensor-misaligned"]),
    "zero dimension": (shaped((0, 128)), ["zero-dimension"]),
    "product 2^66": (shaped((2**32, 2**32, 2, 2)), ["tensor-too-large", "truncated"]),
    "product 2^64 + 2^33": (shaped((2**33, 2**31 + 1)), ["tensor-too-large", "truncated"]),
    "dimension 2^64 - 1": (shaped((2**64 - 1,)), ["tensor-too-large", "truncated"]),
    "offset 2^64 - 32": (
        B.file([], [B.tensor("t", (8,), 0, 2**64 - 32)], bytes(32)),
        ["tensor-gap", "truncated"],
    ),
    "cut by a byte": (two(("a", 0), ("b", 32))[:-1], ["truncated"]),
    "no data at all": (two(("a", 0), ("b", 32), 0), ["truncated"]),
    "type of a fork": (shaped((8,), 555), ["unknown-tensor-type"]),
    "removed type 4": (shaped((8,), 4), ["unknown-tensor-type"]),
    "row no block": (shaped((33,), 8), ["broken-block"]),
    "name of 64": (B.file([], [B.tensor("n" * 64, (8,), 0, 0)], bytes(32)), ["tensor-name"]),
    "name empty": (B.file([], [B.tensor("", (8,), 0, 0)], bytes(32)), ["tensor-name"]),
    "name not utf-8": (B.file([], [B.tensor(b"\xff", (8,), 0, 0)], bytes(32)), ["bad-utf8"]),
    "no dimension": (shaped(()), []),
    "trailing": (two(("a", 0), ("b", 32), 200), ["trailing-bytes"]),
}


@pytest.mark.parametrize("case", READABLE)
def test_readable_with_findings(tmp_path: Path, case: str) -> None:
    data, rules = READABLE[case]
    path = tmp_path / "odd.gguf"
    path.write_bytes(data)
    with open_gguf(path) as file:
        assert [finding.rule for finding in file.findings] == rules
        if any(finding.severity == "error" for finding in file.findings):
            with pytest.raises(InputError, match="is damaged"):
                file.require_sound()
        else:
            file.require_sound()


def test_first_of_two_keys_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(READABLE["duplicate key"][0])
    with open_gguf(path) as file:
        assert dict(file.metadata) == {"k": 1}


def test_no_file_directory_pipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_gguf(tmp_path / "none.gguf")
    with pytest.raises(InputError, match=r"is a directory; give a \.gguf file"):
        open_gguf(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="convert it with dspark-convert first"):
        open_gguf(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="device or pipe"):
        open_gguf(tmp_path / "pipe")
    with pytest.raises(InputError, match="NUL"):
        open_gguf("a\0b")


def damaged(data: bytes, rng: random.Random) -> bytes:
    broken = bytearray(data[: rng.randrange(1, len(data))] if rng.random() < 0.3 else data)
    for _ in range(rng.randrange(1, 4)):
        broken[rng.randrange(len(broken))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(broken)


def test_random_damage_never_escapes(tmp_path: Path) -> None:
    good = B.file(
        [B.kv("k", ARRAY, ["a", "b"], STRING), B.kv("n", 4, 1), B.kv("s", STRING, "x"), nested(2)],
        [B.tensor("a", (8, 1), 0, 0), B.tensor("b", (32,), 8, 32)],
        bytes(96),
    )
    path = tmp_path / "fuzz.gguf"
    rng = random.Random(20261129)
    opened = 0
    for _ in range(1500):
        path.write_bytes(damaged(good, rng))
        try:
            with open_gguf(path) as file:
                opened += 1
                for key in file.metadata:
                    file.kv(key)
                    value = file.metadata[key]
                    if not isinstance(value, str) and hasattr(value, "tolist"):
                        value.tolist()
                if not any(finding.severity == "error" for finding in file.findings):
                    for tensor in file.tensors:
                        assert len(file.data(tensor)) == tensor.nbytes
        except DsparkError:
            pass
    assert 300 < opened < 1400
