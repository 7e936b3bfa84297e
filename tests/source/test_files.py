from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.source.files import SourceFiles
from dspark_convert.source.safetensors_header import TensorRef


def ref(path: Path, data: bytes = bytes(range(100)), offset: int = 7) -> TensorRef:
    path.write_bytes(b"\xee" * offset + data)
    return TensorRef("w", path, "U8", (len(data),), offset, len(data))


def test_bytes_by_position_from_many_threads(tmp_path: Path) -> None:
    refs = [ref(tmp_path / name) for name in "abc"]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (iterating a Path keeps one open)
    wrong: list[int] = []
    with SourceFiles() as files:

        def read(first: int) -> None:
            buffer = bytearray(10)
            for position in range(first, 90):
                files.read(refs[position % 3], memoryview(buffer), position)
                if buffer != bytes(range(position, position + 10)):
                    wrong.append(position)

        threads = [threading.Thread(target=read, args=(first,)) for first in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(os.listdir("/proc/self/fd")) == before + 3  # noqa: PTH208
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_is_not_there(tmp_path: Path) -> None:
    gone, cut, directory = ref(tmp_path / "gone"), ref(tmp_path / "cut"), ref(tmp_path / "directory")
    gone.path.unlink()
    os.truncate(cut.path, 50)
    directory.path.unlink()
    directory.path.mkdir()
    with SourceFiles() as files:
        with pytest.raises(InputError, match="gone: the file of tensor w has vanished"):
            files.read(gone, memoryview(bytearray(1)), 0)
        files.read(cut, memoryview(bytearray(43)), 0)
        with pytest.raises(InputError, match="cut: the file ends inside tensor w, which needs the bytes up to 107"):
            files.read(cut, memoryview(bytearray(2)), 42)
        with pytest.raises(EnvironmentFault, match="directory: cannot read tensor w: Is a directory"):
            files.read(directory, memoryview(bytearray(1)), 0)
