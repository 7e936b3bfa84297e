"""The files of a repository that are read before, or instead of, any tensor: each once, then from the cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding
from dspark_convert.source.checkpoint import MAX_FILE_NAME_BYTES, MAX_LISTED, claims_of
from dspark_convert.source.hub_cache import cache_fault, is_kept, repository, save
from dspark_convert.source.hub_http import read_range
from dspark_convert.source.hub_repo import Repository, config_folders
from dspark_convert.source.jsonfile import MAX_JSON_BYTES, parse_object, read_object
from dspark_convert.source.mask_embedding import FILE_NAME as MASK_EMBEDDING
from dspark_convert.source.safetensors_header import MAX_HEADER_BYTES, TensorRef, read_header, starts_header
from dspark_convert.words import listed

#: what a conversion reads of a draft beside index and tensors
MANIFEST = ("config.json", "README.md", MASK_EMBEDDING)
#: what it reads of a target, as tokenizer/ does; with a folder of further templates
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
_TEMPLATE = re.compile(r"additional_chat_templates/[\w-]{1,100}\.jinja")
#: where tokenizer.json is missing: what tokenizer/ reads in its place, and what it tells by name
_OTHER_FORMS = ("tokenizer.model", "tiktoken.model", "added_tokens.json", "tekken.json", "vocab.json")

#: of a shard, asked for first: many headers fit, and no great part of the tensors does
FIRST_BYTES = 1 << 16

#: begins the name of the compact file of a shard's tables, which are fetched only on request
TABLES_PREFIX = "tables-"


def small_files(repo: Repository, names: Iterable[str], note: Callable[[str], None]) -> None:
    """Bring those of ``names`` that the repository has into the snapshot."""
    for name in names:
        if name in repo.files or _in_hub_cache(repo, name):
            _bring(repo, name, repo.cache.snapshot / name, note)


def tokenizer_files(repo: Repository) -> list[str]:
    """The names of what there is to read of a target's tokenizer."""
    templates = sorted(name for name in repo.files if _TEMPLATE.fullmatch(name))
    return [*TOKENIZER, *templates, *(() if "tokenizer.json" in repo.files else _OTHER_FORMS)]


def whole_in_hub_cache(repo: Repository, name: str) -> Path | None:
    """Where a file lies whole in huggingface_hub's own cache; None if it does not."""
    return _hub_snapshot(repo) / name if _in_hub_cache(repo, name) else None


def _hub_snapshot(repo: Repository) -> Path:
    from huggingface_hub import constants

    return repository(Path(constants.HF_HUB_CACHE), repo.id.repo) / "snapshots" / repo.commit / repo.id.folder


def _in_hub_cache(repo: Repository, name: str) -> bool:
    path = _hub_snapshot(repo) / name
    return path.is_file() and repo.files.get(name) in (None, path.stat().st_size)


def _bring(repo: Repository, name: str, path: Path, note: Callable[[str], None]) -> None:
    """Make ``path`` the file ``name`` of the repository: as it is, from the hub's cache, or fetched."""
    size = repo.files.get(name)
    if size is not None and size > MAX_JSON_BYTES:
        raise InputError(f"{name} of {repo.id} has {size} bytes; a file of its kind has at most {MAX_JSON_BYTES}.")
    if is_kept(path, size):
        return
    if path.parent != repo.cache.snapshot and path.parent != repo.cache.parts:
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as fault:
            raise cache_fault(path.parent, fault) from None
    if _in_hub_cache(repo, name):
        save(path, (_hub_snapshot(repo) / name).read_bytes())
    else:
        save(path, read_range(repo.remote(name), 0, repo.files[name], note) if size else b"")


def weight_files(repo: Repository) -> list[str]:
    """The names of all shards, as ``open_checkpoint`` would find them in a clone."""
    shards = sorted(name for name in repo.files if name.endswith(".safetensors") and _is_plain(name))
    if not shards:
        other = sorted(name for name in repo.files if name.endswith((".bin", ".pt", ".pth", ".gguf")))
        have = listed(other or sorted(repo.files), MAX_LISTED) or "nothing"
        raise InputError(f"{repo.id} has no *.safetensors file (it has {have}); give the repository of a checkpoint.")
    return shards


def require_config(repo: Repository) -> Path:
    """The snapshot's config.json. Raises InputError, with the folders that have one, if there is none."""
    path = repo.cache.snapshot / "config.json"
    if path.is_file():
        return path
    hint = folder_hint(repo, "one") or "give the repository of a checkpoint"
    raise InputError(f"{repo.id} has no config.json; {hint}.")


