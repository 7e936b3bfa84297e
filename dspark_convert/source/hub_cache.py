"""Where fetched pieces of hub repositories lie, and how they get there whole or not at all.

    <HF_HOME>/dspark-convert/models--org--name/
        lock                        held by the run that fetches
        refs.json                   revision -> commit, as last resolved
        parts/<commit>/             what was read to know what to fetch, and shards on the way:
            files.json                  the repository's files and sizes
            <index>                     as the repository has it
            heads/<shard>               a shard's first bytes: its whole header
            <shard>.part, .done         a compact shard so far; how many of its bytes are on the disk
            folders/<its digest>/       the same of a checkpoint in a folder of the repository
        snapshots/<commit>/[folder] a checkpoint directory of what is needed, each file complete

A file under ``snapshots`` or ``heads`` is complete: it was written aside, synced, then renamed.
Links are not followed: they are nothing that this module makes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.source.jsonfile import read_object

#: left free on the disk: a full one breaks other programs too
SPARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Cache:
    """The directories of one repository. ``commit`` is hexadecimal, ``repo`` has the form org/name, ``folder`` is one
    that ``hub_id.is_folder`` allows, or empty."""

    base: Path
    repo: str
    commit: str
    folder: str = ""

    @property
    def repository(self) -> Path:
        return repository(self.base, self.repo)

    @property
    def parts(self) -> Path:
        whole = self.repository / "parts" / self.commit
        if not self.folder:
            return whole
        return whole / "folders" / hashlib.sha256(self.folder.encode()).hexdigest()[:16]

    @property
    def heads(self) -> Path:
        return self.parts / "heads"

    @property
    def snapshot(self) -> Path:
        return self.repository / "snapshots" / self.commit / self.folder

    def prepare(self) -> None:
        """Make the directories. Raises EnvironmentFault if that cannot be, or one of them is a link."""
        try:
            for directory in (self.heads, self.snapshot):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise cache_fault(self.base, fault) from None
        for made in (self.heads, self.snapshot):
            for directory in (made, *made.parents):
                if directory == self.base:
                    break
                if directory.is_symlink():
                    message = f"{directory} is a symbolic link, which no run of this tool made; remove it."
                    raise EnvironmentFault(message)

    @contextlib.contextmanager
    def locked(self, note: Callable[[str], None]) -> Iterator[None]:
        """Keep other runs from fetching for the same repository; waits for the one that does."""
        import fcntl

        self.prepare()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.repository / "lock", flags, 0o666)
        except OSError as fault:
            raise cache_fault(self.base, fault) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                note(f"another run is fetching {self.repo}: waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def check_space(self, count: int) -> None:
        """Raise EnvironmentFault unless ``count`` bytes fit the cache's disk."""
        free = shutil.disk_usage(self.repository).free
        if count + SPARE_BYTES > free:
            raise EnvironmentFault(
                f"{count:,} bytes of {self.repo} do not fit the disk of {self.base}, which has {free:,} free; "
                "make room, or set HF_HOME to another disk."
            )


def cache_base() -> Path:
    """The directory of everything that this tool keeps of hubs; beside huggingface_hub's own."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "dspark-convert"


def repository(base: Path, repo: str) -> Path:
    return base / f"models--{repo.replace('/', '--')}"


def cache_fault(where: Path, fault: OSError) -> EnvironmentFault:
    what = fault.strerror or fault
    return EnvironmentFault(f"the cache {where} cannot be used: {what}; set HF_HOME to a directory that can.")


def save(path: Path, data: bytes) -> None:
    """Make ``path`` a file of ``data``, all of it or not at all; an older one or a link is replaced."""
    aside = path.parent / f".{secrets.token_hex(8)}"
    try:
        try:
            with aside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise cache_fault(path.parent, fault) from None


def sync_directory(path: Path) -> None:
    """So that a file that was renamed there is still there after a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_kept(path: Path, size: int | None = None) -> bool:
    """Whether a regular file (no link) lies there, of ``size`` bytes if that is given."""
    with contextlib.suppress(OSError):
        return not path.is_symlink() and path.is_file() and size in (None, path.stat().st_size)
    return False


def load_json(path: Path) -> dict[str, Any]:
    """The object in one of the cache's own files; empty if there is none or it is damaged."""
    with contextlib.suppress(InputError):
        return read_object(path) if is_kept(path) else {}
    return {}


def save_json(path: Path, value: dict[str, Any]) -> None:
    save(path, json.dumps(value, indent=1).encode())
