"""A draft on the hub as a local checkpoint directory that holds only what a conversion reads.

``survey_at`` reads config, index and headers of the shards that matter; ``open_survey`` makes a
Checkpoint of them, of which no tensor's byte is there yet; ``materialise`` fetches these. Tables
that may be borrowed from the target make compact files of their own, and can be left on the hub.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.source.checkpoint import Checkpoint, Needs, open_checkpoint
from dspark_convert.source.hub_cache import save
from dspark_convert.source.hub_fetch import fetch_shards
from dspark_convert.source.hub_files import (
    MANIFEST,
    TABLES_PREFIX,
    checked_claims,
    folder_hint,
    full_snapshot,
    read_head,
    read_index,
    require_config,
    require_shards,
    small_files,
    tokenizer_files,
    weight_files,
)
from dspark_convert.source.hub_id import HubId
from dspark_convert.source.hub_part import done_before, is_complete
from dspark_convert.source.hub_repo import Repository, resolve
from dspark_convert.source.hub_rows import fetch_rows
from dspark_convert.source.hub_shards import Shard, make_shard
from dspark_convert.source.jsonfile import read_object
from dspark_convert.source.safetensors_header import TensorRef, read_rows

#: the index's name, where a repository without one needs one for its compact files
INDEX = "model.safetensors.index.json"

#: of a checkpoint's config and all its tensor names those that are needed
Needed = Callable[[Mapping[str, Any], Iterable[str]], list[str]]


class Sink(Protocol):
    """Where a fetch tells what it does: ``cli.output.Output`` is one."""

    def note(self, text: str) -> None: ...

    def progress(self, label: str, total: int) -> AbstractContextManager[Callable[[int], None]]: ...


@dataclass(frozen=True)
class Survey:
    """What a conversion needs of a repository, and where it is.

    ``directory`` is set where all of it lies in huggingface_hub's own cache already. ``index`` is the
    name of the index, if there has to be one. ``left``: tables of which only the headers are needed.
    """

    repository: Repository
    directory: Path | None
    shards: tuple[Shard, ...]
    index: str | None
    shards_in_all: int
    left: tuple[Shard, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        return read_object((self.directory or self.repository.cache.snapshot) / "config.json")

    @property
    def nbytes(self) -> int:
        """Of the needed tensors."""
        return sum(shard.nbytes for shard in self.shards)

    @property
    def files(self) -> list[str]:
        """The hub's files in which the needed tensors stand."""
        return sorted({shard.file for shard in self.shards})

    @property
    def cached(self) -> dict[str, int]:
        """Bytes of each shard's tensors that lie in the cache already."""
        return {shard.name: done_before(self.repository.cache, shard) for shard in self.shards}

    @property
    def missing(self) -> int:
        """Bytes of tensors that are still to be fetched."""
        return self.nbytes - sum(self.cached.values())

    def __str__(self) -> str:
        where = f"{self.repository.id} at commit {self.repository.commit}"
        if self.directory is not None:
            return f"{where} lies in the hub's cache: nothing is fetched"
        missing = self.missing
        if not missing:
            return f"{where} is in the cache: nothing is fetched"
        have = f", {self.nbytes - missing:,} are in the cache" if missing < self.nbytes else ""
        return (
            f"{where}: {missing:,} bytes to fetch for {len(self.files)} of {self.shards_in_all} shards "
            f"(needed {self.nbytes:,}{have})"
        )

    def write_index(self, root: Path, shards: Iterable[Shard]) -> None:
        """The index of ``shards`` in ``root``; none where the repository needs none."""
        names = {ref.name: shard.name for shard in shards for ref in shard.tensors}
        if self.index is not None:
            text = {"metadata": {"total_size": sum(shard.nbytes for shard in shards)}, "weight_map": names}
            save(root / self.index, json.dumps(text, indent=1).encode())


def _no_tables(_config: Mapping[str, Any], _names: Iterable[str]) -> list[str]:
    return []


def survey_at(
    repository: Repository,
    needed: Needed,
    sink: Sink,
    tables: Needed = _no_tables,
    *,
    leave_tables: bool = False,
) -> Survey:
    """Find out what ``needed`` wants of the repository, reading no tensor.

    ``tables``: which of the needed stand in compact files of their own; ``leave_tables``: of these
    only the headers are needed, and their bytes used where the cache has them.

    Raises UsageError, InputError or EnvironmentFault with one sentence about what is wrong.
    """
    hub_id = repository.id
    if (found := full_snapshot(repository, needed)) is not None:
        return Survey(repository, found, (), None, 0)
    config = _fetch_config(repository, sink)
    weights = weight_files(repository)
    index = read_index(repository, sink.note)
    heads: dict[str, tuple[list[TensorRef], Any]] = {}
    if index is None:
        heads = {name: read_head(repository, name, sink.note) for name in weights}
        claims = {ref.name: name for name, (refs, _) in heads.items() for ref in refs}
        if len(claims) < sum(len(refs) for refs, _ in heads.values()):
            raise InputError(f"{hub_id} has no index, and its shards hold tensors of one name twice.")
    else:
        claims = checked_claims(index[1], repository)
    try:
        names = needed(config, claims)
    except InputError as fault:
        if hint := folder_hint(repository, "another config.json"):
            message = f"{str(fault).removesuffix('.')}; {hint}."
            raise InputError(message, findings=fault.findings) from None
        raise
    apart = set(tables(config, names))
    by_shard: dict[str, set[str]] = {}
    for name in names:
        by_shard.setdefault(claims[name], set()).add(name)
    require_shards(repository, by_shard)
    shards: list[Shard] = []
    left: list[Shard] = []
    for name in sorted(by_shard):
        refs, metadata = heads.get(name) or read_head(repository, name, sink.note)
        taken = [ref for ref in refs if ref.name in by_shard[name]]
        if lost := by_shard[name] - {ref.name for ref in taken}:
            raise InputError(f"the index of {hub_id} says that tensor {min(lost)!r} stands in {name}, which is not so.")
        if stray := [ref.name for ref in refs if claims.get(ref.name) != name]:
            message = f"tensor {stray[0]!r} stands in {name}, and the index of {hub_id} does not list it there."
            raise InputError(message)
        size = repository.files[name]
        if own := [ref for ref in taken if ref.name not in apart]:
            shards.append(make_shard(name, size, own, metadata))
        if own := [ref for ref in taken if ref.name in apart]:
            table = make_shard(name, size, own, metadata, _apart(name, repository))
            left_there = leave_tables and not is_complete(repository.cache, table)
            (left if left_there else shards).append(table)
    listed = index[0] if index is not None else INDEX if left else None
    return Survey(repository, None, tuple(shards), listed, len(weights), tuple(left))


