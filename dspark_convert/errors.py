"""The exceptions of this package and the exit code that each one means.

    DsparkError                  never raised itself
    ├── UsageError         2     the command line asks for something that makes no sense
    ├── InputError         3     a checkpoint, GGUF or tokenizer is bad (may carry findings)
    └── EnvironmentFault   4     no runtime library, disk full, no permission, network, a family's table with a slip

Exit code 1 is no exception: the command ran and found something wrong.
A message is one sentence, in lower case and with a full stop: what is wrong, where, what was expected and
found, what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dspark_convert.findings import Finding


class DsparkError(Exception):
    """Base of all errors that a user can cause; ``exit_code`` is what the command ends with."""

    exit_code = 3

    def __init__(self, message: str, *, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class UsageError(DsparkError):
    exit_code = 2


class InputError(DsparkError):
    exit_code = 3


class EnvironmentFault(DsparkError):
    exit_code = 4


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever keeps the lines within from writing ``path`` is the environment's fault."""
    try:
        yield
    except OSError as fault:
        raise EnvironmentFault(f"{path} cannot be written: {fault.strerror or fault}.") from fault
