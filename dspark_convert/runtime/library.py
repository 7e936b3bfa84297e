"""Find a llama.cpp library on this machine, without loading anything."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.errors import EnvironmentFault, UsageError
from dspark_convert.native import LIBRARY_VARIABLE, SUBDIRECTORIES, WRAPPER_NAMES, library_in, package_directories

#: what the library is called, by system
_LINUX_NAMES = ("libllama.so", "libllama.so.*", "libllama.v*.so")  # the last as node-llama-cpp names it
_FILE_NAMES = {"darwin": ("libllama.dylib",), "win32": ("llama.dll",)}.get(sys.platform, _LINUX_NAMES)

_SYSTEM_DIRECTORIES = (
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/opt/homebrew/lib",
    "/opt/llama.cpp/lib",
)


@dataclass(frozen=True)
class Library:
    """A library file and how it was found ("--lib", "xllamacpp 2026.10.11549", …)."""

    path: Path
    source: str


def find_library(explicit: Path | None = None) -> Library:
    """The library to use: ``explicit`` (--lib), else the environment variable, else what is installed.

    Raises UsageError if ``explicit`` names nothing, EnvironmentFault if the variable does or there
    is no library; the message lists every place that was looked at.
    """
    if explicit is not None:
        return _named(explicit, "--lib")
    if value := os.environ.get(LIBRARY_VARIABLE):
        return _named(Path(value), LIBRARY_VARIABLE)
    looked = [f"${LIBRARY_VARIABLE} (not set)"]
    for package, distribution, directories in (
        ("xllamacpp", "xllamacpp", (".",)),
        ("llama_cpp", "llama-cpp-python", ("lib", ".")),
    ):
        for directory in package_directories(package):
            for subdirectory in directories:
                if path := _library_in(directory / subdirectory):
                    return Library(path, f"{distribution} {_version(distribution)}")
        looked.append(f"the Python package {distribution}")
    if path := _system_library():
        return Library(path, "system")
    looked.append("the system's library directories")
    raise EnvironmentFault(
        f"no llama.cpp library was found; looked at {', '.join(looked)};"
        " install one with: pip install 'dspark-convert[validate]', or name your own build with --lib."
    )


def _named(path: Path, source: str) -> Library:
    """The library that a user named: a file, or a directory of a build or an installation."""
    fault = EnvironmentFault if source == LIBRARY_VARIABLE else UsageError
    if path.is_file():
        return Library(path.resolve(), source)
    if path.is_dir():
        for subdirectory in SUBDIRECTORIES:
            if found := _library_in(path / subdirectory):
                return Library(found, source)
        names = ", ".join((*_FILE_NAMES, *WRAPPER_NAMES))
        raise fault(
            f"{source}: the directory {path} holds no llama.cpp library ({names}), neither itself nor in"
            f" {', '.join(SUBDIRECTORIES[1:])}; name the library file."
        )
    raise fault(f"{source}: there is no file or directory {path}.")


def _library_in(directory: Path) -> Path | None:
    found = library_in(directory, (*_FILE_NAMES, *WRAPPER_NAMES))
    return found.resolve() if found else None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(version unknown)"


def _system_library() -> Path | None:
    for directory in _SYSTEM_DIRECTORIES:
        if path := _library_in(Path(directory)):
            return path
    # The dynamic linker may know more places; it gives a bare name that it can load itself.
    name = ctypes.util.find_library("llama")
    return Path(name) if name else None
