"""Where the native libraries of llama.cpp lie on this machine; nothing is loaded here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

#: environment variable that names a library file or the directory that holds it
LIBRARY_VARIABLE = "DSPARK_LLAMA_LIB"

#: how Python wrappers call the one library that they build
WRAPPER_NAMES = ("xllamacpp*.so", "xllamacpp*.pyd")

#: where a build or an installation keeps its libraries, below the directory that a user names
SUBDIRECTORIES = (".", "lib", "bin", "build/bin", "lib64")


def library_in(directory: Path, names: Iterable[str]) -> Path | None:
    """The first file in ``directory`` that matches one of ``names``, in their order."""
    for name in names:
        for path in sorted(directory.glob(name)):
            if path.is_file():
                return path
    return None


def package_directories(package: str) -> Iterator[Path]:
    """Where an installed package lies; a package that is not installed lies nowhere."""
    spec = importlib.util.find_spec(package)
    if spec is not None:
        yield from map(Path, spec.submodule_search_locations or ())
