"""Run a native job in a process of its own, and say in a sentence what ended it.

llama.cpp ends its process on many kinds of bad file (assertions, divisions by zero, wild pointers), and
a wrong library can do anything. So nothing here loads it: the child does, under limits of time and memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import dspark_convert
from dspark_convert.errors import DsparkError, EnvironmentFault, UsageError
from dspark_convert.runtime.diagnosis import add_complaint, explain_death, explain_memory

WORKER = ("-P", "-m", "dspark_convert.runtime.worker")

#: kinds of error that are not the model files' fault
RAISED: dict[str | None, type[DsparkError]] = {"environment": EnvironmentFault, "usage": UsageError}

#: the phase in which a crash is the library's fault, not the files'
LIBRARY_PHASE = "loading the library"

#: lines of llama.cpp's log that are kept for a diagnosis, and the bytes of a longer one that count as a line
LOG_LINES = 400
LOG_LINE_BYTES = 4096


@dataclass(frozen=True)
class Outcome:
    """``result`` is what the job returned, or None; then ``fault`` says in a sentence what happened.

    ``phase`` is what the child was doing last, ``log`` the last lines that it wrote to stderr.
    """

    result: dict[str, Any] | None
    fault: str
    phase: str
    log: tuple[str, ...]


class _Messages:
    """What the child has said so far on its pipe."""

    def __init__(self, on_phase: Callable[[str], None]) -> None:
        self._on_phase = on_phase
        self.phase = "starting"
        self.result: dict[str, Any] | None = None
        self.error: dict[str, str] = {}

    def take(self, line: str) -> None:
        try:
            message = json.loads(line)
        except ValueError:  # cut off by a crash
            return
        if not isinstance(message, dict):  # a library that writes to whatever is open
            return
        self.result = message.get("result", self.result)
        self.error = message.get("error", self.error)
        if "phase" in message:
            self.phase = message["phase"]
            self._on_phase(self.phase)


def run_job(
    job: Mapping[str, Any],
    *,
    timeout: float,
    on_phase: Callable[[str], None] = lambda _phase: None,
    arguments: Sequence[str] = WORKER,
) -> Outcome:
    """Run ``job`` in a child Python for at most ``timeout`` seconds.

    ``on_phase`` hears what the child is doing (from another thread). The child never outlives this
    call, not even if it is interrupted. Raises EnvironmentFault if the library or too little memory is at
    fault, UsageError if the prompts are.
    """
    messages = _Messages(on_phase)
    log: deque[str] = deque(maxlen=LOG_LINES)
    timed_out = False
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        # Ctrl-C reaches the parent alone, which then ends the child.
        start_new_session=True,
    ) as child:
        readers = [_reader(child.stdout, messages.take), _reader(child.stderr, log.append, LOG_LINE_BYTES)]
        try:
            _hand_over(child.stdin, job)
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(child)
            for reader in readers:
                reader.join()
    if messages.result is not None:
        return Outcome(messages.result, "", messages.phase, tuple(log))
    if memory := explain_memory(messages.phase, [*log, messages.error.get("message", "")], job.get("memory")):
        raise EnvironmentFault(memory)
    if messages.error:
        fault = add_complaint(messages.error["message"], log)
    elif timed_out:
        fault = f"while {messages.phase}, the {timeout:g} seconds allowed ran out; allow more with --timeout."
    else:
        fault = explain_death(child.returncode, messages.phase, log)
    if (kind := messages.error.get("kind")) in RAISED:
        raise RAISED[kind](messages.error["message"])
    if messages.phase == LIBRARY_PHASE:
        raise EnvironmentFault(f"{job['library']} cannot be used: {fault}")
    return Outcome(None, fault, messages.phase, tuple(log))


def _environment() -> dict[str, str]:
    """This process's environment, such that the child finds this package and ggml starts no debugger."""
    package_root = str(Path(dspark_convert.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"}


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill ``child`` and, where there are process groups, whatever it started: that would hold the pipes open."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # the latter on macOS, of a group that has ended
            os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()  # leaving a Popen block does not wait after Ctrl-C


def _reader(stream: IO[bytes] | None, take: Callable[[str], None], limit: int = -1) -> threading.Thread:
    """Hand every line of ``stream`` to ``take``; of at most ``limit`` bytes, if that is not negative."""

    def read() -> None:
        while stream and (line := stream.readline(limit)):
            take(line.decode("utf-8", "replace").rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _hand_over(stream: IO[bytes] | None, job: Mapping[str, Any]) -> None:
    """Write the job's line; the stream stays open, because its end tells the child to stop."""
    data = json.dumps(job).encode() + b"\n"
    # A child that died at once is explained by its exit code.
    with suppress(BrokenPipeError):
        while data and stream is not None:
            data = data[os.write(stream.fileno(), data) :]
