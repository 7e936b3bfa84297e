"""GGUF files on the hub: which there are, and their first megabytes, where all that is not a tensor stands.

Of a file whose header is asked for there lies in the cache, under ``parts/<commit>/ggufs/<folder>/``, a file of its
name that holds as many of its first bytes as were needed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from dspark_convert.errors import InputError, UsageError
from dspark_convert.source.hub_cache import cache_fault, is_kept, save
from dspark_convert.source.hub_files import whole_in_hub_cache
from dspark_convert.source.hub_http import read_range
from dspark_convert.source.hub_repo import Repository
from dspark_convert.words import listed

#: asked for first: the header of a model without a vocabulary, or a good part of one with
FIRST_BYTES = 1 << 20
#: no published header has more than some 20 MB; what is longer is damaged, or made to keep us busy
MAX_HEAD_BYTES = 64 << 20
#: names of files that are told
TOLD_FILES = 8

#: parts behind the first of a split set, which nobody names
_PART = re.compile(r".*-(\d{5})-of-\d{5}\.gguf")
_DRAFT = re.compile(r"dspark|dflash|draft|spec", re.IGNORECASE)


def gguf_files(repo: Repository) -> list[str]:
    """The names of the GGUFs, of a split set its first part's; those that look like drafts come first."""
    names = sorted(name for name in repo.files if name.endswith(".gguf") and _is_first(name))
    return sorted(names, key=lambda name: _DRAFT.search(name.rsplit("/", 1)[-1]) is None)


def _is_first(name: str) -> bool:
    part = _PART.fullmatch(name)
    return part is None or part[1] == "00001"


def choose_gguf(repo: Repository, file: str | None) -> str:
    """``file``, or the only GGUF of the repository. Raises UsageError, with their names, if that is not one."""
    names = gguf_files(repo)
    have = listed(names, TOLD_FILES) or "none"
    if file is None and len(names) == 1:
        return names[0]
    if file is None:
        example = repo.id.file(names[0]) if names else "another repository"
        raise UsageError(f"{repo.id} has {len(names)} GGUF files ({have}); name one of them, as in {example}.")
    if file not in repo.files and whole_in_hub_cache(repo, file) is None:
        raise UsageError(f"{repo.id} has no file {file}; its GGUF files are {have}.")
    return file


def fetch_head(
    repo: Repository, name: str, holds_header: Callable[[Path, int], bool], note: Callable[[str], None]
) -> Path:
    """A file of the first bytes of ``name``, as many as ``holds_header`` (of path and full size) needs.

    The whole file, where huggingface_hub's cache has it and it is no part of a set. Raises as ``holds_header`` and
    ``read_range`` do.
    """
    if not _PART.fullmatch(name) and (whole := whole_in_hub_cache(repo, name)) is not None:
        return whole
    size = repo.files[name]
    folder, _, plain = name.rpartition("/")
    if not plain.isprintable() or len(plain.encode()) > 200 or "\\" in plain or plain.startswith("."):
        raise InputError(f"{repo.id} has a GGUF with the name {plain[:60]!r}, which is not read.")
    path = repo.cache.parts / "ggufs" / hashlib.sha256(folder.encode()).hexdigest()[:16] / plain
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise cache_fault(path.parent, fault) from None
    data = path.read_bytes() if is_kept(path) else b""
    try:
        while not (data and holds_header(path, size)):
            wanted = min(size, max(FIRST_BYTES, 2 * len(data)))
            if wanted == len(data) or wanted > MAX_HEAD_BYTES:
                raise InputError(f"the header of {name} of {repo.id} does not end within {len(data):,} bytes.")
            data += read_range(repo.remote(name), len(data), wanted, note)
            save(path, data)
    except InputError:
        path.unlink(missing_ok=True)
        raise
    return path
