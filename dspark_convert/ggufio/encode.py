"""Encodes the header of a GGUF v3 file (little-endian): counts, metadata, tensor infos, padding.

Everything that a reader would refuse, or that would be stored as something else, is an InputError
that names the key or the tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import (
    BLOCKS,
    GGUF_DEFAULT_ALIGNMENT,
    GGUF_MAGIC,
    GGUF_VERSION,
    KV,
    MAX_DIMENSIONS,
    MAX_KEY_BYTES,
    MAX_TENSOR_NAME_BYTES,
    SCALAR_FORMATS,
    GGMLType,
    ValueType,
    padded,
    tensor_nbytes,
)
from dspark_convert.words import shown

ALIGNMENT_KEY = "general.alignment"

#: of an array, for which numpy is worth its import
MANY_STRINGS = 4096

_FLOATS = {ValueType.FLOAT32, ValueType.FLOAT64}


class TensorInfo(Protocol):
    """What the header says of a tensor; ``shape`` in ggml order (ne0 first). TensorJob is one."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> GGMLType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...


def encode_header(metadata: Sequence[KV], tensors: Sequence[TensorInfo]) -> tuple[bytes, list[int]]:
    """The header's bytes, padded so that the data follows, and each tensor's offset in the data.

    Tensors lie in the given order, each at the next multiple of the alignment.
    """
    alignment = alignment_of(metadata)
    seen: set[str] = set()
    parts = [GGUF_MAGIC, struct.pack("<IQQ", GGUF_VERSION, len(tensors), len(metadata))]
    for kv in metadata:
        if kv.key in seen:
            raise InputError(f"metadata key {kv.key!r} is given twice.")
        seen.add(kv.key)
        parts += [_key(kv.key), struct.pack("<I", kv.type), _value(kv) if kv.raw is None else kv.raw]
    seen.clear()
    offsets = []
    end = 0
    for tensor in tensors:
        if tensor.name in seen:
            raise InputError(f"tensor {tensor.name!r} is given twice.")
        seen.add(tensor.name)
        offsets.append(end)
        parts.append(_tensor_info(tensor, end))
        end += padded(tensor.nbytes, alignment)
    nbytes = sum(map(len, parts))
    parts.append(bytes(padded(nbytes, alignment) - nbytes))
    return b"".join(parts), offsets


def alignment_of(metadata: Sequence[KV]) -> int:
    """``general.alignment``, or GGUF's default of 32 bytes."""
    for kv in metadata:
        if kv.key == ALIGNMENT_KEY:
            value = kv.value if kv.raw is None else int.from_bytes(kv.raw, "little")
            if kv.type is not ValueType.UINT32 or not isinstance(value, int) or value.bit_count() != 1:
                raise InputError(
                    f"metadata key {ALIGNMENT_KEY!r} needs a power of two of type UINT32, "
                    f"found {_shown(value)} of type {kv.type.name}."
                )
            return value
    return GGUF_DEFAULT_ALIGNMENT


def info_nbytes(tensor: TensorInfo) -> int:
    """Bytes that the header has about ``tensor``."""
    return len(_tensor_info(tensor, 0))


def _key(key: str) -> bytes:
    data = _strings(key, [key])
    if not 0 < len(data) - 8 <= MAX_KEY_BYTES:
        raise InputError(
            f"metadata key {_shown(key)} has {len(data) - 8} bytes, where 1 to {MAX_KEY_BYTES} are allowed."
        )
    return data


def _value(kv: KV) -> bytes:
    if kv.type is not ValueType.ARRAY:
        return _items(kv.key, kv.type, [kv.value])
    if kv.item_type is None or kv.item_type is ValueType.ARRAY or not isinstance(kv.value, list):
        raise InputError(f"metadata key {kv.key!r}: an array needs a list and the type of its items.")
    return struct.pack("<IQ", kv.item_type, len(kv.value)) + _items(kv.key, kv.item_type, kv.value)


