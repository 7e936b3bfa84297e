"""A child that takes more memory than it may ends with a sentence, not with the machine."""

from __future__ import annotations

import sys

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.diagnosis import explain_memory
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.validation import memory_limit, validate
from tests.runtime.pairs import PairFiles

GB = 10**9


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's data")
def test_llama_cpp_that_takes_too_much(random_pair: PairFiles) -> None:
    with pytest.raises(EnvironmentFault, match=r"^while (loading|creating|probing).*the memory ran out: llama.cpp may"):
        validate(random_pair.draft, random_pair.target, prompts=["boat"], max_tokens=4, memory=GB // 8, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's data")
def test_limit_is_kept() -> None:
    script = """
import json, sys
job = json.loads(sys.stdin.readline())
from dspark_convert.runtime.child import limit_memory
limit_memory(job["memory"])
held = bytearray(job["memory"] // 2)
print(json.dumps({"phase": "taking more"}), flush=True)
more = bytearray(job["memory"])
print(json.dumps({"result": {}}), flush=True)
"""
    with pytest.raises(EnvironmentFault, match=r"^while taking more, the memory ran out.* 0\.3 GB here; .* --memory"):
        run_job({"memory": 3 * GB // 10}, timeout=30, arguments=("-c", script))


def test_default_is_ample(random_pair: PairFiles) -> None:
    files = (random_pair.draft, random_pair.target)
    assert memory_limit(files) > 2 * sum(path.stat().st_size for path in files) + 4 * GB


@pytest.mark.parametrize(
    "line",
    [
        "  what():  std::bad_alloc",
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 93.1 GiB for an array",
        "OSError: libx.so: failed to map segment from shared object: Cannot allocate memory",
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 123",
        "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
        "ggml.c:1644: GGML_ASSERT(ctx->mem_buffer != NULL) failed",
        "CUDA error: out of memory",
    ],
)
def test_ways_to_say_that_there_is_no_memory(line: str) -> None:
    told = explain_memory("loading the target", ["before", line], 5 * GB)
    assert told.startswith("while loading the target, the memory ran out: llama.cpp may allocate 5 GB here")
    assert explain_memory("loading", [line], None) == "while loading, the memory ran out."


def test_other_faults_are_not_the_memory_s() -> None:
    lines = ["GGML_ASSERT(n_vocab == 5) failed", "error loading model: missing tensor", "llama_kv_cache: size = 8 MiB"]
    assert explain_memory("loading", lines, GB) == ""