def _fetch_config(repository: Repository, sink: Sink) -> dict[str, Any]:
    repository.cache.prepare()
    small_files(repository, MANIFEST, sink.note)
    return read_object(require_config(repository))


def _apart(name: str, repository: Repository) -> str:
    while (name := TABLES_PREFIX + name) in repository.files:
        pass
    return name


def open_survey(survey: Survey, needs: Needs, root: Path | None = None, sink: Sink | None = None) -> Checkpoint:
    """The checkpoint in ``root``, where it was fetched to, or as it will be: then of the tensors only
    names, types and shapes can be read. With ``sink`` single rows of tables that are left are fetched.

    ``needs`` as in ``open_checkpoint``.
    """
    if survey.directory is not None:
        return open_checkpoint(survey.directory, needs=needs)
    opened = _open_headers(survey, needs) if root is None else open_checkpoint(root, needs=needs)
    away = {ref.name: ref for shard in survey.left for ref in shard.tensors if ref.name not in opened.tensors}
    if not away:
        return opened
    rows = None if sink is None else partial(_read_left, survey, root, sink)
    return replace(opened, tensors={**opened.tensors, **away}, names=(*opened.names, *away), rows=rows)


def _read_left(survey: Survey, root: Path | None, sink: Sink, ref: TensorRef, rows: Sequence[int]) -> list[bytes]:
    """Rows of a table that was left on the hub, or of one in ``root``."""
    shard = next((shard for shard in survey.left if ref in shard.tensors), None)
    if shard is not None:
        return fetch_rows(survey.repository, shard, ref, rows, sink.note)
    if root is None:
        raise EnvironmentFault("it is not fetched yet.")
    return read_rows(ref, rows)


def _open_headers(survey: Survey, needs: Needs) -> Checkpoint:
    snapshot = survey.repository.cache.snapshot
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        # The directories' names tell the checkpoint's origin (source/provenance.py).
        root = scratch / snapshot.relative_to(survey.repository.cache.base)
        root.mkdir(parents=True)
        for name in MANIFEST:
            if (snapshot / name).is_file():
                (root / name).write_bytes((snapshot / name).read_bytes())
        survey.write_index(root, survey.shards)
        for shard in survey.shards:
            (root / shard.name).write_bytes(shard.header)
        opened = open_checkpoint(root, {shard.name: shard.compact_size for shard in survey.shards}, needs)
    return replace(opened, root=Path(str(survey.repository.id)))


def materialise(survey: Survey, sink: Sink) -> Path:
    """Fetch what is missing, and return the checkpoint's directory.

    Raises EnvironmentFault if the disk, the network or the hub fail; the next run goes on from there.
    """
    if survey.directory is not None:
        return survey.directory
    cache = survey.repository.cache
    with cache.locked(sink.note):
        cached = survey.cached
        left = [shard for shard in survey.shards if cached[shard.name] < shard.nbytes or not _is_there(survey, shard)]
        missing = survey.nbytes - sum(cached.values())
        cache.check_space(missing)
        if left:
            with sink.progress("fetching", missing) as advance:
                fetch_shards(survey.repository, left, advance, sink.note)
        # Another run may have fetched what this one can do without.
        held = [*survey.shards, *(shard for shard in survey.left if is_complete(cache, shard))]
        kept = {shard.name for shard in held}
        for path in _weight_files(cache.snapshot):
            if path.name not in kept | {survey.index}:  # an earlier version needed it
                path.unlink()
        survey.write_index(cache.snapshot, held)
    return cache.snapshot


def _weight_files(snapshot: Path) -> Iterator[Path]:
    yield from snapshot.glob("*.safetensors")
    yield from snapshot.glob("*.safetensors.index.json")


def _is_there(survey: Survey, shard: Shard) -> bool:
    return (survey.repository.cache.snapshot / shard.name).is_file()


def fetch_target(hub_id: HubId, sink: Sink) -> Path:
    """A target's directory with its config and tokenizer, without weights."""
    return fetch_target_at(resolve(hub_id, sink.note), sink)


def fetch_target_at(repository: Repository, sink: Sink) -> Path:
    """As ``fetch_target``, of a commit."""
    repository.cache.prepare()
    small_files(repository, [*MANIFEST, *tokenizer_files(repository)], sink.note)
    require_config(repository)
    return repository.cache.snapshot
