"""Hostile files, built in code: each with what has to be said of it and how the command has to end."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tests.gguf_bytes import ARRAY, STRING
from tests.hostile.raw import Change, append, counts, draft, encoded, nested, put, record

U8, U32, I32, F32, BOOL = 0, 4, 5, 6, 7


@dataclass(frozen=True)
class Case:
    """``says`` is in what ``dspark-inspect --strict`` prints, and ``code`` what it ends with.

    ``rule`` is the finding's where the file can be read at all; ``row`` that of failures.md.
    """

    build: Callable[[], bytes]
    says: str
    code: int
    rule: str = ""
    row: str = ""


def refused(says: str, *changes: Change, row: str = "") -> Case:
    return Case(lambda: draft(*changes), says, 3, row=row)


def found(rule: str, says: str, *changes: Change, code: int = 1, row: str = "") -> Case:
    return Case(lambda: draft(*changes), says, code, rule, row)


def raw_bytes(data: bytes, says: str) -> Case:
    return Case(lambda: data, says, 3)


def cut(says: str, of: Callable[[], bytes], rule: str = "", *, code: int = 3, row: str = "") -> Case:
    return Case(of, says, code, rule, row)


def pack(letters: str, *values: int) -> bytes:
    return struct.pack(f"<{letters}", *values)


def twice(raw: object) -> None:
    raw.entries["again"] = raw.entries["dflash.block_size"]  # type: ignore[attr-defined]


def again(raw: object) -> None:
    raw.infos["again"] = raw.infos["fc.weight"]  # type: ignore[attr-defined]


NOT_GGUF = {
    "empty": raw_bytes(b"", "is empty"),
    "LFS pointer": raw_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    "HTML": raw_bytes(b"\n<!DOCTYPE html><html></html>", "HTML page"),
    "JSON": raw_bytes(b'{"error":"Repository not found"}', "is JSON"),
    "safetensors": raw_bytes((64).to_bytes(8, "little") + b'{"a":{}}', "safetensors"),
    "ZIP": raw_bytes(b"PK\x03\x04rest", "ZIP archive"),
    "zeros": raw_bytes(bytes(100), "zeros only"),
    "noise": raw_bytes(b"\x12\x34\x56\x78 and so on", "12 34 56 78"),
    "escape as magic": raw_bytes(b"\x1b[2J\r\n and so on", "1b 5b 32 4a"),
    "magic only": raw_bytes(b"GGUF", "cut short"),
    "version 0": raw_bytes(b"GGUF" + pack("IQQ", 0, 0, 0), "version 0 cannot be read"),
    "version 1": raw_bytes(b"GGUF" + pack("III", 1, 0, 0), "version 1 cannot be read (2 and 3 can): it is too old"),
    "version 1, big-endian": raw_bytes(b"GGUF" + struct.pack(">III", 1, 0, 0), "version 1 cannot be read"),
    "version 99": raw_bytes(b"GGUF" + pack("IQQ", 99, 0, 0), "version 99 cannot be read"),
    "no counts": raw_bytes(b"GGUF" + pack("I", 3), "at byte 8, the tensor count needs 8 bytes"),
    "nothing in it": raw_bytes(b"GGUF" + pack("IQQ", 3, 0, 0), "is no model: it has no general.architecture"),
}

COUNTS = {
    "2^60 tensors": refused("1,152,921,504,606,846,976 tensors are announced", counts(tensors=2**60), row="G33"),
    "2^62 entries": refused("at byte 24, 4,611,686,018,427,387,904 metadata entries", counts(entries=2**62), row="G29"),
    "one entry too few": refused("at byte ", lambda raw: counts(entries=len(raw.entries) - 1)(raw)),
    "one entry too many": refused("at byte ", lambda raw: counts(entries=len(raw.entries) + 1)(raw)),
    "U8 array of 2^62": refused(
        "k claims 4,611,686,018,427,387,904 items of type UINT8", encoded("k", ARRAY, pack("IQ", U8, 2**62)), row="G29"
    ),
    "string array of 2^40": refused(
        "claims 1,099,511,627,776 items of type STRING", encoded("k", ARRAY, pack("IQ", STRING, 2**40)), row="G29"
    ),
    "F32 array of 2^63": refused("remaining bytes cannot hold", encoded("k", ARRAY, pack("IQ", F32, 2**63)), row="G29"),
    "string of 2^63": refused(
        "the value of k needs 9,223,372,036,854,775,808 bytes", encoded("k", STRING, pack("Q", 2**63)), row="G35"
    ),
    "item of 2^63": refused(
        "k is cut short or damaged: item 1 of 2",
        encoded("k", ARRAY, pack("IQ", STRING, 2) + pack("QQ", 2**63, 2**63)),
        row="G35",
    ),
    "item of 2^64 - 8": refused(
        "k is cut short or damaged: item 1 of 2",
        encoded("k", ARRAY, pack("IQ", STRING, 2) + pack("QQ", 2**64 - 8, 0)),
        row="G35",
    ),
    "key of 2^63": refused(
        "needs 9,223,372,036,854,775,808 bytes", lambda raw: raw.entries.update(k=pack("Q", 2**63)), row="G35"
    ),
    "empty key": refused("is empty", put("", U32, 1), row="G35"),
    "key of 70,000": refused("has 70,000 bytes; more than 65,535 are not read", put("k" * 70_000, U32, 1), row="G35"),
    "tensor name of 2^63": refused(
        "needs 9,223,372,036,854,775,808 bytes", lambda raw: raw.infos.update(t=pack("Q", 2**63) + bytes(32)), row="G35"
    ),
    "tensor name of 70,000": refused("has 70,000 bytes; more than 65,535", append("n" * 70_000, (8,)), row="G35"),
}

METADATA = {
    "value type 99": refused("k has value type 99, which GGUF does not define", encoded("k", 99, bytes(8)), row="G35"),
    "item type 99": refused("the items of k has value type 99", encoded("k", ARRAY, pack("IQ", 99, 1)), row="G35"),
    "value type 2^32 - 1": refused("k has value type 4294967295", encoded("k", 2**32 - 1, b""), row="G35"),
    "arrays 10,000 deep": refused("nests arrays more than 4 deep", encoded("k", ARRAY, nested(10_000)), row="G35"),
    "arrays in arrays": found("nested-array", "an array of arrays at byte", encoded("k", ARRAY, nested(2)), row="G35"),
    "key twice": found("duplicate-key", "occurs again at byte", twice, row="G35"),
    "key not UTF-8": found("bad-utf8", "is not UTF-8", put(b"k\xff", U32, 1), row="G35"),
    "text not UTF-8": found("bad-utf8", "is not UTF-8", put("k", STRING, b"\xc3("), row="G35"),
    "NUL in a key": found(
        "embedded-nul", "holds a NUL; llama.cpp reads the 17 bytes before it", put("dflash.block_size\0x", U32, 1)
    ),
    "NUL in a text": found(
        "embedded-nul", "holds a NUL; llama.cpp reads the 3 bytes before it", put("general.author", STRING, "abc\0d")
    ),
    "bool of 2": found("odd-bool", "is 2; a bool is 0 or 1", encoded("k", BOOL, b"\2")),
    "array with a bool of 200": found(
        "odd-bool", "is 200; a bool is 0 or 1", encoded("k", ARRAY, pack("IQ", BOOL, 3) + b"\0\1\xc8")
    ),
    "alignment 0": refused("general.alignment is 0; it has to be", put("general.alignment", U32, 0)),
    "alignment 3": refused("general.alignment is 3; it has to be", put("general.alignment", U32, 3)),
    "alignment 2^31": refused("a UINT32 power of two up to 1,048,576", put("general.alignment", U32, 2**31)),
    "alignment as text": refused("general.alignment is of type STRING", put("general.alignment", STRING, "32" * 9000)),
    "alignment as list": refused("general.alignment is of type ARRAY", put("general.alignment", ARRAY, [32], U32)),
    "alignment 64 for data at 32": found("tensor-misaligned", "is no multiple of", put("general.alignment", U32, 64)),
    "RoPE base NaN": found("rope-base", "", put("dflash.rope.freq_base", F32, float("nan"))),
    "epsilon NaN": found("norm-epsilon", "", put("dflash.attention.layer_norm_rms_epsilon", F32, float("nan"))),
    "2^32 - 1 layers": found("block-count", "", put("dflash.block_count", U32, 2**32 - 1)),
    "2^31 heads": found("head-counts", "", put("dflash.attention.head_count", U32, 2**31)),
    "5,000 taps": found("list-too-long", "5,000 items", put("dflash.target_layers", ARRAY, [1] * 5000, I32)),
}

TENSORS = {
    "5 dimensions": refused("has 5 dimensions; ggml has at most 4", append("t", (1, 1, 1, 1, 1))),
    "2^32 - 1 dimensions": refused(
        "has 4,294,967,295 dimensions",
        lambda raw: raw.infos.update(t=raw.build.string("t") + pack("I", 2**32 - 1) + bytes(40)),
    ),
    "no dimension": found("tensor-unexpected", "t [tensor-unexpected]", append("t", ())),
    "zero dimension": found("zero-dimension", "[0, 128] at byte", record("fc.weight", shape=(0, 128)), row="G31"),
    "zero in the middle": found(
        "zero-dimension", "[64, 0, 2] at byte", record("fc.weight", shape=(64, 0, 2)), row="G31"
    ),
    "product 2^65": found(
        "tensor-too-large", "overflows 64 bits", record("fc.weight", shape=(2**32, 2**32, 2, 1)), row="G32"
    ),
    "product 2^64 + 2^33": found(
        "tensor-too-large", "overflows 64 bits", record("fc.weight", shape=(2**33, 2**31 + 1)), row="G32"
    ),
    "dimension 2^64 - 1": found(
        "tensor-too-large", "overflows 64 bits", record("fc.weight", shape=(2**64 - 1,)), row="G32"
    ),
    "2^62 elements": found("truncated", "the file needs", record("fc.weight", shape=(2**31, 2**31)), row="G32"),
    "offset 2^64 - 32": found("truncated", "the file needs", append("t", (8,), offset=2**64 - 32), row="G33"),
    "same offset": found("tensor-overlap", "overlaps", append("t", (8,), offset=0), row="G39"),
    "offset 1 too far": found("tensor-misaligned", "no multiple", record("conf_proj.bias", shift=1), row="G39"),
    "offset 32 too far": found("tensor-gap", "32 unused bytes", record("conf_proj.bias", shift=32), row="G39"),
    "name twice": found("tensor-duplicate", "two tensors of this name, the other one at byte", again, row="G39"),
    "type of a fork": found("unknown-tensor-type", "ggml type 555 at byte", record("fc.weight", kind=555)),
    "type 2^31": found("unknown-tensor-type", "ggml type 2147483648", record("fc.weight", kind=2**31)),
    **{
        f"removed type {number}": found(
            "removed-tensor-type", f"ggml type {number} ({name}) at byte", record("fc.weight", kind=number)
        )
        for number, name in {
            4: "Q4_2",
            5: "Q4_3",
            31: "Q4_0_4_4",
            32: "Q4_0_4_8",
            33: "Q4_0_8_8",
            36: "IQ4_NL_4_4",
            37: "IQ4_NL_4_8",
            38: "IQ4_NL_8_8",
        }.items()
    },
    "rows that fill no block": found(
        "broken-block", "do not fill Q8_0 blocks", record("fc.weight", shape=(33,), kind=8)
    ),
    "name of 64": found("tensor-name", "has 64 bytes", append("n" * 64, (8,)), row="G35"),
    "name empty": found("tensor-name", "has 0 bytes", append("", (8,)), row="G35"),
    "NUL in a name": found("embedded-nul", "reads the 1 bytes before it", append("a\0b", (8,))),
    "name not UTF-8": found("bad-utf8", "is not UTF-8", append(b"\xff", (8,)), row="G35"),
    "bytes behind the last": Case(
        lambda: draft() + bytes(200), "200 bytes follow the last tensor", 0, "trailing-bytes"
    ),
    "no tensor": Case(lambda: draft(lambda raw: raw.infos.clear()), "", 1, "tensor-missing"),
    "cut by a byte": cut("bytes and has", lambda: draft()[:-1], "truncated", code=1, row="G36"),
    "cut within the records": cut("cut short or damaged", lambda: draft()[:3000], row="G36"),
    "cut within the metadata": cut("cut short or damaged", lambda: draft()[:300], row="G36"),
}

CORPUS: dict[str, Case] = NOT_GGUF | COUNTS | METADATA | TENSORS
