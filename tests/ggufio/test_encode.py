"""The header, byte by byte, and what it refuses. (gguf-py reads whole files in test_writer.py.)"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import pytest

from dspark_convert.errors import InputError
from dspark_convert.ggufio.encode import MANY_STRINGS, alignment_of, encode_header
from dspark_convert.ggufio.types import KV, GGMLType, ValueType, array, boolean, f32, padded, string, tensor_nbytes, u32


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    type: GGMLType = GGMLType.F32
    nbytes: int = 0


def tensor(name: str, shape: tuple[int, ...], ggml_type: GGMLType = GGMLType.F32) -> Tensor:
    return Tensor(name, shape, ggml_type, tensor_nbytes(ggml_type, shape))


def test_a_minimal_file_by_hand() -> None:
    header, offsets = encode_header(
        [string("general.architecture", "dflash"), u32("b", 7)],
        [tensor("fc", (3, 2)), tensor("é", (32,), GGMLType.Q8_0), tensor("z", (1,))],
    )
    expected = bytes.fromhex(
        "47475546 03000000 0300000000000000 0200000000000000"
        # general.architecture, a string; b, a uint32
        "1400000000000000 67656e6572616c2e617263686974656374757265 08000000 0600000000000000 64666c617368"
        "0100000000000000 62 04000000 07000000"
        # name, number of dimensions, dimensions, type, offset
        "0200000000000000 6663 02000000 0300000000000000 0200000000000000 00000000 0000000000000000"
        "0200000000000000 c3a9 01000000 2000000000000000 08000000 2000000000000000"
        "0100000000000000 7a 01000000 0100000000000000 00000000 6000000000000000"
    )
    assert len(expected) == 196
    assert header == expected + bytes(224 - 196)
    assert offsets == [0, 32, 96]


def values_of(*metadata: KV) -> bytes:
    """The encoded value of the last entry, cut out of the header."""
    *_, last = metadata
    header, _ = encode_header(metadata, [])
    start = header.rindex(last.key.encode()) + len(last.key.encode()) + 4
    return header[start:]


@pytest.mark.parametrize(
    ("kv", "expected"),
    [
        (KV("k", ValueType.UINT8, 255), b"\xff"),
        (KV("k", ValueType.INT8, -128), b"\x80"),
        (KV("k", ValueType.UINT16, 0x1234), b"\x34\x12"),
        (KV("k", ValueType.INT16, -2), b"\xfe\xff"),
        (u32("k", 0xFFFFFFFF), b"\xff\xff\xff\xff"),
        (KV("k", ValueType.INT32, -1), b"\xff\xff\xff\xff"),
        (f32("k", 1.5), b"\x00\x00\xc0\x3f"),
        (f32("k", 10_000_000), b"\x80\x96\x18\x4b"),  # rope bases come as integers
        (boolean("k", True), b"\x01"),
        (KV("k", ValueType.UINT64, 1 << 63), bytes(7) + b"\x80"),
        (KV("k", ValueType.INT64, -(1 << 63)), bytes(7) + b"\x80"),
        (KV("k", ValueType.FLOAT64, -2.0), bytes(7) + b"\xc0"),
        (string("k", "ß\n\0"), b"\x04\0\0\0\0\0\0\0\xc3\x9f\n\0"),
        (array("k", ValueType.INT32, [1, -1]), bytes.fromhex("05000000 0200000000000000 01000000 ffffffff")),
        (array("k", ValueType.BOOL, [True, False]), bytes.fromhex("07000000 0200000000000000 01 00")),
        (
            array("k", ValueType.STRING, ["", "ab"]),
            bytes.fromhex("08000000 0200000000000000 0000000000000000 0200000000000000 6162"),
        ),
        (array("k", ValueType.STRING, []), bytes.fromhex("08000000 0000000000000000")),
        (KV("k", ValueType.ARRAY, None, ValueType.STRING, b"as it stands \xff"), b"as it stands \xff"),
    ],
)
def test_values(kv: KV, expected: bytes) -> None:
    assert values_of(kv).rstrip(b"\0") == expected.rstrip(b"\0")
    header, _ = encode_header([kv, u32("end", 1)], [])
    assert expected + b"\x03\0\0\0\0\0\0\0end" in header


def test_a_vocabulary() -> None:
    texts = [f"tökén{i}" * (i % 40) for i in range(10_000)]
    header, _ = encode_header([array("t", ValueType.STRING, texts)], [])
    expected = b"".join(len(data).to_bytes(8, "little") + data for data in map(str.encode, texts))
    # behind 24 bytes of counts, the key, and the type and length of the array
    assert header[24 + 9 + 16 :].rstrip(b"\0") == expected.rstrip(b"\0")
    texts[9_000] = "\ud800"
    with pytest.raises(InputError, match=r"\(item 9000\) is no valid Unicode"):
        encode_header([array("t", ValueType.STRING, texts)], [])


def test_an_enum_is_a_number() -> None:
    class FileType(IntEnum):
        Q8_0 = 7

    assert values_of(u32("k", FileType.Q8_0))[:4] == b"\x07\0\0\0"


@pytest.mark.parametrize(
    ("kv", "message"),
    [
        (u32("dflash.block_size", -1), "'dflash.block_size' needs an integer from 0 to 4294967295, found -1 (int)"),
        (u32("k", 1 << 32), "found 4294967296 (int)"),
        (u32("k", "507"), "found '507' (str)"),  # type: ignore[arg-type]
        (u32("k", 7.0), "found 7.0 (float)"),  # type: ignore[arg-type]
        (u32("k", True), "found True (bool)"),
        (u32("k", None), "found None (NoneType)"),  # type: ignore[arg-type]
        (KV("k", ValueType.INT8, 128), "an integer from -128 to 127, found 128"),
        (KV("k", ValueType.UINT64, 1 << 64), "an integer from 0 to 18446744073709551615"),
        (f32("k", "1"), "a number that fits FLOAT32, found '1' (str)"),  # type: ignore[arg-type]
        (f32("k", 1e39), "a number that fits FLOAT32, found 1e+39"),
        (f32("k", 10**400), "a number that fits FLOAT32, found 1000000000"),
        (f32("k", True), "found True (bool)"),
        (boolean("k", 1), "true or false, found 1 (int)"),  # type: ignore[arg-type]
        (string("k", 5), "a string, found 5 (int)"),  # type: ignore[arg-type]
        (string("k", "a\ud800"), "no valid Unicode"),
        (array("k", ValueType.INT32, [0, 1 << 31]), "'k' (item 1) needs an integer from -2147483648 to 2147483647"),
        (array("k", ValueType.INT32, [0, 1, True]), "'k' (item 2) needs an integer"),
        (array("k", ValueType.STRING, ["a", None]), "'k' (item 1) needs a string, found None"),
        (array("k", ValueType.STRING, ["a", "\udfff"]), "'k' (item 1) is no valid Unicode"),
        (array("k", ValueType.ARRAY, [[1]]), "an array needs a list and the type of its items"),
        (KV("k", ValueType.ARRAY, [1]), "an array needs a list and the type of its items"),
        (array("k", ValueType.INT32, (1,)), "an array needs a list"),  # type: ignore[arg-type]
        (u32("", 1), "has 0 bytes, where 1 to 65535 are allowed"),
        (u32("k" * 65536, 1), "has 65536 bytes"),
        (u32("k\ud800", 1), "no valid Unicode"),
    ],
)
def test_what_it_refuses(kv: KV, message: str) -> None:
    with pytest.raises(InputError) as caught:
        encode_header([kv], [])
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


def test_doubles() -> None:
    with pytest.raises(InputError, match="metadata key 'a' is given twice"):
        encode_header([u32("a", 1), u32("b", 1), u32("a", 2)], [])
    with pytest.raises(InputError, match="tensor 'a' is given twice"):
        encode_header([], [tensor("a", (1,)), tensor("a", (1,))])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (tensor("é" * 32, (1,)), "a name of 64 bytes, where 1 to 63 are allowed"),
        (tensor("", (1,)), "a name of 0 bytes"),
        (Tensor("t", ()), "the shape []"),
        (tensor("t", (1, 1, 1, 1, 1)), "1 to 4 dimensions"),
        (Tensor("t", (4, 0)), "the shape [4, 0]"),
        (Tensor("t", (-4, -2), nbytes=32), "the shape [-4, -2]"),
        (tensor("t", (1 << 32, 1 << 31)), "at least 1 are allowed"),
        (Tensor("t", (33, 2), GGMLType.Q8_0, 68), "a multiple of 32"),
        (Tensor("t", (3, 2), nbytes=23), "and 23 bytes"),
    ],
)
def test_tensors_that_it_refuses(bad: Tensor, message: str) -> None:
    with pytest.raises(InputError) as caught:
        encode_header([], [bad])
    assert message in str(caught.value)


def test_longest_name_and_key() -> None:
    header, _ = encode_header([u32("k" * 65535, 1)], [tensor("n" * 63, (1, 1, 1, 1))])
    assert b"k" * 65535 in header
    assert b"n" * 63 in header


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment(alignment: int) -> None:
    metadata = [u32("general.alignment", alignment)]
    header, offsets = encode_header(metadata, [tensor("a", (1,)), tensor("b", (1,))])
    assert len(header) % alignment == 0
    assert offsets == [0, max(4, alignment)]
    assert alignment_of(metadata) == alignment
    raw = KV("general.alignment", ValueType.UINT32, None, raw=alignment.to_bytes(4, "little"))
    assert encode_header([raw], [tensor("a", (1,)), tensor("b", (1,))]) == (header, offsets)


@pytest.mark.parametrize(
    "kv", [u32("general.alignment", 0), u32("general.alignment", 48), KV("general.alignment", ValueType.UINT64, 32)]
)
def test_an_alignment_that_ggml_refuses(kv: KV) -> None:
    with pytest.raises(InputError, match=r"'general.alignment' needs a power of two of type UINT32"):
        encode_header([kv], [])


@pytest.mark.parametrize("odd", ["", "\0", "a\0b", "x" * 255, "x" * 256, "日" * 70_000, "\U0001f600"])
def test_a_whole_vocabulary_is_encoded_as_its_strings_are(odd: str) -> None:
    texts = [odd, *(f"é{i}" for i in range(MANY_STRINGS)), odd]
    header, _ = encode_header([array("tokens", ValueType.STRING, texts)], [])
    expected = b"".join(len(data := text.encode()).to_bytes(8, "little") + data for text in texts)
    assert header.rstrip(b"\0").endswith(expected.rstrip(b"\0"))
    assert len(header) == padded(24 + 8 + 6 + 4 + 4 + 8 + len(expected), 32)


@pytest.mark.parametrize(("odd", "says"), [(7, "needs a string, found 7"), ("\ud800", "lone surrogate")])
def test_the_odd_one_of_a_whole_vocabulary_is_named(odd: object, says: str) -> None:
    with pytest.raises(InputError, match=rf"'tokens' \(item {MANY_STRINGS}\).*{says}"):
        encode_header([array("tokens", ValueType.STRING, ["a"] * MANY_STRINGS + [odd])], [])
