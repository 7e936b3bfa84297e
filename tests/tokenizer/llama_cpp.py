"""Tokenizes with llama.cpp, in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dspark_convert.ggufio.types import KV
from tests.gguf_bytes import Builder
from tests.tokenizer.making import encoded

ROOT = Path(__file__).parents[2]


def write_vocabulary(path: Path, kvs: tuple[KV, ...]) -> Path:
    gguf = Builder()
    count = 1 + len(kvs)
    path.write_bytes(gguf.file([gguf.kv("general.architecture", 8, "llama"), encoded(kvs)], kv_count=count))
    return path


def in_llama_cpp(paths: Sequence[Path], texts: Sequence[str]) -> list[list[list[int]] | None]:
    jobs = json.dumps([[str(path), list(texts)] for path in paths])
    command = [sys.executable, "-m", "tests.tokenizer.llama_child"]
    done = subprocess.run(command, input=jobs.encode(), cwd=ROOT, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    result = json.loads(done.stdout)
    assert isinstance(result, list)
    return result
