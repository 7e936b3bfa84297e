"""How a model on the hub is named on the command line: ``org/name[:file.gguf][@revision]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.source.provenance import is_repo

#: of git's rules for names of branches, tags and refs/pr/N what a hub accepts
_REVISION = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")

#: an address of the hub, as far as the repository's name; a Path has one slash of two
_ADDRESS = re.compile(r"(?:(?:https?:/+)?(?:huggingface|hf)\.co|hf:)/+([^/?#]+/[^/?#]+)")


@dataclass(frozen=True)
class HubId:
    """``revision``: a branch, tag or commit; None is the hub's default branch."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}" if self.revision else self.repo


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
    """The hub id that ``path`` spells, unless something lies there on disk; None if it is none."""
    repo, at, revision = str(path).partition("@")
    if not is_repo(repo) or Path(repo).suffix in {".gguf", ".safetensors", ".json"}:
        return None
    if at and not _REVISION.fullmatch(revision):
        return None
    return None if path.exists() else HubId(repo, revision or None)


def meant(path: Path) -> str:
    """What to do if ``path``, which does not exist, was meant for something on the hub; empty if it was not."""
    if address := _ADDRESS.match(str(path)):
        return f"; a model on the hub is named without its address: {address[1]}"
    named = parse_hub_file(path)
    if named is None or named[1] is None:
        return ""
    return f" here; a GGUF on the hub has to be downloaded first: hf download {named[0].repo} {named[1]}"
