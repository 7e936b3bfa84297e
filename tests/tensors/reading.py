"""Reads a job unit by unit in one thread."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.jobs import TensorJob
from dspark_convert.source.files import SourceFiles
from dspark_convert.tensors.agreement import require_agreement
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.remarks import Remarks
from dspark_convert.tensors.stream import Reader
from dspark_convert.tensors.units import UNIT_BYTES, units


def read(
    job: TensorJob, unit_bytes: int = UNIT_BYTES, check: NonFinite | None = None, remarks: Remarks | None = None
) -> bytes:
    """The bytes of the tensor."""
    return b"".join(parts(job, unit_bytes, check, remarks))


def parts(
    job: TensorJob, unit_bytes: int = UNIT_BYTES, check: NonFinite | None = None, remarks: Remarks | None = None
) -> Iterator[bytes]:
    require_agreement(job)
    end = 0
    with SourceFiles() as files:
        reader = Reader(files, NonFinite() if check is None else check, 0, remarks or Remarks())
        for unit in units(job, unit_bytes):
            assert unit.offset == end
            part = reader.read(0, job, unit)
            end += part.nbytes
            assert part.nbytes == unit.nbytes
            yield part.tobytes()
