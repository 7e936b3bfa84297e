"""Where a directory came from: repository, revision and a good name, as far as its files tell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: how a hub's cache calls the directory of a repository
_MODELS = re.compile(r"models--(.+?)--(.+)")

#: front matter stands at the top of a model card; more is not read
MAX_CARD_BYTES = 64 * 2**10


@dataclass(frozen=True)
class Provenance:
    """``repo`` is a hub id ("org/name"), ``revision`` a commit; ``name`` is always set."""

    name: str
    repo: str | None = None
    revision: str | None = None
    base_model: str | None = None


def provenance(root: Path, config: dict[str, Any]) -> Provenance:
    """Read the hub cache's directory names, a download's metadata, the model card's front matter."""
    root = root.resolve()
    repo, revision = _cached(root)
    if repo is None:
        revision = _local_dir_revision(root)
        # A directory named org/name only counts as a hub id when the config agrees on the name.
        declared = config.get("_name_or_path")
        if isinstance(declared, str) and is_repo(declared) and declared.split("/")[1] == root.name:
            repo = declared
    name = repo.split("/")[1] if repo else root.name
    if re.fullmatch(r"[0-9a-f]{40,64}", name):
        declared = config.get("_name_or_path")
        name = Path(declared).name if isinstance(declared, str) and Path(declared).name else "draft"
    return Provenance(name, repo, revision, _card_base_model(root))


def _cached(root: Path) -> tuple[str | None, str | None]:
    """Repository and revision, if ``root`` is a snapshot in a hub's cache, or a folder of one."""
    for place in (root, *root.parents):
        if place.parent.name == "snapshots" and (match := _MODELS.fullmatch(place.parents[1].name)):
            return f"{match[1]}/{match[2]}", place.name
    return None, None


def is_repo(text: str) -> bool:
    """Whether ``text`` has the form of a hub id, "org/name"."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text) is not None


def _local_dir_revision(root: Path) -> str | None:
    """`hf download --local-dir` leaves the commit in the first line of a file in that directory, of which ``root``
    may be a folder."""
    for place in (root, *root.parents):
        path = place / ".cache/huggingface/download" / root.relative_to(place) / "config.json.metadata"
        try:
            with path.open("rb") as file:
                line = file.readline(128).decode("ascii", "replace").strip()
        except OSError:
            continue
        return line if re.fullmatch(r"[0-9a-f]{40}", line) else None
    return None


def _card_base_model(root: Path) -> str | None:
    if not (root / "README.md").is_file():  # a pipe would be waited for
        return None
    try:
        with (root / "README.md").open("rb") as file:
            text = file.read(MAX_CARD_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    parts = re.split(r"^---\s*$", text, maxsplit=2, flags=re.MULTILINE)
    if len(parts) < 3 or parts[0].strip("\ufeff \r\n"):
        return None
    # one name, or a list in either of YAML's two forms
    first = r"^base_model:[ \t]*(?:\[[ \t]*|\r?\n[ \t]*-[ \t]+)?[\"']?([^\s\"',\]]+)"
    match = re.search(first, parts[1], re.MULTILINE)
    return match[1] if match and is_repo(match[1]) else None
