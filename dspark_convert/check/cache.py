"""Passed cases are not made again while nothing changed that they depend on.

The name of an entry is the hash of all of that: the check, every input, this package, and for ``validate`` the
llama.cpp library. A file counts by its content up to WHOLE bytes; of a larger one by its size, the time at which it
was last written, and EDGE bytes at each end, which hold the headers. What failed is always made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import dspark_convert
from dspark_convert import __version__
from dspark_convert.check.checks import Case
from dspark_convert.check.results import Result, from_json
from dspark_convert.ggufio.split import named_set

WHOLE = 64 * 2**20
EDGE = 4 * 2**20
#: a revision of the hub that names one content forever
_COMMIT = re.compile(r"@[0-9a-f]{40}$")
#: libraries that llama.cpp's own loads from its directory: they compute
_LIBRARIES = ("libllama", "llama", "libggml", "ggml")


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/dspark-check, by default ~/.cache/dspark-check."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # As its specification asks: a relative one is none.
    return (base if base.is_absolute() else Path.home() / ".cache") / "dspark-check"


class Cache:
    """``lib``: the library that --lib names. Nothing here raises: what cannot be cached is made."""

    def __init__(self, directory: Path, lib: Path | None = None) -> None:
        self.directory, self.lib = directory, lib
        self._files: dict[Path, str] = {}

    def anew(self) -> Cache:
        """One that has read no file yet."""
        return Cache(self.directory, self.lib)

    def key(self, case: Case) -> str | None:
        """None if the result must not be kept: an input on the hub may change, or a file cannot be read."""
        if not all(_COMMIT.search(name) for name in case.on_hub):
            return None
        # A set has no order, and is told apart.
        check = replace(case.check, line=0, expected=replace(case.check.expected, warnings=frozenset()))
        try:
            told = [__version__, sys.version, repr(check), case.outtype, sorted(case.check.expected.warnings)]
            told += [self._tree(path) for path in case.inputs]
            told.append(self._tree(Path(dspark_convert.__file__).parent, code=True))
            told += self._library() if "validate" in check.steps else []
        except OSError:
            return None
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def load(self, key: str, case: Case) -> Result | None:
        """None if there is no entry, or one that does not say that every step of ``case`` passed."""
        try:
            result = from_json(json.loads((self.directory / f"{key}.json").read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        passed = {(step.step, step.status) for step in result.steps} == {(step, "pass") for step in case.check.steps}
        return result if passed and (result.name, result.outtype) == (case.check.name, case.outtype) else None

    def store(self, key: str, result: Result) -> None:
        if result.status != "pass":
            return
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            partial = self.directory / f"{key}.{os.getpid()}.partial"
            partial.write_text(json.dumps(replace(result, output=None).to_json()), "utf-8")
            partial.replace(self.directory / f"{key}.json")

    def _library(self) -> list[str]:
        from dspark_convert.errors import DsparkError
        from dspark_convert.runtime.library import find_library

        try:
            library = find_library(self.lib)
        except DsparkError:
            return ["none"]
        beside = {path for path in library.path.parent.iterdir() if path.name.startswith(_LIBRARIES) and path.is_file()}
        files = sorted(beside | {library.path})
        return [str(library.path), library.source, *(f"{path.name} {self._file(path)}" for path in files)]

    def _tree(self, path: Path, *, code: bool = False) -> str:
        """Of a file, with the other parts of its split set, or of all files in a directory; in one of models the GGUFs
        are earlier outputs."""
        if path.is_file():
            return _hash(self._file(part) for part in named_set(path))
        files = _code(path) if code else (file for file in path.iterdir() if file.suffix != ".gguf" and file.is_file())
        return _hash(f"{file.relative_to(path)} {self._file(file)}" for file in sorted(files))

    def _file(self, path: Path) -> str:
        if path not in self._files:
            self._files[path] = _hash_of(path)
        return self._files[path]


def _code(package: Path) -> Iterator[Path]:
    yield from (file for file in package.rglob("*") if file.suffix in {".py", ".toml", ".txt"})


def _hash_of(path: Path) -> str:
    stat = path.stat()
    with path.open("rb") as file:
        if stat.st_size <= WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(f"{stat.st_size} {stat.st_mtime_ns}".encode())
        digest.update(file.read(EDGE))
        file.seek(-EDGE, os.SEEK_END)
        digest.update(file.read(EDGE))
    return digest.hexdigest()


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
