"""BPE merges in llama.cpp's spelling: the two pieces with one space between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.tokenizer.files import TokenizerFiles
from dspark_convert.tokenizer.vocabulary import bpe_model
from dspark_convert.words import shown

#: a space inside a piece would read as the separator, so it is moved out of the way
_SPACE = chr(ord(" ") + 256)


def read_merges(files: TokenizerFiles, ids: Mapping[str, int]) -> list[str]:
    """The merges, best first; ``ids`` are the tokens that pieces and results have to be.

    Both spellings are read: "a b", and since 2024 ["a", "b"]. Raises InputError if there are
    none (llama.cpp loads no BPE without), if one is malformed, or if one needs a missing token.
    """
    from dspark_convert.tokenizer.known import all_known  # numpy, which inspecting a file does without

    path = files.tokenizer_path
    listed = bpe_model(files).get("merges")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{path} has no merges, without which llama.cpp loads no BPE tokenizer.")
    if isinstance(listed[0], str) and listed[0].startswith("#version"):
        listed = listed[1:]
    if set(map(type, listed)) == {str} and all_known(listed, list(ids)):  # a loop over 150,000 would take long
        return listed
    pairs = [entry.split(" ") if isinstance(entry, str) else entry for entry in listed]
    _check(pairs, listed, ids, path)
    merges = list(map(" ".join, pairs))
    # The one space between the pieces is the normal case.
    if "".join(merges).count(" ") != len(merges):
        merges = [" ".join(map(_moved, pair)) for pair in pairs]
    return merges


def _check(pairs: list[Any], listed: list[Any], ids: Mapping[str, int], path: Path) -> None:
    """Raises InputError for the first of ``pairs`` that is none, or needs a token that is not in ``ids``."""
    for index, pair in enumerate(pairs):
        if not _is_pair(pair):
            raise InputError(f"{path}: merge {index} is no pair of tokens: {shown(listed[index])}.")
        left, right = pair
        missing = next((piece for piece in (left, right, left + right) if piece not in ids), None)
        if missing is not None:
            raise InputError(
                f"{path}: merge {index} ({left!r} + {right!r}) needs the token {missing!r}, which is not in the"
                " vocabulary; the file is cut or edited, fetch it again."
            )


def _moved(piece: str) -> str:
    return piece.replace(" ", _SPACE)


def _is_pair(entry: Any) -> bool:
    return type(entry) is list and len(entry) == 2 and type(entry[0]) is type(entry[1]) is str
