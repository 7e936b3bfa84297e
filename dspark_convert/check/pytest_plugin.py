"""A pytest fixture: the checks of a CHECKS.toml as a test. Found by pytest wherever this package is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dspark_convert.check.results import Result

Checker = Callable[..., "Sequence[Result]"]


@pytest.fixture
def dspark_check() -> Checker:
    """``dspark_check(path)`` makes the checks in a file, all of them or those that are named behind it.

    The test fails with the reasons if one does not pass; the results are returned. Raises UsageError for a name that no
    check has, else as ``read_checks`` does.
    """

    def check(path: str | os.PathLike[str], *names: str) -> Sequence[Result]:
        from dspark_convert.check.cache import Cache, cache_directory
        from dspark_convert.check.reading import read_checks
        from dspark_convert.check.schedule import SHARE, default_jobs, free_memory, run_cases
        from dspark_convert.errors import UsageError

        checks = read_checks(Path(path))
        unknown = sorted(set(names) - {one.name for one in checks})
        if unknown:
            raise UsageError(f"{unknown[0]} names none of the checks in {path}.")
        cases = [case for one in checks if not names or one.name in names for case in one.cases]
        results = run_cases(
            cases, jobs=default_jobs(), memory=int(SHARE * free_memory()), cache=Cache(cache_directory())
        )
        wrong = [result for result in results if result.status != "pass"]
        if wrong:
            told = [f"{result.name} {result.outtype}: {reason}" for result in wrong for reason in result.reasons]
            pytest.fail("\n".join(told), pytrace=False)
        return results

    return check
