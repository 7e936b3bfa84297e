"""Fetches what a survey says is needed into the cache, shard by shard, a few at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from dspark_convert.source.hub_http import Changed, Patience, RemoteFile, Stop, Transient, open_range
from dspark_convert.source.hub_part import forget, is_complete, open_part
from dspark_convert.source.hub_repo import Repository
from dspark_convert.source.hub_shards import Shard, cut, requests, rest

#: shards that are fetched at the same time
CONNECTIONS = 4


class _Stopped(Exception):
    """Another shard failed, or the user interrupts."""


def fetch_shards(
    repository: Repository, shards: list[Shard], advance: Callable[[int], None], note: Callable[[str], None]
) -> None:
    """Fetch ``shards`` into the cache; ``advance`` is told the tensors' bytes as they come.

    What was fetched stays whatever happens, for the next run to go on from. Raises
    EnvironmentFault or InputError as ``open_range`` does.
    """
    stop = Stop()
    pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="fetch")
    try:
        tasks = [pool.submit(_fetch, repository, shard, advance, note, stop) for shard in shards]
        wait(tasks, return_when=FIRST_EXCEPTION)
        stop.set()
        pool.shutdown()
        faults = [fault for task in tasks if not task.cancelled() and (fault := task.exception())]
        for fault in sorted(faults, key=lambda fault: isinstance(fault, _Stopped)):
            raise fault
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _fetch(
    repository: Repository,
    shard: Shard,
    advance: Callable[[int], None],
    note: Callable[[str], None],
    stop: Stop,
) -> None:
    if is_complete(repository.cache, shard):
        return
    try:
        _fetch_part(repository, shard, advance, Patience(shard.file, note, stop))
    except Changed:
        forget(repository.cache, shard)
        raise


def _fetch_part(repository: Repository, shard: Shard, advance: Callable[[int], None], patience: Patience) -> None:
    file = repository.remote(shard.file)
    with open_part(repository.cache, shard) as part:
        left = rest(shard.wanted, part.done)
        for _, end in requests(shard.wanted):
            while left and left[0][0] < end:
                if patience.stop.is_set():
                    raise _Stopped
                try:
                    for chunk in _wanted(file, left, end, patience):
                        part.append(chunk)
                        advance(len(chunk))
                        if patience.stop.is_set():
                            raise _Stopped
                except Transient as fault:
                    patience.wait(fault)
                left = rest(shard.wanted, part.done)
        part.finish()


def _wanted(file: RemoteFile, left: list[tuple[int, int]], end: int, patience: Patience) -> Iterator[memoryview]:
    """One answer's share of the ranges ``left``, of which those up to ``end`` are asked for."""
    begin = left[0][0]
    with open_range(file, begin, end, patience.stop) as (position, chunks):
        if position != begin:
            patience.note(f"{file.name}: the server does not send ranges, so all {file.size:,} bytes of it are read")
        for chunk in chunks:
            spans = left[bisect_right(left, position, key=lambda span: span[1]) :]
            yield from cut(spans, position, chunk)
            position += len(chunk)
            patience.progress(len(chunk))
