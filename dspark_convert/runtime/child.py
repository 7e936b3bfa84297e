"""What every child process does: one job from stdin, its result to stdout, and no longer alive than its parent.

One line of JSON on stdin is the job; lines of JSON on stdout are {"phase": …}, then {"result": …} or
{"error": {"kind", "message"}}. stderr carries what llama.cpp says. When stdin closes, the parent is gone and
so is this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from dspark_convert.errors import DsparkError, EnvironmentFault, UsageError

Tell = Callable[[str], None]

#: prctl's request for a signal when the parent dies (Linux)
PR_SET_PDEATHSIG = 1


def run_child(work: Callable[[dict[str, Any], Tell], dict[str, Any]]) -> None:
    """Do the job that comes on stdin with ``work``, which hears of its phases through its second argument."""
    # Whatever the library prints to stdout must not get between the lines of JSON.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _no_core_dump()
    _die_with_parent()
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        send({"result": work(job, lambda phase: send({"phase": phase}))})
    except DsparkError as fault:
        kinds = {EnvironmentFault: "environment", UsageError: "usage"}
        send({"error": {"kind": kinds.get(type(fault), "input"), "message": str(fault)}})
    # Some builds crash in their own clean-up at exit; the result is out, so leave without it.
    os._exit(0)


def _die_with_parent() -> None:
    """Have Linux kill this process with its parent: while a library is being loaded, no thread of Python's runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def limit_memory(limit: int | None) -> None:
    """Let this process allocate at most ``limit`` bytes; mapped model files and reserved addresses do not count.

    So a GPU's driver may reserve what it likes. Where the system has no such limit nothing happens.
    """
    if limit is None:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _no_core_dump() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
