"""Ask gguf-py's reader, which trusts the counts in a file, in a process with little time and memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

MEMORY = 2 << 30
SECONDS = 5


def gguf_py_accepts(path: Path) -> bool:
    """Whether gguf.GGUFReader reads the file and all its values; False if it ends in any other way."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(path)], capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import gguf

    reader = gguf.GGUFReader(sys.argv[1])
    for entry in reader.fields.values():
        entry.contents()


if __name__ == "__main__":
    main()
