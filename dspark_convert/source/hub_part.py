"""A compact shard on its way: appended to, and trusted after an interruption only as far as it was synced.

After a power cut a file may have its length and not its bytes, so the length alone says nothing:
``<shard>.done`` is written only once the bytes that it counts are on the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dspark_convert.source.hub_cache import Cache, cache_fault, is_kept, load_json, save_json, sync_directory
from dspark_convert.source.hub_shards import Shard

#: bytes written between two syncs: what a power cut can cost
SYNC_BYTES = 64 << 20


def is_complete(cache: Cache, shard: Shard) -> bool:
    """Whether the compact file lies in the snapshot, with just these tensors."""
    path = cache.snapshot / shard.name
    return is_kept(path, shard.compact_size) and _starts_with(path, shard.header)


def done_before(cache: Cache, shard: Shard) -> int:
    """Bytes of tensors that lie safely on the disk, be the shard complete or on its way."""
    if is_complete(cache, shard):
        return shard.nbytes
    path, done = _paths(cache, shard)
    count = load_json(done).get("done")
    if type(count) is not int or not 0 <= count <= shard.nbytes or not is_kept(path):
        return 0
    fits = path.stat().st_size >= len(shard.header) + count
    return count if fits and _starts_with(path, shard.header) else 0


def _paths(cache: Cache, shard: Shard) -> tuple[Path, Path]:
    return cache.parts / f"{shard.name}.part", cache.parts / f"{shard.name}.done"


def forget(cache: Cache, shard: Shard) -> None:
    """Let the next run begin with the shard's header: the file on the hub is another than the one begun with."""
    for path in (*_paths(cache, shard), cache.heads / shard.file):
        path.unlink(missing_ok=True)


def _starts_with(path: Path, header: bytes) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(header)) == header
    return False


class Part:
    """The open file; ``done`` counts the tensors' bytes in it."""

    def __init__(self, cache: Cache, shard: Shard) -> None:
        self._cache, self._shard = cache, shard
        self._path, self._done_path = _paths(cache, shard)
        self.done = done_before(cache, shard)
        if self._path.is_symlink():
            self._path.unlink()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._path, flags, 0o666), "r+b", buffering=0)
        if not self.done:
            self._file.truncate(0)
            self._write(shard.header)
        self._file.truncate(len(shard.header) + self.done)
        self._file.seek(0, os.SEEK_END)
        self._synced = self.done

    def append(self, data: bytes | memoryview) -> None:
        self._write(data)
        self.done += len(data)
        if self.done - self._synced >= SYNC_BYTES:
            self.sync()

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        save_json(self._done_path, {"done": self.done})
        self._synced = self.done

    def finish(self) -> None:
        """Put the file in its place in the snapshot."""
        self.sync()
        self._path.replace(self._cache.snapshot / self._shard.name)
        sync_directory(self._cache.snapshot)
        self._done_path.unlink(missing_ok=True)

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_part(cache: Cache, shard: Shard) -> Iterator[Part]:
    """The part to append to; what was appended is kept, whatever ends the block."""
    try:
        part = Part(cache, shard)
        try:
            yield part
        except BaseException:
            with contextlib.suppress(OSError):
                part.sync()
            raise
        finally:
            part.close()
    except OSError as fault:
        raise cache_fault(cache.base, fault) from None
