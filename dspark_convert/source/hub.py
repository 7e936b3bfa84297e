"""A draft on the hub as a local checkpoint directory that holds only what a conversion reads.

``survey`` reads config, index and headers of the shards that matter; ``open_survey`` makes a
Checkpoint of them, of which no tensor's byte is there yet; ``materialise`` fetches these.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from dspark_convert.errors import InputError
from dspark_convert.source.checkpoint import Checkpoint, Needs, open_checkpoint
from dspark_convert.source.hub_cache import save
from dspark_convert.source.hub_fetch import fetch_shards
from dspark_convert.source.hub_files import (
    MANIFEST,
    checked_claims,
    full_snapshot,
    read_head,
    read_index,
    require_shards,
    small_files,
    tokenizer_files,
    weight_files,
)
from dspark_convert.source.hub_id import HubId
from dspark_convert.source.hub_part import done_before
from dspark_convert.source.hub_repo import Repository, resolve
from dspark_convert.source.hub_shards import Shard, make_shard
from dspark_convert.source.jsonfile import read_object
from dspark_convert.source.safetensors_header import TensorRef

#: of a checkpoint's config and all its tensor names those that are needed
Needed = Callable[[Mapping[str, Any], Iterable[str]], list[str]]


class Sink(Protocol):
    """Where a fetch tells what it does: ``cli.output.Output`` is one."""

    def note(self, text: str) -> None: ...

    def progress(self, label: str, total: int) -> AbstractContextManager[Callable[[int], None]]: ...


@dataclass(frozen=True)
class Survey:
    """What a conversion needs of a repository, and where it is.

    ``directory`` is set where all of it lies in huggingface_hub's own cache already. ``index`` is
    the name and the text of the compact checkpoint's index; None where the repository has none.
    """

    repository: Repository
    directory: Path | None
    shards: tuple[Shard, ...]
    index: tuple[str, bytes] | None
    shards_in_all: int

    @property
    def config(self) -> dict[str, Any]:
        return read_object((self.directory or self.repository.cache.snapshot) / "config.json")

    @property
    def nbytes(self) -> int:
        """Of the needed tensors."""
        return sum(shard.nbytes for shard in self.shards)

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
            f"{where}: {missing:,} bytes to fetch for {len(self.shards)} of {self.shards_in_all} shards "
            f"(needed {self.nbytes:,}{have})"
        )


def survey(hub_id: HubId, needed: Needed, sink: Sink) -> Survey:
    """As ``survey_at``, of the commit that the id stands for."""
    return survey_at(resolve(hub_id, sink.note), needed, sink)


def survey_at(repository: Repository, needed: Needed, sink: Sink) -> Survey:
    """Find out what ``needed`` wants of the repository, reading no tensor.

    Raises UsageError, InputError or EnvironmentFault with one sentence about what is wrong.
    """
    hub_id = repository.id
    if (found := full_snapshot(repository, needed)) is not None:
        return Survey(repository, found, (), None, 0)
    repository.cache.prepare()
    small_files(repository, MANIFEST, sink.note)
    config_path = repository.cache.snapshot / "config.json"
    if not config_path.is_file():
        raise InputError(f"{hub_id} has no config.json; give the repository of a draft's checkpoint.")
    config = read_object(config_path)
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
    names = needed(config, claims)
    by_shard: dict[str, set[str]] = {}
    for name in names:
        by_shard.setdefault(claims[name], set()).add(name)
    require_shards(repository, by_shard)
    shards = []
    for name in sorted(by_shard):
        refs, metadata = heads.get(name) or read_head(repository, name, sink.note)
        taken = [ref for ref in refs if ref.name in by_shard[name]]
        if len(taken) < len(by_shard[name]):
            lost = min(by_shard[name] - {ref.name for ref in taken})
            raise InputError(f"the index of {hub_id} says that tensor {lost!r} stands in {name}, which is not so.")
        stray = [ref.name for ref in refs if claims.get(ref.name) != name]
        if stray:
            message = f"tensor {stray[0]!r} stands in {name}, and the index of {hub_id} does not list it there."
            raise InputError(message)
        shards.append(make_shard(name, repository.files[name], taken, metadata))
    written = None if index is None else (index[0], _index({name: claims[name] for name in names}, shards))
    return Survey(repository, None, tuple(shards), written, len(weights))


def _index(weight_map: dict[str, str], shards: Iterable[Shard]) -> bytes:
    total = sum(shard.nbytes for shard in shards)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1).encode()


def open_survey(survey: Survey, needs: Needs) -> Checkpoint:
    """The checkpoint as it will be; of the tensors only names, types and shapes can be read.

    ``needs`` as in ``open_checkpoint``.
    """
    if survey.directory is not None:
        return open_checkpoint(survey.directory, needs=needs)
    snapshot = survey.repository.cache.snapshot
    with tempfile.TemporaryDirectory() as scratch:
        # The directories' names tell the checkpoint's origin (source/provenance.py).
        root = Path(scratch, *snapshot.parts[-3:])
        root.mkdir(parents=True)
        for name in MANIFEST:
            if (snapshot / name).is_file():
                (root / name).write_bytes((snapshot / name).read_bytes())
        if survey.index is not None:
            (root / survey.index[0]).write_bytes(survey.index[1])
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
        kept = {shard.name for shard in survey.shards}
        for path in cache.snapshot.glob("*.safetensors"):
            if path.name not in kept:  # an earlier version needed it
                path.unlink()
        if survey.index is not None:
            save(cache.snapshot / survey.index[0], survey.index[1])
    return cache.snapshot


def _is_there(survey: Survey, shard: Shard) -> bool:
    return (survey.repository.cache.snapshot / shard.name).is_file()


def fetch_target(hub_id: HubId, sink: Sink) -> Path:
    """A target's directory with its config and tokenizer, without weights."""
    return fetch_target_at(resolve(hub_id, sink.note), sink)


def fetch_target_at(repository: Repository, sink: Sink) -> Path:
    """As ``fetch_target``, of a commit."""
    repository.cache.prepare()
    small_files(repository, [*MANIFEST, *tokenizer_files(repository)], sink.note)
    return repository.cache.snapshot
