"""The files of a checkpoint, opened once each, from which any number of threads read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.source.safetensors_header import TensorRef


class SourceFiles:
    """Bytes of tensors, by position. Nothing may read any more when it is closed."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> SourceFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def read(self, ref: TensorRef, view: memoryview, position: int) -> None:
        """Fill ``view`` with the bytes of ``ref`` from its byte ``position`` on.

        Raises InputError if the file is gone or shorter than its header says, EnvironmentFault if
        it cannot be read.
        """
        try:
            descriptor = self._open(ref.path)
            done = 0
            while done < len(view):  # one read may bring less
                got = os.preadv(descriptor, [view[done:]], ref.offset + position + done)
                if not got:
                    raise InputError(
                        f"{ref.path}: the file ends inside tensor {ref.name}, which needs the bytes up to "
                        f"{ref.offset + ref.nbytes}: it is truncated, or changed while it was read."
                    )
                done += got
        except FileNotFoundError:
            raise InputError(f"{ref.path}: the file of tensor {ref.name} has vanished.") from None
        except OSError as fault:
            raise EnvironmentFault(f"{ref.path}: cannot read tensor {ref.name}: {fault.strerror}.") from fault

    def _open(self, path: Path) -> int:
        with self._lock:
            descriptor = self._descriptors.get(path)
            if descriptor is None:
                descriptor = self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return descriptor
