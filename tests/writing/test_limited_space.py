"""A file system that is really full, read-only or limited, where the machine lets one be mounted.

The same messages are forced without one in test_injection.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.writing.writing import names

MIB = 1 << 20

CODE = """
import os, shutil, subprocess, sys
from pathlib import Path
from dspark_convert.errors import DsparkError
from dspark_convert.ggufio.types import GGMLType, string
from dspark_convert.writing.writer import write
from dspark_convert.jobs import TensorJob

directory, mode = Path(sys.argv[1]), sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=50", "none", directory], check=True)
out = directory / "out.gguf"
out.write_bytes(b"previous")
if mode == "inodes":
    for index in range(60):
        try:
            (directory / f"{index}").touch()
        except OSError:
            break
if mode == "read-only":
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
mib = {"before": 5, "exact": 4}.get(mode, 2)
job = TensorJob("t", GGMLType.F32, (mib << 18,), (), "zeros")

real = os.ftruncate
def others_are_quicker(descriptor, size):
    real(descriptor, size)
    try:
        with (directory / "other").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))
    except OSError:
        pass

if mode == "during":
    os.ftruncate = others_are_quicker
try:
    write(out, [string("a", "b")], [job], force=True)
except DsparkError as fault:
    print(fault.exit_code, fault)
else:
    print(0, out.stat().st_size)
print(out.read_bytes() == b"previous", sorted(path.name for path in directory.iterdir() if not path.name.isdigit()))
"""


def in_namespace(directory: Path, mode: str) -> list[str]:
    """What CODE prints in a mount namespace of its own; skips where the kernel grants none."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", CODE, str(directory), mode]
    probe = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"no file system may be mounted here ({probe.stderr.strip()}); injection covers the messages")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("before", f"it needs {5 * MIB + 96} bytes, and {{directory}} has 4190208 free"),
        ("during", "the disk is full"),
        ("inodes", "the disk is full"),
        ("read-only", "the file system is read-only"),
    ],
)
def test_a_full_or_read_only_file_system(tmp_path: Path, mode: str, message: str) -> None:
    out = tmp_path / "out.gguf"
    told, state = in_namespace(tmp_path, mode)
    assert told == f"4 cannot write {out}: {message.format(directory=tmp_path)}."
    kept = ["other", "out.gguf"] if mode == "during" else ["out.gguf"]
    assert state == f"True {kept}"
    assert names(tmp_path) == set()  # all was in a namespace of its own


def test_it_is_written_where_there_is_room(tmp_path: Path) -> None:
    assert in_namespace(tmp_path, "enough") == [f"0 {2 * MIB + 96}", "False ['out.gguf']"]
