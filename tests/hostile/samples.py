"""Small files to bend at random, with the place and meaning of each field in them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.draft_file import DraftFile
from tests.gguf_bytes import ARRAY, LETTERS, STRING
from tests.ggufio.layout_files import FILES
from tests.hostile.raw import Raw
from tests.stage_file import StageFile

#: strings of a list whose lengths are fields; those of a long list are all alike
FIELD_ITEMS = 4


class Field(NamedTuple):
    """``kind``: magic, version, count, length, type, ggml type, dimension, offset, text or a value's struct letter."""

    kind: str
    start: int
    size: int


@dataclass(frozen=True)
class Sample:
    """A file: its header, zeros up to ``size``; ``entries`` and ``records`` (of tensors) are where those are."""

    name: str
    order: str
    header: bytes
    size: int
    fields: tuple[Field, ...]
    entries: tuple[tuple[int, int], ...]
    records: tuple[tuple[int, int], ...]


def sample(name: str, raw: Raw) -> Sample:
    order = raw.build.order
    fields = [Field("magic", 0, 4), Field("version", 4, 4), Field("count", 8, 8), Field("count", 16, 8)]
    entries, records = [], []
    at = 24
    for data in raw.entries.values():
        fields += _entry_fields(data, at, order)
        entries.append((at, at + len(data)))
        at += len(data)
    for data in raw.infos.values():
        fields += _record_fields(data, at, order)
        records.append((at, at + len(data)))
        at += len(data)
    header = raw.header()
    return Sample(name, order, header, len(header) + raw.data_bytes, tuple(fields), tuple(entries), tuple(records))


def _entry_fields(data: bytes, at: int, order: str) -> list[Field]:
    (length,) = struct.unpack_from(f"{order}Q", data)
    (kind,) = struct.unpack_from(f"{order}I", data, 8 + length)
    found = [Field("length", at, 8), Field("text", at + 8, length), Field("type", at + 8 + length, 4)]
    start = 12 + length
    if kind == STRING:
        return [*found, Field("length", at + start, 8), Field("text", at + start + 8, len(data) - start - 8)]
    if kind != ARRAY:
        return [*found, Field(LETTERS[kind], at + start, len(data) - start)]
    item, count = struct.unpack_from(f"{order}IQ", data, start)
    found += [Field("type", at + start, 4), Field("count", at + start + 4, 8)]
    start += 12
    for _ in range(min(count, FIELD_ITEMS)):
        if item == STRING:
            (length,) = struct.unpack_from(f"{order}Q", data, start)
            found += [Field("length", at + start, 8), Field("text", at + start + 8, length)]
            start += 8 + length
        elif item in LETTERS:
            size = struct.calcsize(LETTERS[item])
            found.append(Field(LETTERS[item], at + start, size))
            start += size
    return found


def _record_fields(data: bytes, at: int, order: str) -> list[Field]:
    (length,) = struct.unpack_from(f"{order}Q", data)
    (rank,) = struct.unpack_from(f"{order}I", data, 8 + length)
    start = at + 8 + length
    found = [Field("length", at, 8), Field("text", at + 8, length), Field("rank", start, 4)]
    found += [Field("dimension", start + 4 + 8 * i, 8) for i in range(rank)]
    start += 4 + 8 * rank
    return [*found, Field("ggml type", start, 4), Field("offset", start + 4, 8)]


def _all_kinds(order: str = "<", version: int = 3) -> Raw:
    """An entry and a list of every value type, an array of arrays, tensors of several types."""
    raw = Raw(order=order, version=version)
    raw.entries = {"general.architecture": raw.build.kv("general.architecture", STRING, "dflash")}
    raw.infos, raw.data_bytes = {}, 0
    for kind, letter in LETTERS.items():
        raw.put(f"scalar.{letter}", kind, 1)
        raw.put(f"list.{letter}", ARRAY, [1, 0], kind)
    raw.put("texts", ARRAY, ["a", "", "漢字"], STRING)
    raw.put("lists", ARRAY, [], ARRAY)
    raw.put("general.alignment", 4, 32)
    for number, kind in enumerate((0, 1, 24, 27, 28, 30)):
        raw.append(f"t{number}", (4, 1), kind)
    return raw


def _small(file: DraftFile) -> DraftFile:
    """The same draft in fewer bytes."""
    for name, (kind, shape) in file.tensors.items():
        if kind == "F32" and len(shape) > 1 and not shape[0] % 32:
            file.tensors[name] = ("Q8_0", shape)
    return file


def _part(number: int) -> Raw:
    """One of the two parts of the draft."""
    raw = Raw()
    names = list(raw.infos)
    raw.infos, raw.data_bytes = {}, 0
    if number:
        raw.entries.clear()
    for name in names[:10] if number == 0 else names[10:]:
        raw.append(name, (8,))
    for key, kind, value in (("split.no", 2, number), ("split.count", 2, 2), ("split.tensors.count", 5, len(names))):
        raw.put(key, kind, value)
    return raw


def _layout(name: str) -> Raw:
    """The draft in one of the layouts that are not mainline's."""
    return Raw(_small(FILES[name][1]()))


#: name -> the files of one set, the first of them to be opened; and how often each is bent: large ones take
#: longest, and teach no more
SAMPLES: dict[str, tuple[Callable[[], list[Raw]], float]] = {
    "draft": (lambda: [Raw(_small(DraftFile()))], 4),
    "stages": (lambda: [Raw(_small(StageFile()))], 1),
    "kinds": (lambda: [_all_kinds()], 4),
    "version 2": (lambda: [_all_kinds(version=2)], 1),
    "big-endian": (lambda: [Raw(_small(DraftFile()), order=">")], 2),
    "split": (lambda: [_part(0), _part(1)], 3),
    **{name: (partial(lambda name: [_layout(name)], name), 3 / len(FILES)) for name in FILES},
}
WEIGHTS = [weight for _, weight in SAMPLES.values()]


def make_samples() -> list[tuple[Sample, ...]]:
    return [tuple(sample(name, raw) for raw in make()) for name, (make, _) in SAMPLES.items()]
