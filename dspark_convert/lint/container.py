"""Rules over the file as such: byte order, version, splits, its name."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info
from dspark_convert.ggufio.reader import GGUFFile


def check_container(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    if file.byte_order == "big":
        message = "the file is big-endian; llama.cpp on this kind of machine does not load it"
        yield error("big-endian", file.path.name, message, "swap its bytes or convert again")
    if file.version < 3:
        yield info("gguf-version", file.path.name, f"the file is GGUF version {file.version}; 3 is current")
    count = file.metadata.get("split.count")
    if isinstance(count, int) and count > 1:
        message = f"this is one of {count} parts of a split file, and its other tensors are not seen here"
        yield error("split-file", "split.count", message, "merge the parts with llama-gguf-split --merge")
    prefix = "dspark-" if draft.kind == "dspark" else "dflash-"
    if not file.path.name.startswith(prefix):
        message = f"llama.cpp finds a draft beside its target only if its name begins with {prefix}"
        yield info("file-name", file.path.name, message, "rename it, or name it to llama.cpp with --spec-draft-model")
