"""``dspark-inspect`` run inside this process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Ended

Inspect = Callable[..., Ended]


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Iterator[Inspect]:
    """``dspark-inspect ARGS`` as the console script runs it."""
    from dspark_convert.cli.inspect import inspect as command
    from dspark_convert.cli.runner import run

    handlers = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGHUP)}

    def call(*args: str | Path) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            run(command, "dspark-inspect", [str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, out, err)

    yield call
    for name, handler in handlers.items():
        signal.signal(name, handler)
