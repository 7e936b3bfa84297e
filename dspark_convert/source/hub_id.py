"""How a model on the hub is named on the command line: ``org/name[/folder][@revision]`` or
``org/name:file.gguf[@revision]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.source.provenance import is_repo

#: of git's rules for names of branches, tags and refs/pr/N what a hub accepts
_REVISION = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")

#: what no repository or folder ends in
_FILES = {".gguf", ".safetensors", ".json"}

#: of the names of folders what needs no care in a shell, a cache or a message; none is hidden or leads upwards
_FOLDER = re.compile(r"\w[\w.+=-]*(/\w[\w.+=-]*)*")
#: of one name file systems allow 255; the cache's directories come before it all
MAX_FOLDER_BYTES, MAX_NAME_BYTES = 1000, 255

#: an address of the hub, as far as the repository and a folder in it are named; a Path has one slash of two
_ADDRESS = re.compile(
    r"(?:(?:https?:/+)?(?:huggingface|hf)\.co|hf:)/+([^/?#]+/[^/?#]+)(?:/tree/([^/?#]+)(?:/([^?#]+))?)?"
)


@dataclass(frozen=True)
class HubId:
    """``revision``: a branch, tag or commit; None is the hub's default branch. ``folder``: where the checkpoint lies,
    without slashes around it; empty for the repository's root."""

    repo: str
    revision: str | None = None
    folder: str = ""

    def __str__(self) -> str:
        return f"{self.place}@{self.revision}" if self.revision else self.place

    @property
    def place(self) -> str:
        return f"{self.repo}/{self.folder}" if self.folder else self.repo

    def file(self, name: str) -> str:
        """How the file ``name`` of the folder is spelled, without the revision."""
        return f"{self.repo}:{self.folder}/{name}" if self.folder else f"{self.repo}:{name}"


def is_folder(text: str) -> bool:
    """Whether a hub id can name the folder ``text``: names with single slashes between them, of bounded length."""
    parts = text.split("/")
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    if sum(sizes) + len(sizes) > MAX_FOLDER_BYTES or max(sizes) > MAX_NAME_BYTES:
        return False
    return _FOLDER.fullmatch(text) is not None and not any(Path(part).suffix in _FILES for part in parts)


def parse_hub_file(path: Path) -> tuple[HubId, str | None] | None:
    """The hub id that ``path`` spells and the file in it that it names, if any; None as in ``parse_hub_id``."""
    repo, colon, rest = str(path).partition(":")
    file, at, revision = rest.partition("@")
    if not colon:
        hub_id = parse_hub_id(path)
        return None if hub_id is None else (hub_id, None)
    if not is_repo(repo) or not file.endswith(".gguf") or (at and not _REVISION.fullmatch(revision)):
        return None
    return None if path.exists() else (HubId(repo, revision or None), file)


def parse_hub_id(path: Path) -> HubId | None:
    """The hub id that ``path`` spells, unless something lies there on disk; None if it is none.

    Of a directory org/name here it is the folder that is missing.
    """
    place, at, revision = str(path).partition("@")
    owner, _, rest = place.partition("/")
    name, slash, folder = rest.partition("/")
    repo = f"{owner}/{name}"
    if not is_repo(repo) or Path(place).suffix in _FILES or _ADDRESS.match(place):
        return None
    if (slash and not is_folder(folder)) or (at and not _REVISION.fullmatch(revision)):
        return None
    return None if path.exists() or (folder and Path(repo).exists()) else HubId(repo, revision or None, folder)


def meant(path: Path) -> str:
    """What to do if ``path``, which does not exist, was meant for something on the hub; empty if it was not."""
    if address := _ADDRESS.match(str(path)):
        repo, revision, folder = address.groups()
        hub_id = HubId(repo, revision if revision != "main" else None, (folder or "").rstrip("/"))
        return f"; a model on the hub is named without its address: {hub_id}"
    named = parse_hub_file(path)
    if named is None or named[1] is None:
        return ""
    return f" here; a GGUF on the hub has to be downloaded first: hf download {named[0].repo} {named[1]}"
