"""Ask ggml's own reader of GGUF headers, in a process that may die: ``Ggml`` there, ``serve`` here.

Needs libggml-python. Each file is sent whole, so that nothing has to be on disk.
"""

from __future__ import annotations

import ctypes
import resource
import struct
import subprocess
import sys
from types import TracebackType
from typing import Self

#: memory of the process; a file that makes ggml ask for more makes it fail
MEMORY = 2 << 30
REFUSED, ACCEPTED, READY = b"r", b"a", b"!"


class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


def serve() -> None:
    """Answer on stdout, a letter each, whether ggml takes the files that come on stdin."""
    from dspark_convert.tensors.ggml_quants import find_library

    library = ctypes.CDLL(str(find_library()))
    library.gguf_init_from_buffer.argtypes = [ctypes.c_char_p, ctypes.c_size_t, Params]
    library.gguf_init_from_buffer.restype = ctypes.c_void_p
    library.gguf_free.argtypes = [ctypes.c_void_p]
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    library.ggml_log_set(silent, None)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(READY)
    sink.flush()
    while head := source.read(8):
        data = source.read(struct.unpack("<Q", head)[0])
        context = library.gguf_init_from_buffer(data, len(data), Params(True, None))
        if context:
            library.gguf_free(context)
        sink.write(ACCEPTED if context else REFUSED)
        sink.flush()


class Ggml:
    """ggml's verdict on files, one after another; ``deaths`` counts those that killed its process."""

    def __init__(self) -> None:
        self.deaths = 0
        self._start()

    def _start(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.deaths else None,
        )
        assert self._child.stdout is not None
        if self._child.stdout.read(1) != READY:
            raise RuntimeError("no ggml library with gguf_init_from_buffer was found.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()

    def accepts(self, data: bytes) -> bool | None:
        """Whether ggml takes ``data`` for a GGUF; None if its process died over it."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(struct.pack("<Q", len(data)) + data)
            self._child.stdin.flush()
            answer = self._child.stdout.read(1)
        except BrokenPipeError:
            answer = b""
        if answer:
            return answer == ACCEPTED
        self._child.wait()
        self.deaths += 1
        self._start()
        return None


if __name__ == "__main__":
    serve()
