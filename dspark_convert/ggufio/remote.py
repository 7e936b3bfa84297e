"""GGUFs on the hub, opened by their headers; of a split set those of all parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dspark_convert.errors import InputError
from dspark_convert.ggufio.cursor import Incomplete
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.split import COUNT_KEY, set_of
from dspark_convert.source.hub_gguf import fetch_head
from dspark_convert.source.hub_repo import Repository


@dataclass(frozen=True)
class RemoteGGUF:
    """``path``: where its first bytes lie; ``sizes``: of it and of further parts, as on the hub; ``read``: bytes
    that lie here of all of them."""

    name: str
    path: Path
    sizes: dict[str, int]
    read: int


def fetch_gguf(repo: Repository, name: str, note: Callable[[str], None]) -> RemoteGGUF:
    """Fetch what is needed to open ``name`` with ``open_gguf(path, sizes)``.

    Raises InputError for what is no GGUF and for sets that lack a part, else as ``fetch_head``.
    """
    path = _fetch(repo, name, note)
    paths = {path.name: path}
    with GGUFFile(path, repo.files.get(name)) as first:
        count = first.metadata.get(COUNT_KEY)
    if isinstance(count, int) and count > 1:
        for other in (set_of(path, count) or [])[1:]:
            there = str(PurePosixPath(name).with_name(other.name))
            if there not in repo.files:
                raise InputError(f"{name} of {repo.id} is one of {count} parts, and {there} is not there.")
            paths[other.name] = _fetch(repo, there, note)
    sizes = {each: repo.files.get(str(PurePosixPath(name).with_name(each)), 0) for each in paths}
    return RemoteGGUF(name, path, sizes, sum(each.stat().st_size for each in paths.values()))


def _fetch(repo: Repository, name: str, note: Callable[[str], None]) -> Path:
    try:
        return fetch_head(repo, name, _holds_header, note)
    except InputError as fault:
        # Where it lies here says nothing to anyone.
        message = re.sub(
            rf"\S*/ggufs/[0-9a-f]+/{re.escape(PurePosixPath(name).name)}", lambda _: repo.id.file(name), str(fault)
        )
        raise InputError(message, findings=fault.findings) from None


def _holds_header(path: Path, size: int) -> bool:
    try:
        GGUFFile(path, size).close()
    except Incomplete:
        return False
    return True
