"""Files of checks and what they name, written anew for each test."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-c", "from dspark_convert.cli.check import main; main()"]


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def run_checks(*args: str | Path, cwd: Path | None = None) -> Ended:
    """dspark-check as the console script runs it, in this process; its cache is where $XDG_CACHE_HOME says."""
    from dspark_convert.cli.check import main

    out, err, code = StringIO(), StringIO(), 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    argv = patch.object(sys, "argv", ["dspark-check", *map(str, args)])
    with redirect_stdout(out), redirect_stderr(err), chdir(cwd or Path.cwd()), argv:
        try:
            main()
        except SystemExit as stop:
            assert isinstance(stop.code, int)
            code = stop.code
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return Ended(code, out.getvalue(), err.getvalue())


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path
