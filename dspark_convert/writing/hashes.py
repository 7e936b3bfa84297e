"""SHA-256 of a file beside it: ``NAME.sha256``, as ``sha256sum`` writes it and ``sha256sum -c`` checks it.

Behind the file's own line there may be a comment line for each tensor, which sha256sum passes over:

    4a5b…  draft.gguf
    # tensor 90e1…  blk.0.attn_q.weight
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.findings import Finding, error
from dspark_convert.words import listed

#: of a sidecar; that of a draft with 3,000 tensors has 400 KB
MAX_BYTES = 64 << 20
#: tensors that a message names
TOLD_NAMES = 5
_READ_BYTES = 1 << 20

_LINE = re.compile(rb"(\\?)([0-9a-fA-F]{64}) [ *](.+)")
_TENSOR_LINE = re.compile(rb"# tensor (\\?)([0-9a-f]{64})  (.+)")
_ESCAPES = ((b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"))


@dataclass(frozen=True)
class Recorded:
    """What a sidecar says: the file's hash and those of its tensors, in hexadecimal."""

    sha256: str
    tensors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """``found`` is the hash of the bytes of ``path``; ``different`` the tensors that are not as recorded."""

    path: Path
    expected: str
    found: str
    different: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        return self.found == self.expected

    @property
    def finding(self) -> Finding:
        """What is told where they do not match."""
        message = f"{self.path}: the SHA-256 is {self.found}, expected {self.expected}."
        if self.different:
            message += f" {len(self.different)} tensors are not as recorded: {listed(self.different, TOLD_NAMES)}."
        return error("hash-mismatch", str(self.path), message, "download or convert the file again")

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "sha256": self.found,
            "expected": self.expected,
            "matches": self.matches,
            "different_tensors": list(self.different),
        }


def sidecar_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def encode_sidecar(path: Path, sha256: str, tensors: Mapping[str, str]) -> bytes:
    """The sidecar of ``path``."""
    lines = [_line(os.fsencode(path.name), sha256)]
    lines += [b"# tensor " + _line(os.fsencode(name), digest) for name, digest in tensors.items()]
    return b"".join(lines)


def _line(name: bytes, sha256: str) -> bytes:
    escaped = name
    for plain, code in _ESCAPES:
        escaped = escaped.replace(plain, code)
    return (b"\\" if escaped != name else b"") + sha256.encode() + b"  " + escaped + b"\n"


def _unescaped(mark: bytes, name: bytes) -> bytes:
    codes = {b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r"}
    return re.sub(rb"\\[\\nr]", lambda code: codes[code[0]], name) if mark else name


def read_sidecar(path: Path) -> Recorded:
    """The hashes recorded beside the file ``path``.

    Raises InputError if there are none or none for that name, EnvironmentFault if they cannot be read.
    """
    sidecar = sidecar_of(path)
    try:
        with sidecar.open("rb") as stream:
            data = stream.read(MAX_BYTES)
    except FileNotFoundError:
        raise InputError(
            f"there is no {sidecar} to compare {path} with; give the hash that it should have with --sha256."
        ) from None
    except OSError as fault:
        raise EnvironmentFault(f"{sidecar} cannot be read: {fault.strerror}.") from fault
    name = os.fsencode(path.name)
    digest = None
    tensors = {}
    for line in data.split(b"\n"):
        line = line.removesuffix(b"\r")
        if match := _TENSOR_LINE.fullmatch(line):
            tensors[os.fsdecode(_unescaped(match[1], match[3]))] = match[2].decode()
        elif (match := _LINE.fullmatch(line)) and _unescaped(match[1], match[3]) == name:
            digest = match[2].decode().lower()
    if digest is None:
        raise InputError(
            f"{sidecar} holds no SHA-256 for {path.name}; a line of 64 hexadecimal digits and the name is expected."
        )
    return Recorded(digest, tensors)


def parse_hash(text: str) -> str:
    """A SHA-256 that a user gives, in lower case; UsageError if it is none."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise UsageError(f"--sha256 {text} is no SHA-256; give 64 hexadecimal digits.")
    return text.lower()


def verify(path: Path, expected: str | None = None, advance: Callable[[int], None] = lambda _bytes: None) -> Verdict:
    """Read all of ``path`` and compare it with ``expected``, or with its sidecar.

    ``advance`` is told the bytes. Raises InputError if nothing is there to compare with, UsageError if
    there is no file, EnvironmentFault if it cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    recorded = read_sidecar(path) if expected is None else Recorded(expected)
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
                advance(len(block))
    except OSError as fault:
        raise EnvironmentFault(f"{path} cannot be read: {fault.strerror}.") from fault
    found = digest.hexdigest()
    different = _different(path, recorded.tensors) if found != recorded.sha256 else ()
    return Verdict(path, recorded.sha256, found, different)


def _different(path: Path, tensors: Mapping[str, str]) -> tuple[str, ...]:
    """The tensors whose bytes are not as recorded, if the file can be read as a GGUF at all."""
    from dspark_convert.ggufio.reader import GGUFFile

    names = []
    try:
        with GGUFFile(path) as file:
            for name, sha256 in tensors.items():
                tensor = file.tensor(name)
                if tensor is None or hashlib.sha256(file.data(tensor)).hexdigest() != sha256:
                    names.append(name)
    except InputError:
        return tuple(names)
    return tuple(names)
