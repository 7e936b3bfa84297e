"""Files of checks and what they name, written anew for each test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

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
    """dspark-check as a process of its own; its cache is where $XDG_CACHE_HOME says."""
    done = subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120, check=False, cwd=cwd
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path
