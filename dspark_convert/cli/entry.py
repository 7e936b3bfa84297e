"""Where the installed commands start: nothing is imported before Ctrl-C is looked after.

The imports of a command take a good part of a second, in which an interrupt would end in a traceback.
"""

#: made between two looks for cycles
OBJECTS = 100_000


def _start(name: str) -> None:
    try:
        import gc
        from importlib import import_module

        # What a command makes mostly stays: to go through it for cycles at every 700 objects takes a tenth of its time.
        gc.set_threshold(OBJECTS)
        import_module(f"dspark_convert.cli.{name}").main()
    except KeyboardInterrupt:
        import sys

        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise


def _leave(code: int) -> None:
    """End without taking apart what the command has made, which would take as long as a tenth of its work."""
    import contextlib
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever reads it has gone, which was told
            stream.flush()
    os._exit(code)


def bench() -> None:
    _start("bench")


def check() -> None:
    _start("check")


def convert() -> None:
    _start("convert")


def inspect() -> None:
    _start("inspect")


def validate() -> None:
    _start("validate")
