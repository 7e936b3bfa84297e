"""Single rows of a matrix that stays on the hub: enough to tell whether it is another one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dspark_convert.source.hub_cache import load_json, save_json
from dspark_convert.source.hub_fetch import CONNECTIONS
from dspark_convert.source.hub_http import read_range
from dspark_convert.source.hub_repo import Repository
from dspark_convert.source.hub_shards import Shard
from dspark_convert.source.safetensors_header import TensorRef


def fetch_rows(
    repository: Repository, shard: Shard, ref: TensorRef, rows: Sequence[int], note: Callable[[str], None]
) -> list[bytes]:
    """The bytes of ``rows`` of ``ref``, a matrix of ``shard``, in their order; those fetched before from the cache.

    Raises EnvironmentFault where they cannot be had: no network, or a server that does not send ranges.
    """
    size = ref.nbytes // ref.shape[0]
    path = repository.cache.parts / f"{shard.name}.rows"
    kept = load_json(path)
    found = _kept(kept.get(ref.name), size)
    if missing := [row for row in rows if row not in found]:
        file = repository.remote(shard.file)

        def fetch(row: int) -> bytes:
            begin = ref.offset + row * size
            return read_range(file, begin, begin + size, note, through=False)

        found[missing[0]] = fetch(missing[0])  # what fails here would fail for all
        pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="rows")
        try:
            found |= zip(missing[1:], pool.map(fetch, missing[1:]), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)
        save_json(path, {**kept, ref.name: {str(row): data.hex() for row, data in found.items()}})
    return [found[row] for row in rows]


def _kept(rows: Any, size: int) -> dict[int, bytes]:
    """What ``fetch_rows`` noted earlier, as far as it is sound."""
    found = {}
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        for row, text in rows.items():
            if len(data := bytes.fromhex(text)) == size:
                found[int(row)] = data
    return found
