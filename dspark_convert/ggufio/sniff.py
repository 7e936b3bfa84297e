"""Say what a file is that was given in place of a GGUF, from its first bytes."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.ggufio.types import GGUF_MAGIC
from dspark_convert.source.hub_id import meant

#: enough for every signature below
HEAD_BYTES = 64

#: first bytes (lower case for text) -> what such a file is, and what to do
SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself; run git lfs pull"),
    (b"<!doctype", "is an HTML page (a failed download?); download the file again"),
    (b"<html", "is an HTML page (a failed download?); download the file again"),
    (b"<?xml", "is an XML page (a failed download?); download the file again"),
    (b"pk\x03\x04", "is a ZIP archive, as PyTorch's .pt and .bin files are; give a GGUF file"),
    (b"\x1f\x8b", "is compressed with gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first"),
    (b"\x80\x02", "is a Python pickle, as old PyTorch files are; give a GGUF file"),
    (b"tjgg", "is in a ggml format from before GGUF, which nothing reads any more; convert it anew"),
    (b"fmgg", "is in a ggml format from before GGUF, which nothing reads any more; convert it anew"),
    (b"lmgg", "is in a ggml format from before GGUF, which nothing reads any more; convert it anew"),
)


def describe_foreign(head: bytes) -> str | None:
    """What a file beginning with ``head`` is ("is a Git LFS pointer, …"), or None for a GGUF."""
    if head.startswith(GGUF_MAGIC):
        return None
    if not head:
        return "is empty (0 bytes); download or convert it again"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for signature, what in SIGNATURES:
        if text.startswith(signature):
            return what
    if head[8:9] == b"{":
        return "is a safetensors file, not a GGUF; give the checkpoint's directory, or a .gguf file"
    if text.startswith((b"{", b"[")):
        return "is JSON (a config, or the error message of a failed download), not a GGUF file"
    if not any(head):
        return "begins with zeros only: its download was not finished; download it again"
    shown = head[:4].hex(" ")
    return f"is no GGUF file: it must begin with the letters GGUF, and begins with the bytes {shown}"


def require_gguf(path: Path) -> int:
    """Check that ``path`` is a regular file that begins like a GGUF; returns its size in bytes.

    Raises UsageError if there is none, InputError naming what it is instead, EnvironmentFault if it
    may not be read.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            checkpoint = (path / "config.json").is_file()
            hint = "convert it with dspark-convert first" if checkpoint else "give a .gguf file"
            raise InputError(f"{path} is a directory; {hint}.")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is a device or pipe; give a regular .gguf file.")
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist{meant(path)}.") from None
    except OSError as fault:
        raise EnvironmentFault(f"{path} cannot be read: {fault.strerror}.") from fault
    except ValueError:
        raise InputError(f"{path} is no file name: it holds a NUL character.") from None
    foreign = describe_foreign(head)
    if foreign:
        raise InputError(f"{path} {foreign}.")
    return status.st_size


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file that ``require_gguf`` has seen; raises as it does."""
    try:
        with path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as fault:
        raise EnvironmentFault(f"{path} cannot be read: {fault.strerror}.") from fault
    except ValueError:  # of a file that was emptied since
        raise InputError(f"{path} {describe_foreign(b'')}.") from None
