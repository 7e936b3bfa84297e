"""Which tensors go into which file: all into one, or into the parts of a split set as llama.cpp reads it.

Part n of a set of N is ``NAME-0000n-of-0000N.gguf``. The first holds all metadata, the others none but the
keys of the split (written down in llama.cpp's gguf-split and its model loader).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.errors import UsageError
from dspark_convert.findings import Finding, warning
from dspark_convert.ggufio.encode import ALIGNMENT_KEY, alignment_of, encode_header, info_nbytes
from dspark_convert.ggufio.types import KV, ValueType, padded
from dspark_convert.jobs import TensorJob

NUMBER_KEY, COUNT_KEY, TENSORS_KEY = "split.no", "split.count", "split.tensors.count"

#: ``split.count`` is a uint16
MAX_PARTS = 0xFFFF

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_PART_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """One file to write: ``header``, then the tensors of ``jobs``, at ``offsets`` from the file's start."""

    path: Path
    header: bytes
    jobs: tuple[TensorJob, ...]
    offsets: tuple[int, ...]
    nbytes: int


def parse_size(text: str) -> int:
    """Bytes of "500M", "2G" or "4000000000"; units are powers of 1000, as llama.cpp's. Raises UsageError."""
    match = re.fullmatch(r"([1-9][0-9]{0,17})([KMG]?)", text.strip().upper())
    if match is None:
        raise UsageError(f"--split-max-size {text} is no size; give a number with K, M or G behind it, such as 2G.")
    return int(match[1]) * _UNITS[match[2]]


def part_path(path: Path, number: int, count: int) -> Path:
    """Of part ``number`` (from 0) of the set that ``path`` is split into."""
    stem = path.name.removesuffix(".gguf")
    return path.with_name(f"{stem}-{number + 1:05d}-of-{count:05d}.gguf")


def set_of(path: Path, count: int) -> list[Path] | None:
    """All parts of the set whose first one is ``path``; None if that is not how llama.cpp wants it named."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None or (int(match[2]), int(match[3])) != (1, count):
        return None
    return [path.with_name(f"{match[1]}-{number + 1:05d}-of-{count:05d}.gguf") for number in range(count)]


def first_of(path: Path) -> Path | None:
    """The first part of the set that ``path`` is named as a part of."""
    match = _PART_NAME.fullmatch(path.name)
    return path.with_name(f"{match[1]}-00001-of-{match[3]}.gguf") if match else None


def named_set(path: Path) -> list[Path]:
    """``path``, and if it is named as the first part of a set, the others."""
    match = _PART_NAME.fullmatch(path.name)
    return (set_of(path, int(match[3])) if match else None) or [path]


def lay_out(path: Path, metadata: Sequence[KV], jobs: Sequence[TensorJob], max_bytes: int | None = None) -> list[Part]:
    """The file at ``path``, or the parts of at most ``max_bytes`` each if it would be larger than that.

    Tensors stay in order and whole. Raises InputError for what GGUF cannot hold, UsageError if
    ``max_bytes`` is too little for some tensor or for the metadata.
    """
    whole = _part(path, metadata, jobs)
    if max_bytes is None or whole.nbytes <= max_bytes:
        return [whole]
    alignment = alignment_of(metadata)
    groups = list(_groups(metadata, jobs, alignment, max_bytes))
    count = len(groups)
    if count > MAX_PARTS:
        raise UsageError(
            f"--split-max-size {max_bytes} would make {count} files, and llama.cpp takes {MAX_PARTS} at most;"
            " give a larger size."
        )
    return [
        _part(part_path(path, number, count), _metadata_of(metadata, number, count, len(jobs)), group)
        for number, group in enumerate(groups)
    ]


def _metadata_of(metadata: Sequence[KV], number: int, count: int, tensors: int) -> list[KV]:
    """All of it for the first part; for the others how they are laid out, and where they belong."""
    return [
        *(kv for kv in metadata if number == 0 or kv.key == ALIGNMENT_KEY),
        KV(NUMBER_KEY, ValueType.UINT16, number),
        KV(COUNT_KEY, ValueType.UINT16, count),
        KV(TENSORS_KEY, ValueType.INT32, tensors),
    ]


def _part(path: Path, metadata: Sequence[KV], jobs: Sequence[TensorJob]) -> Part:
    header, offsets = encode_header(metadata, jobs)
    nbytes = len(header)
    if jobs:
        nbytes += offsets[-1] + padded(jobs[-1].nbytes, alignment_of(metadata))
    return Part(path, header, tuple(jobs), tuple(len(header) + offset for offset in offsets), nbytes)


def _groups(metadata: Sequence[KV], jobs: Sequence[TensorJob], alignment: int, most: int) -> Iterator[list[TensorJob]]:
    """``jobs`` in runs that fit ``most`` bytes; only the first may be empty, beside long metadata."""
    head, rest = (len(encode_header(_metadata_of(metadata, number, 0, 0), [])[0]) for number in (0, 1))
    # A header is padded once, but not by how much before it is known what is in it.
    needs = [info_nbytes(job) + alignment + padded(job.nbytes, alignment) for job in jobs]
    least, what = head, "the metadata"
    for job, need in zip(jobs, needs, strict=True):
        if rest + need > least:
            least, what = rest + need, job.name
    if least > most:
        raise UsageError(
            f"--split-max-size {most} is too small: {what} alone takes {least} bytes; give at least"
            f" {math.ceil(least / 10**6)}M."
        )
    group: list[TensorJob] = []
    size = head
    for job, need in zip(jobs, needs, strict=True):
        if size + need > most:
            yield group
            group, size = [], rest
        group.append(job)
        size += need
    yield group


def other_sets(path: Path, parts: Sequence[Part]) -> list[Finding]:
    """Warn of sets of another number of parts that lie under the name of a split output."""
    stem = path.name.removesuffix(".gguf")
    others: dict[int, int] = {}
    with suppress(OSError):  # a directory may allow writing, but no listing
        for name in [each.name for each in path.parent.iterdir()] if len(parts) > 1 else []:
            match = _PART_NAME.fullmatch(name)
            if match and match[1] == stem and int(match[3]) != len(parts):
                others[int(match[3])] = others.get(int(match[3]), 0) + 1
    return [
        warning(
            "other-split",
            str(path),
            f"{found} files {stem}-*-of-{count:05d}.gguf of an earlier run lie beside it, and are no part of it.",
            "remove them if nothing uses them",
        )
        for count, found in sorted(others.items())
    ]
