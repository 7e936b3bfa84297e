"""GGUF value types, ggml tensor types and the records that reader, plan and writer share.

Numbers are those of ggml's ``gguf.h`` and ``ggml.h``; a type number that mainline ggml does not
define has no member here, and readers must name it as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

GGUF_MAGIC = b"GGUF"
GGUF_VERSION = 3
GGUF_DEFAULT_ALIGNMENT = 32

#: the GGUF specification: keys are at most 2^16 - 1 bytes
MAX_KEY_BYTES = 65_535
#: ggml's GGML_MAX_NAME is 64 with the final NUL; llama.cpp refuses longer names
MAX_TENSOR_NAME_BYTES = 63
#: ggml's GGML_MAX_DIMS
MAX_DIMENSIONS = 4


class ValueType(IntEnum):
    """Type of a metadata value, as stored."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


#: struct letter of every fixed-size value type (BOOL is one byte, 0 or 1)
SCALAR_FORMATS: dict[ValueType, str] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


class GGMLType(IntEnum):
    """ggml tensor types (mainline numbers)."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


#: numbers that ggml gave up: files that use them need an older llama.cpp, or their model quantised anew
REMOVED_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

#: elements a block and bytes a block
BLOCKS: dict[GGMLType, tuple[int, int]] = {
    GGMLType.F32: (1, 4),
    GGMLType.F16: (1, 2),
    GGMLType.Q4_0: (32, 18),
    GGMLType.Q4_1: (32, 20),
    GGMLType.Q5_0: (32, 22),
    GGMLType.Q5_1: (32, 24),
    GGMLType.Q8_0: (32, 34),
    GGMLType.Q8_1: (32, 36),
    GGMLType.Q2_K: (256, 84),
    GGMLType.Q3_K: (256, 110),
    GGMLType.Q4_K: (256, 144),
    GGMLType.Q5_K: (256, 176),
    GGMLType.Q6_K: (256, 210),
    GGMLType.Q8_K: (256, 292),
    GGMLType.IQ2_XXS: (256, 66),
    GGMLType.IQ2_XS: (256, 74),
    GGMLType.IQ3_XXS: (256, 98),
    GGMLType.IQ1_S: (256, 50),
    GGMLType.IQ4_NL: (32, 18),
    GGMLType.IQ3_S: (256, 110),
    GGMLType.IQ2_S: (256, 82),
    GGMLType.IQ4_XS: (256, 136),
    GGMLType.I8: (1, 1),
    GGMLType.I16: (1, 2),
    GGMLType.I32: (1, 4),
    GGMLType.I64: (1, 8),
    GGMLType.F64: (1, 8),
    GGMLType.IQ1_M: (256, 56),
    GGMLType.BF16: (1, 2),
    GGMLType.TQ1_0: (256, 54),
    GGMLType.TQ2_0: (256, 66),
    GGMLType.MXFP4: (32, 17),
    GGMLType.NVFP4: (64, 36),
    GGMLType.Q1_0: (128, 18),
    GGMLType.Q2_0: (64, 18),
}


#: ``general.file_type`` (llama_ftype of llama.h) of files whose weights are mostly of a type; where there are
#: several mixtures of one, the plainest
FILE_TYPES: dict[GGMLType, int] = {
    GGMLType.F32: 0,
    GGMLType.F16: 1,
    GGMLType.Q4_0: 2,
    GGMLType.Q4_1: 3,
    GGMLType.Q8_0: 7,
    GGMLType.Q5_0: 8,
    GGMLType.Q5_1: 9,
    GGMLType.Q2_K: 10,
    GGMLType.Q3_K: 11,
    GGMLType.Q4_K: 14,
    GGMLType.Q5_K: 16,
    GGMLType.Q6_K: 18,
    GGMLType.IQ2_XXS: 19,
    GGMLType.IQ2_XS: 20,
    GGMLType.IQ3_XXS: 23,
    GGMLType.IQ1_S: 24,
    GGMLType.IQ4_NL: 25,
    GGMLType.IQ3_S: 26,
    GGMLType.IQ2_S: 28,
    GGMLType.IQ4_XS: 30,
    GGMLType.IQ1_M: 31,
    GGMLType.BF16: 32,
    GGMLType.TQ1_0: 36,
    GGMLType.TQ2_0: 37,
    GGMLType.MXFP4: 38,
    GGMLType.NVFP4: 39,
    GGMLType.Q1_0: 40,
    GGMLType.Q2_0: 41,
}

#: byte offset in a block of its F16 numbers: the scale, and of some types a minimum (ggml-common.h)
F16_AT: dict[GGMLType, tuple[int, ...]] = {
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q8_0: (0,),
    GGMLType.Q2_K: (80, 82),
    GGMLType.Q3_K: (108,),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
    GGMLType.IQ2_XXS: (0,),
    GGMLType.IQ2_XS: (0,),
    GGMLType.IQ3_XXS: (0,),
    GGMLType.IQ1_S: (0,),
    GGMLType.IQ4_NL: (0,),
    GGMLType.IQ3_S: (0,),
    GGMLType.IQ2_S: (0,),
    GGMLType.IQ4_XS: (0,),
}

#: llama.cpp's LLAMA_MAX_LAYERS and LLAMA_MAX_EXPERTS
MAX_LAYERS, MAX_EXPERTS = 512, 1024
#: llama.cpp's number of the square root of softplus among the functions that score experts
SQRT_SOFTPLUS = 4


def type_name(number: int) -> str:
    """How a tensor type is called: "Q8_0", "removed type 4 (Q4_2)", "unknown type 99"."""
    if number in BLOCKS:
        return GGMLType(number).name
    removed = REMOVED_TYPES.get(number)
    return f"removed type {number} ({removed})" if removed else f"unknown type {number}"


def bits_per_number(ggml_type: GGMLType) -> float:
    """What a number takes, the block's scales shared out."""
    elements, size = BLOCKS[ggml_type]
    return 8 * size / elements


def padded(nbytes: int, alignment: int) -> int:
    """``nbytes`` rounded up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


def tensor_nbytes(ggml_type: GGMLType, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of ``shape`` (ggml order, ne0 first).

    Raises ValueError if ne0 is no multiple of the type's block.
    """
    elements, size = BLOCKS[ggml_type]
    if shape[0] % elements:
        raise ValueError(f"{ggml_type.name} needs rows that are a multiple of {elements}, not {shape[0]}")
    return prod(shape) // elements * size


@dataclass(frozen=True)
class KV:
    """One metadata entry. ``item_type`` is set for arrays only; ``value`` is then a list.

    ``raw`` is the encoded value as it stands behind the type number in another little-endian
    GGUF v3 (for an array: item type, count, items): the writer copies it and ignores ``value``.
    """

    key: str
    type: ValueType
    value: Any
    item_type: ValueType | None = None
    raw: bytes | None = None


def u32(key: str, value: int) -> KV:
    return KV(key, ValueType.UINT32, value)


def f32(key: str, value: float) -> KV:
    return KV(key, ValueType.FLOAT32, value)


def boolean(key: str, value: bool) -> KV:
    return KV(key, ValueType.BOOL, value)


def string(key: str, value: str) -> KV:
    return KV(key, ValueType.STRING, value)


def array(key: str, item_type: ValueType, value: list[Any]) -> KV:
    return KV(key, ValueType.ARRAY, value, item_type)
