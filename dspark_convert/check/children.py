"""The child processes in which steps run: our own commands, whose crash or greed is a failed step and no more."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

#: seconds that a child has to clean up after it was asked to end
PATIENCE = 10
#: lines of what a child said that are told when it ended without a document
TOLD_LINES = 3


class Stopped(Exception):
    """Everything was asked to end."""


@dataclass(frozen=True)
class Ended:
    """``document`` is what the child printed as JSON; None if it is none. ``said``: the end of its stderr."""

    code: int
    document: Mapping[str, Any] | None
    said: str


class Children:
    """All children of a run; ``stop`` ends them, from another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, module: str, arguments: Sequence[str], directory: Path) -> Ended:
        """Call ``main`` of ``module`` in a process of its own in ``directory``; raises Stopped after ``stop``."""
        # -P: what lies in the directory is not imported.
        command = [sys.executable, "-P", "-c", f"from {module} import main; main()", *arguments]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with self._lock:
                if self._stopped:
                    raise Stopped
                child = subprocess.Popen(
                    command,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    # Ctrl-C reaches this process alone, which then asks the children to end.
                    start_new_session=True,
                    env=os.environ | {"NO_COLOR": "1", "PYTHONUTF8": "1"},
                )
                self._running.add(child)
            try:
                child.wait()
            finally:
                with self._lock:
                    self._running.discard(child)
            if self._stopped:
                raise Stopped
            for stream in (out, err):
                stream.seek(0)
            document = None
            with contextlib.suppress(ValueError):
                document = json.load(out)
            lines = err.read().decode("utf-8", "replace").strip().splitlines()
        return Ended(child.returncode, document if isinstance(document, dict) else None, "; ".join(lines[-TOLD_LINES:]))

    def stop(self) -> None:
        """Ask all children to end, wait for them, kill what does not; no other is started."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for child in running:
            with contextlib.suppress(OSError):
                child.terminate()
        for child in running:
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