def folder_hint(repo: Repository, what: str) -> str:
    """Where else in the repository ``what``, a config.json, lies, and how that is named; empty if nowhere."""
    folders = config_folders(repo.files)
    if not folders:
        return ""
    example = replace(repo.id, folder="/".join(filter(None, (repo.id.folder, folders[0]))))
    if len(folders) == 1:
        return f"{what} lies in its folder {folders[0]}: give {example}"
    return f"{what} lies in each of its folders {listed(folders, MAX_LISTED)}: give one of them, as in {example}"


def _is_plain(name: str) -> bool:
    if name.startswith(".") or len(name.encode("utf-8", "surrogatepass")) > MAX_FILE_NAME_BYTES - len(
        f"{TABLES_PREFIX}.part"
    ):
        return False
    return not any(sign in name for sign in "/\\\0")


def read_index(repo: Repository, note: Callable[[str], None]) -> tuple[str, Path] | None:
    """The name and a copy of the repository's index; None if it has none."""
    names = sorted(name for name in repo.files if name.endswith(".safetensors.index.json") and _is_plain(name))
    if len(names) > 1:
        raise InputError(f"{repo.id} has {len(names)} index files ({listed(names, MAX_LISTED)}), expected one.")
    if not names:
        return None
    path = repo.cache.parts / names[0]
    _bring(repo, names[0], path, note)
    return names[0], path


def checked_claims(index: Path, repo: Repository) -> dict[str, str]:
    """Tensor name -> shard, as the index says. Raises InputError if it names what is no shard's name."""
    findings: list[Finding] = []
    claims = claims_of(index, findings)
    if findings:
        raise InputError(f"the index {index.name} of {repo.id} cannot be trusted.", findings=findings)
    return claims


def require_shards(repo: Repository, names: Iterable[str]) -> None:
    """Raise InputError if the repository lacks one of the shards that the index names."""
    missing = sorted(name for name in set(names) if name not in repo.files or not _is_plain(name))
    if missing:
        where = listed(missing, MAX_LISTED)
        raise InputError(f"{repo.id} lacks {len(missing)} of the shards that its index names: {where}.")


def read_head(repo: Repository, shard: str, note: Callable[[str], None]) -> tuple[list[TensorRef], Any]:
    """All tensors of ``shard``, at their places in the file on the hub, and its ``__metadata__``.

    Raises InputError if the header is not sound or does not fit the file's size.
    """
    path = repo.cache.heads / shard
    size = repo.files[shard]
    if not _is_head(path):
        _fetch_head(repo, shard, path, note)
    refs, findings = read_header(path, size)
    if findings:
        path.unlink(missing_ok=True)
        raise InputError(f"a shard of {repo.id} is damaged.", findings=findings)
    with path.open("rb") as file:
        file.seek(8)
        metadata = parse_object(file.read(), shard).get("__metadata__")
    return refs, metadata


def _fetch_head(repo: Repository, shard: str, path: Path, note: Callable[[str], None]) -> None:
    """Make ``path`` the header of ``shard``, or as much of what is none as tells that."""
    remote, size = repo.remote(shard), repo.files[shard]
    head = read_range(remote, 0, min(size, FIRST_BYTES), note)
    length = int.from_bytes(head[:8], "little")
    no_header = len(head) < 8 or (len(head) > 8 and not starts_header(head))
    if no_header or length > min(MAX_HEADER_BYTES, size - 8):
        end = min(len(head), 512)
    else:
        end = 8 + length
        if end > len(head):
            head += read_range(remote, len(head), end, note)
    save(path, head[:end])


def _is_head(path: Path) -> bool:
    if not is_kept(path):
        return False
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little") == path.stat().st_size


def full_snapshot(repo: Repository, needed: Callable[[Mapping[str, Any], Iterable[str]], list[str]]) -> Path | None:
    """The repository's directory in huggingface_hub's own cache, if all that is needed lies there."""
    root = _hub_snapshot(repo)
    manifest = [name for name in MANIFEST if name in repo.files]
    if not root.is_dir() or not (root / "config.json").is_file():
        return None
    if not all(_in_hub_cache(repo, name) for name in manifest):
        return None
    indexes = sorted(root.glob("[!.]*.safetensors.index.json"))
    if indexes:
        claims = checked_claims(indexes[0], repo)
    else:
        shards = sorted(path.name for path in root.glob("[!.]*.safetensors"))
        if not shards or (repo.files and shards != weight_files(repo)):
            return None
        claims = {ref.name: name for name in shards for ref in read_header(root / name)[0]}
    names = needed(read_object(root / "config.json"), claims)
    return root if all(_in_hub_cache(repo, shard) for shard in {claims[name] for name in names}) else None
