"""The whole gate in one command: ``python -m tests`` (further arguments go to pytest)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

STEPS = {
    "lint": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "docs are current": ["docs/build.py", "--check"],
    # A file stays with one process, so that what its tests share is made once.
    "tests": ["-m", "pytest", "-n", "auto", "--dist", "loadfile", *sys.argv[1:]],
}


def main() -> int:
    """Run every step, also behind one that failed; 0 if all passed."""
    failed = []
    for name, arguments in STEPS.items():
        print(f"== {name}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False).returncode
        print(f"== {name}: {'ok' if code == 0 else f'failed ({code})'}, {time.monotonic() - start:.0f} s", flush=True)
        if code:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
