"""What a context takes from this machine."""

from __future__ import annotations

import os

from dspark_convert.runtime.context import ONE_THREAD_BYTES, threads_for


def test_small_models_get_one_thread_and_large_ones_all_cores() -> None:
    assert threads_for(0) == threads_for(ONE_THREAD_BYTES) == 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert threads_for(ONE_THREAD_BYTES + 1) == cores
