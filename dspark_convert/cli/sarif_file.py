"""--sarif: where the log of an inspection goes, whether it succeeds or fails."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dspark_convert.errors import DsparkError, EnvironmentFault, UsageError

if TYPE_CHECKING:
    from dspark_convert.inspection import Inspection

#: a log of ours begins so, and may be written over
BEGINNING = b'{\n  "$schema": "https://json.schemastore.org/sarif-2.1.0.json"'


class SarifFile:
    """Writes ``path`` (``-``: stdout) when its block ends: the findings, or why there are none. None writes nothing.

    Raises UsageError at once where it would destroy a file that is no log, EnvironmentFault if it cannot be written.
    """

    def __init__(self, path: Path | None, inspected: Path) -> None:
        self._path = path
        self._inspected = inspected
        self._document: dict[str, Any] = {}
        if path is None or str(path) == "-" or not path.exists():
            return
        if path.is_dir():
            raise UsageError(f"{path} is a directory; --sarif needs the name of a file.")
        if path.is_file() and not _is_log(path):
            raise UsageError(f"{path} exists and is no SARIF log of dspark-inspect; choose another name.")

    def holds(self, inspection: Inspection) -> None:
        if self._path is not None:
            from dspark_convert.sarif import of_inspection

            self._document = of_inspection(inspection)

    def __enter__(self) -> SarifFile:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._path is not None and isinstance(fault, DsparkError) and not isinstance(fault, UsageError):
            from dspark_convert.sarif import of_failure

            self._document = of_failure(self._inspected, str(fault), fault.findings)
        if self._path is None or not self._document:
            return
        from dspark_convert.cli.output import json_text, print_json

        if str(self._path) == "-":
            print_json(self._document)
            return

        try:
            self._path.write_text(json_text(self._document), "utf-8")
        except OSError as failure:
            raise EnvironmentFault(f"{self._path} cannot be written: {failure.strerror}.") from failure


def _is_log(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(len(BEGINNING))
    return start in (b"", BEGINNING)
