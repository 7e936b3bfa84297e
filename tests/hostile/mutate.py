"""Bend a sample at random: fields by their kind, whole entries and records, single bytes, the end."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.gguf_bytes import LETTERS
from tests.hostile.samples import Field, Sample

COUNTS = (0, 1, 2, 3, 5, 31, 32, 33, 64, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**60, 2**62)
EDGES = (2**63 - 1, 2**63, 2**64 - 32, 2**64 - 8, 2**64 - 1)
DIMENSIONS = (0, 1, 2, 31, 32, 64, 96, 192, 256, 2**16, 2**31, 2**32, 2**33, 2**62)
TYPES = (*range(13), 13, 99, 2**31, 2**32 - 1)
GGML_TYPES = (*range(43), 99, 555, 2**31, 2**32 - 1)
NUMBERS = {
    "B": (0, 1, 255),
    "b": (-128, -1, 0, 127),
    "H": (0, 1, 2, 3, 65_535),
    "h": (-32_768, -1, 0, 1),
    "I": (0, 1, 2, 3, 7, 31, 77, 4096, 10**6, 2**31 - 1, 2**31, 2**32 - 1),
    "i": (-(2**31), -1, 0, 1, 5, 80, 10**6, 2**31 - 1),
    "Q": (0, 1, 2**32, 2**63, 2**64 - 1),
    "q": (-(2**63), -1, 0, 1, 2**63 - 1),
    "f": (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), -float("inf")),
    "d": (0.0, 1.0, -1.0, 1e300, float("nan"), float("inf")),
}
TEXTS = (
    "",
    "\x1b[2J\x1b]0;x\x07",
    "\r\n::set-output name=a::b",
    "::error::x",
    "##[error]x",
    "\u202egnp.exe",
    "a\0b",
    "x; touch y `id` $(id)",
    "../../x",
    "%s%n{0}",
    "[red]x[/red]",
    "dflash",
    "dspark",
    "llama",
    "qwen3",
    "fc.weight",
    "blk.0.attn_q.weight",
    "blk.4294967295.attn_q.weight",
    "blk.99999999999999999999999.x.weight",
    "tokenizer.ggml.tokens",
    "general.alignment",
    "split.count",
    "dflash.hyper_connection.count",
    "dflash.block_count",
)


#: fields behind which all can still be read; in most cases only such are bent
MEANING = ("text", *LETTERS.values())
PLACES = ("dimension", "ggml type", "offset", *MEANING)


def bend(sample: Sample, rng: random.Random) -> tuple[bytes, int]:
    """A damaged header, and the size of the file that it begins."""
    data = bytearray(sample.header)
    gentle = rng.random() < 0.6
    kinds = rng.choice((MEANING, MEANING, PLACES)) if gentle else None
    fields = [field for field in sample.fields if kinds is None or field.kind in kinds]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        field = rng.choice(fields)
        if rng.random() < 0.12 and not gentle:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        else:
            _set(data, field, sample, rng)
    if rng.random() < 0.25:
        rng.choice(REBUILDS[:-1] if gentle else REBUILDS)(data, sample, rng)
    size = len(data) + sample.size - len(sample.header)
    end = rng.random() * (5 if gentle else 1)
    if end < 0.08:
        size = rng.randrange(size + 1)
    elif end < 0.1:
        size -= rng.randrange(1, 64)
    elif end < 0.14:
        size = rng.choice(sample.fields).start + rng.randrange(9)
    elif end < 0.17:
        size += rng.randrange(1, 5000)
    return bytes(data[:size]), max(size, 0)


def _set(data: bytearray, field: Field, sample: Sample, rng: random.Random) -> None:
    """Another value in the place of ``field``, of the kind that belongs there."""
    start, end = field.start, field.start + field.size
    if field.kind == "text":
        text = rng.choice(TEXTS).encode()[: field.size] or rng.randbytes(min(field.size, 3))
        data[start : start + len(text)] = text
        return
    if field.kind == "magic":
        data[start + rng.randrange(4)] ^= 1 << rng.randrange(8)
        return
    letter = {4: "I", 8: "Q"}.get(field.size, field.kind)
    if field.kind in ("count", "length", "offset"):
        (was,) = struct.unpack_from(f"{sample.order}Q", data, start)
        near = (was - 1, was + 1, was + 32, was * 2, len(data) - end, len(data) - end + 1, sample.size - end)
        value = rng.choice((rng.choice(COUNTS), rng.choice(EDGES), rng.choice(near), rng.choice(near)))
        data[start:end] = struct.pack(f"{sample.order}Q", value % 2**64)
        return
    if field.kind in ("version", "type", "ggml type", "rank", "dimension"):
        choices = {
            "version": (0, 1, 2, 3, 4, 3 << 24, 2 << 24, 1 << 24),
            "type": TYPES,
            "ggml type": GGML_TYPES,
            "rank": (*range(6), 2**31, 2**32 - 1),
            "dimension": DIMENSIONS + EDGES,
        }[field.kind]
        data[start:end] = struct.pack(f"{sample.order}{letter}", rng.choice(choices))
    elif field.kind == "?":
        data[start] = rng.choice((0, 1, 2, 128, 255))
    else:
        data[start:end] = struct.pack(f"{sample.order}{field.kind}", rng.choice(NUMBERS[field.kind]))


def _count(data: bytearray, sample: Sample, place: int, change: int, rng: random.Random) -> None:
    """Mostly make a count follow what was added or taken away."""
    if rng.random() < 0.8:
        (was,) = struct.unpack_from(f"{sample.order}Q", data, place)
        data[place : place + 8] = struct.pack(f"{sample.order}Q", (was + change) % 2**64)


def _pieces(sample: Sample, rng: random.Random) -> tuple[tuple[tuple[int, int], ...], int]:
    """The entries or the records, and where their count is."""
    if sample.records and (not sample.entries or rng.random() < 0.5):
        return sample.records, 8
    return sample.entries, 16


def _remove(data: bytearray, sample: Sample, rng: random.Random) -> None:
    pieces, place = _pieces(sample, rng)
    start, end = rng.choice(pieces)
    del data[start:end]
    _count(data, sample, place, -1, rng)


def _repeat(data: bytearray, sample: Sample, rng: random.Random) -> None:
    pieces, place = _pieces(sample, rng)
    start, end = rng.choice(pieces)
    times = rng.choice((1, 1, 2, 40))
    data[end:end] = data[start:end] * times
    _count(data, sample, place, times, rng)


def _swap(data: bytearray, sample: Sample, rng: random.Random) -> None:
    pieces, _ = _pieces(sample, rng)
    (a, b), (c, d) = sorted(rng.sample(pieces, 2))
    data[a:d] = data[c:d] + data[b:c] + data[a:b]


def _retype(data: bytearray, sample: Sample, rng: random.Random) -> None:
    """Another whole value behind a key."""
    start, end = rng.choice(sample.entries)
    (length,) = struct.unpack_from(f"{sample.order}Q", data, start)
    at = start + 8 + length
    if not start < at <= end:
        return  # the length has been bent already
    kind = rng.choice((*LETTERS, 8, 9, 9))
    data[at:end] = struct.pack(f"{sample.order}I", kind) + _value(kind, sample.order, rng)


def _value(kind: int, order: str, rng: random.Random, depth: int = 0) -> bytes:
    if kind == 8:
        text = rng.choice(TEXTS).encode()
        return struct.pack(f"{order}Q", len(text)) + text
    if kind == 9:
        item = rng.choice((*LETTERS, 8, 9) if depth < 6 else (4,))
        count = rng.choice((0, 1, 2, 3, 5, 80))
        count = min(count, 2) if item == 9 else count
        items = b"".join(_value(item, order, rng, depth + 1) for _ in range(count))
        return struct.pack(f"{order}IQ", item, count) + items
    letter = LETTERS[kind]
    return struct.pack(f"{order}{letter}", rng.choice(NUMBERS.get(letter, (False, True))))


def _slip(data: bytearray, _sample: Sample, rng: random.Random) -> None:
    """Bytes put in or taken out anywhere, so that all behind them slips."""
    at = rng.randrange(24, len(data))
    count = rng.choice((1, 4, 8, 32, 200))
    if rng.random() < 0.5:
        del data[at : at + count]
    else:
        data[at:at] = rng.randbytes(count)


REBUILDS: tuple[Callable[[bytearray, Sample, random.Random], None], ...] = (_remove, _repeat, _swap, _retype, _slip)