def _items(key: str, value_type: ValueType, values: list[Any]) -> bytes:
    """``values`` one behind the other, as ``value_type``."""
    if value_type is ValueType.STRING:
        return _strings(key, values)
    if value_type is ValueType.BOOL:
        allowed: tuple[type, ...] = (bool,)
    elif value_type in _FLOATS:
        allowed = (int, float)
    else:
        allowed = (int,)
    layout = f"{len(values)}{SCALAR_FORMATS[value_type]}"
    if set(map(type, values)) <= set(allowed):
        try:
            return struct.pack("<" + layout, *values)
        except (struct.error, OverflowError):
            pass
    for index, value in enumerate(values):
        _check_item(key, value_type, value, allowed, index if len(values) > 1 else None)
    return struct.pack("<" + layout, *values)  # subclasses of int and float, which are as good


def _check_item(key: str, value_type: ValueType, value: object, allowed: tuple[type, ...], index: int | None) -> None:
    letter = SCALAR_FORMATS[value_type]
    if isinstance(value, allowed) and not (isinstance(value, bool) and bool not in allowed):
        try:
            struct.pack("<" + letter, value)
            return
        except (struct.error, OverflowError):
            pass
    if value_type is ValueType.BOOL:
        needs = "true or false"
    elif value_type in _FLOATS:
        needs = f"a number that fits {value_type.name}"
    else:
        bits = 8 * struct.calcsize(letter)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if letter.islower() else (0, (1 << bits) - 1)
        needs = f"an integer from {low} to {high}"
    raise InputError(f"metadata key {key!r}{_item(index)} needs {needs}, found {_shown(value)}.")


def _strings(key: str, values: Sequence[Any]) -> bytes:
    """Each string's length in bytes as uint64, then its UTF-8."""
    try:
        if len(values) >= MANY_STRINGS and (encoded := _many_strings(values)):
            return encoded
        length = struct.Struct("<Q").pack
        return b"".join([part for data in map(str.encode, values) for part in (length(len(data)), data)])
    except (TypeError, UnicodeEncodeError):
        for index, value in enumerate(values):
            where = f"metadata key {key!r}{_item(index if len(values) > 1 else None)}"
            if not isinstance(value, str):
                raise InputError(f"{where} needs a string, found {_shown(value)}.") from None
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise InputError(f"{where} is no valid Unicode: {_shown(value)} has a lone surrogate.") from None
        raise


def _many_strings(values: Sequence[str]) -> bytes | None:
    """The same of a whole vocabulary, in a fraction of time and memory; None if a string holds U+0000."""
    import numpy as np

    length = b"\0" * 8
    encoded = bytearray(length.decode().join(["", *values]).encode())
    data = np.frombuffer(encoded, np.uint8)
    zeros = np.flatnonzero(data == 0)
    if len(zeros) != len(length) * len(values):
        return None
    starts = zeros[:: len(length)]
    lengths = np.diff(starts, append=len(data)) - len(length)
    while lengths.any():
        data[starts] = lengths & 0xFF
        lengths >>= 8
        starts = starts + 1
    return bytes(encoded)


def _tensor_info(tensor: TensorInfo, offset: int) -> bytes:
    name = tensor.name.encode(errors="surrogatepass")
    where = f"tensor {_shown(tensor.name)}"
    if not 0 < len(name) <= MAX_TENSOR_NAME_BYTES:
        raise InputError(f"{where} has a name of {len(name)} bytes, where 1 to {MAX_TENSOR_NAME_BYTES} are allowed.")
    shape = tensor.shape
    if not 0 < len(shape) <= MAX_DIMENSIONS or min(shape) < 1 or prod(shape) >= 1 << 63:
        raise InputError(
            f"{where} has the shape {list(shape)}: 1 to {MAX_DIMENSIONS} dimensions of at least 1 are allowed."
        )
    block = BLOCKS[tensor.type][0]
    if shape[0] % block or tensor.nbytes != tensor_nbytes(tensor.type, shape):
        raise InputError(
            f"{where} of type {tensor.type.name} needs rows that are a multiple of {block} and the bytes "
            f"that they take, found the shape {list(shape)} and {tensor.nbytes} bytes."
        )
    dims = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, tensor.type, offset)
    return struct.pack("<Q", len(name)) + name + dims


def _item(index: int | None) -> str:
    return "" if index is None else f" (item {index})"


def _shown(value: object) -> str:
    return f"{shown(value)} ({type(value).__name__})"
