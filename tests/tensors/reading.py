"""Reads a job unit by unit in one thread."""

from __future__ import annotations

from dspark_convert.jobs import TensorJob
from dspark_convert.source.files import SourceFiles
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.stream import Reader
from dspark_convert.tensors.units import UNIT_BYTES, require_agreement, units


def read(job: TensorJob, unit_bytes: int = UNIT_BYTES, check: NonFinite | None = None) -> bytes:
    require_agreement(job)
    data = b""
    with SourceFiles() as files:
        reader = Reader(files, NonFinite() if check is None else check, set(), 0)
        for unit in units(job, unit_bytes):
            assert unit.offset == len(data)
            part = reader.read(0, job, unit)
            assert part.nbytes == unit.nbytes
            data += part.tobytes()
    return data
