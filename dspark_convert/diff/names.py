"""One name for the same thing in files of different layouts: what a diff puts side by side.

The layouts that are read have mainline's tensor names, and key names that differ by the prefix alone. Of a
layout that is only recognised the names stay what they are.
"""

from __future__ import annotations

#: key prefix of a layout that is read; the rest of the name is the same in all of them
PREFIXES = {"dflash": "dflash.", "dspark": "dspark."}
#: in front of the common rest of such a name
COMMON = "*."
#: our own keys, which the prefix of the early layout is too
OWN = "dspark."

#: ends a name that a fork spells without its ".weight"
SINKS = ".attn_sinks"


def tensor_name(_dialect: str, name: str) -> str:
    """Mainline's name of the tensor that a file in ``dialect`` calls ``name``."""
    return f"{name}.weight" if name.endswith(SINKS) else name


def key_name(dialect: str, key: str, other: str) -> str:
    """What the key ``key`` of a file in ``dialect`` is called beside a file in ``other``.

    The same key in two files of one layout. Between two layouts the runtime's keys are ``*.NAME``, and
    so are our own, which in the early layout cannot be told from them.
    """
    if dialect == other or not {dialect, other} <= PREFIXES.keys():
        return key
    for prefix in (PREFIXES[dialect], OWN):
        if key.startswith(prefix):
            return COMMON + key.removeprefix(prefix)
    return key
