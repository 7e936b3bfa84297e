"""A process that forks conversions and ends each at a moment that is told: ``python -m tests.writing.killing``.

An order is a line of JSON on stdin: {"out", "inputs", "split", "signal", and either "delay" (seconds
after the conversion begins) or "at" (which boundary of a call that changes a file: before the first one,
behind it, before the second one ...)}. The answer is the wait status on stdout. Forks share what is
imported, so that a conversion takes milliseconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.writing.writer import Hashing, Written, write
from tests.writing.writing import METADATA, jobs

CALLS = ("open", "ftruncate", "pwrite", "fsync", "rename", "replace", "link", "unlink", "close")


#: bytes of the tensor that has a part of its own in a split set
LARGE = 1 << 20


def made(inputs: Path) -> list[TensorJob]:
    """What is converted: a megabyte in two units, behind the small tensors of ``writing``."""
    return [*jobs(inputs), TensorJob("large", GGMLType.F32, (LARGE // 4,), (), "zeros")]


def convert(order: dict[str, Any], made: list[TensorJob]) -> Written:
    return write(
        Path(order["out"]),
        METADATA,
        made,
        force=True,
        threads=2,
        split_max_size=order["split"],
        hashing=Hashing(sidecar=True),
    )


def kill_at(moment: int) -> None:
    """Let this process kill itself at boundary number ``moment``."""
    left = moment

    def pass_boundary() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            pass_boundary()
            result = real(*args, **options)
            pass_boundary()
            return result

        return call

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))


def stop(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def child(order: dict[str, Any], begins: int) -> None:
    """Never returns."""
    code = 0
    signal.signal(signal.SIGTERM, stop)
    try:
        what = made(Path(order["inputs"]))
        os.write(begins, b"!")
        if order.get("at") is not None:
            kill_at(order["at"])
        convert(order, what)
    except SystemExit as end:
        code = int(str(end.code))
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    os._exit(code)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        began, begins = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(order, begins)
        os.close(begins)
        os.read(began, 1)
        os.close(began)
        ended = os.pidfd_open(pid)
        select.select([ended], [], [], order.get("delay"))
        os.kill(pid, order["signal"])  # of one that has ended it is of no effect before it is waited for
        os.close(ended)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
