"""What a run in llama.cpp is doing, told while it does it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dspark_convert.cli.output import Output


@contextmanager
def phases(out: Output) -> Iterator[Callable[[str], None]]:
    """Shows what the run is doing, on a terminal only; yields the function to tell it to."""
    if out.quiet or not sys.stderr.isatty():
        yield lambda _phase: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
