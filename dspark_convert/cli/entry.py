"""Where the installed commands start: nothing is imported before Ctrl-C is looked after.

The imports of a command take a good part of a second, in which an interrupt would end in a traceback.
"""


def _start(name: str) -> None:
    try:
        from importlib import import_module

        import_module(f"dspark_convert.cli.{name}").main()
    except KeyboardInterrupt:
        import sys

        print("interrupted", file=sys.stderr)
        sys.exit(130)


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
