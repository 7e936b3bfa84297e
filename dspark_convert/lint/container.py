"""Rules over the file as such: byte order, version, splits, its type, its name."""

from __future__ import annotations

from collections.abc import Iterator, Set

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import FILE_TYPES, GGMLType
from dspark_convert.lint.fixes import REWRITE

#: types whose ``general.file_type`` says that some matrix has them; k-quants fall back to others where rows do
#: not fit, so their numbers promise nothing
PROMISED = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "NVFP4")
TYPE_OF_FILE = {FILE_TYPES[GGMLType[name]]: GGMLType[name] for name in PROMISED}


def check_byte_order(file: GGUFFile) -> Iterator[Finding]:
    """True of the file whatever it means."""
    if file.byte_order == "big":
        message = "the file is big-endian: it needs a byte swap to run on this machine, where llama.cpp refuses it."
        yield error("big-endian", file.path.name, message, "swap its bytes or convert again")


def check_container(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    if file.version < 3:
        yield info("gguf-version", file.path.name, f"the file is GGUF version {file.version}; 3 is current.")
    yield from _file_type(file)
    prefix = "dspark-" if draft.kind == "dspark" else "dflash-"
    if not file.path.name.startswith(prefix):
        message = f"llama.cpp finds a draft beside its target only if its name begins with {prefix}."
        yield info("file-name", file.path.name, message, "rename it, or name it to llama.cpp with --spec-draft-model")


def misnamed(number: object, held: Set[GGMLType | int]) -> GGMLType | None:
    """The type that ``general.file_type`` promises of matrices of the types ``held``, if it is not kept."""
    stated = TYPE_OF_FILE.get(number) if type(number) is int else None
    kept = held == {stated} if stated is GGMLType.F32 else stated in held
    return None if not held or kept else stated


def _file_type(file: GGUFFile) -> Iterator[Finding]:
    """What tools show as the file's type; llama.cpp itself goes by each tensor's own."""
    number = file.metadata.get("general.file_type")
    held = {tensor.type for tensor in file.tensors if len(tensor.shape) > 1 and tensor.shape[1] > 1}
    stated = misnamed(number, held)
    if stated is None:
        return
    names = sorted({tensor.type_name for tensor in file.tensors if tensor.type in held})
    message = f"the file says {number} ({stated.name}), but its matrices are {', '.join(names)}."
    yield warning("file-type", "general.file_type", message, REWRITE)
