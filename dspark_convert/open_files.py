"""How many files this process may have open at the same time: a split set needs one for each part."""

from __future__ import annotations

from contextlib import suppress

from dspark_convert.errors import EnvironmentFault

#: beside the parts: sources, libraries, standard streams, and what Python itself opens
SPARE_FILES = 32


def require_open_files(what: str, count: int, fix: str) -> None:
    """Make sure that ``count`` more files can be open, raising the soft limit if it is lower.

    Raises EnvironmentFault, which says ``what`` needs them and how to ``fix`` it, if the hard limit is lower too.
    """
    import resource

    needed = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or needed <= hard:
        with suppress(OSError, ValueError):  # a system may have a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
    most = soft if hard == resource.RLIM_INFINITY else hard
    raise EnvironmentFault(
        f"{what} needs {count} files to be open at the same time, and a process may open {most} here; {fix}, "
        f"or raise the limit to {needed} (ulimit -n)."
    )
