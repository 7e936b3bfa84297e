"""Opens the other parts of a split set beside its first one, and judges whether they make a whole.

What llama.cpp refuses in such a set is a finding of rule ``split-file``, so that what the first part says
(all metadata) can be used without the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.split import COUNT_KEY, NUMBER_KEY, TENSORS_KEY, first_of, set_of
from dspark_convert.ggufio.types import ValueType
from dspark_convert.open_files import require_open_files
from dspark_convert.words import listed

if TYPE_CHECKING:
    from dspark_convert.ggufio.reader import GGUFFile

RULE = "split-file"

#: names of missing parts that are told
TOLD_NAMES = 3


def find_parts(file: GGUFFile, sizes: Mapping[str, int] | None = None) -> tuple[list[GGUFFile], list[Finding]]:
    """The parts behind the first one, open, and what is wrong with the set; both empty for a whole file.

    ``sizes`` as in ``open_gguf``.
    Raises InputError if ``file`` is not the first part, or another one cannot be read; EnvironmentFault if not all
    can be open at the same time.
    """
    from dspark_convert.ggufio.reader import GGUFFile

    count, number = file.metadata.get(COUNT_KEY), file.metadata.get(NUMBER_KEY)
    if not isinstance(count, int) or count < 2:
        return [], []
    if number:
        first = first_of(file.path)
        name = f", {first.name}" if first else ""
        raise InputError(f"{file.path} is one of {count} parts of a split file, but not the first; give that{name}.")
    found = [*_wrong_types(file)]
    paths = set_of(file.path, count)
    if paths is None:
        message = f"llama.cpp finds the other parts by the name, which has to end with -00001-of-{count:05d}.gguf."
        return [], [*found, error(RULE, COUNT_KEY, message, "give all parts their names")]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        message = f"{len(missing)} of its {count} parts are missing: {listed(missing, TOLD_NAMES)}."
        found.append(error(RULE, COUNT_KEY, message, "put all parts into one directory"))
    require_open_files(str(file.path), count - len(missing), "merge its parts (llama-gguf-split --merge)")
    absent = set(missing)  # of up to 65,534 parts
    parts: list[GGUFFile] = []
    try:
        for index, path in enumerate(paths[1:], 1):
            if path.name not in absent:
                parts.append(GGUFFile(path, (sizes or {}).get(path.name)))
                found += [*parts[-1].findings, *_misplaced(file, parts[-1], index, count)]
    except BaseException:
        for part in parts:
            part.close()
        raise
    found += _wrong_tensors(file, parts, complete=not missing)
    return parts, found


def _wrong_types(file: GGUFFile) -> Iterator[Finding]:
    for key, kind in ((NUMBER_KEY, ValueType.UINT16), (COUNT_KEY, ValueType.UINT16), (TENSORS_KEY, ValueType.INT32)):
        entry = file.metadata.entries.get(key)
        if entry is None or entry.type is not kind:
            is_what = f"is {entry.type.name}" if entry else "is missing"
            yield error(RULE, key, f"{key} {is_what}; llama.cpp needs {kind.name}.", "split the file again")


def _misplaced(first: GGUFFile, part: GGUFFile, index: int, count: int) -> Iterator[Finding]:
    name = part.path.name
    stated = part.metadata.get(NUMBER_KEY), part.metadata.get(COUNT_KEY)
    if stated != (index, count):
        message = f"{name} says that it is number {stated[0]} of {stated[1]}, expected {index} of {count} (from 0)."
        yield error(RULE, name, message, "the files are of different sets, or were renamed: get them again")
    if part.byte_order != first.byte_order:
        yield error(RULE, name, f"{name} is {part.byte_order}-endian, the first part {first.byte_order}-endian.")


def _wrong_tensors(first: GGUFFile, parts: list[GGUFFile], *, complete: bool) -> Iterator[Finding]:
    holder: dict[str, str] = {tensor.name: first.path.name for tensor in first.tensors}
    for part in parts:
        for tensor in part.tensors:
            before = holder.setdefault(tensor.name, part.path.name)
            if before != part.path.name:
                message = f"{before} and {part.path.name} both hold a tensor of this name."
                yield error("tensor-duplicate", tensor.name, message)
    stated = first.metadata.get(TENSORS_KEY)
    if complete and isinstance(stated, int) and stated != len(holder):
        message = f"the set should have {stated} tensors, and its parts hold {len(holder)}."
        yield error(RULE, TENSORS_KEY, message, "the files are of different sets: get them again")
