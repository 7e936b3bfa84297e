from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

from dspark_convert.tensors.scratch import scratch


def test_a_name_is_one_buffer_that_grows() -> None:
    first = scratch("test.a", 10, np.float32)
    assert first.dtype == np.float32 and first.shape == (10,)
    assert np.shares_memory(first, scratch("test.a", 40, np.uint8))
    assert not np.shares_memory(first, scratch("test.b", 10, np.float32))
    larger = scratch("test.a", 11, np.float32)
    assert larger.shape == (11,) and np.shares_memory(larger, scratch("test.a", 1, np.uint8))


def test_each_thread_has_its_own() -> None:
    together = Barrier(2)

    def mine(_: int) -> np.ndarray:
        together.wait()
        return scratch("test.c", 8, np.uint8)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(mine, range(2))
    assert not np.shares_memory(one, other)
