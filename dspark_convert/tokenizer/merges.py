"""BPE merges in llama.cpp's spelling: the two pieces with one space between them."""

from __future__ import annotations

from collections.abc import Mapping
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
    path = files.tokenizer_path
    listed = bpe_model(files).get("merges")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{path} has no merges, without which llama.cpp loads no BPE tokenizer.")
    if isinstance(listed[0], str) and listed[0].startswith("#version"):
        listed = listed[1:]
    merges = []
    for index, entry in enumerate(listed):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        if not _is_pair(pair):
            raise InputError(f"{path}: merge {index} is no pair of tokens: {shown(entry)}.")
        left, right = pair
        if left not in ids or right not in ids or left + right not in ids:
            missing = next(piece for piece in (left, right, left + right) if piece not in ids)
            raise InputError(
                f"{path}: merge {index} ({left!r} + {right!r}) needs the token {missing!r}, which is not in the"
                " vocabulary; the file is cut or edited, fetch it again."
            )
        merge = f"{left} {right}"
        # The one space between the pieces is the normal case.
        merges.append(merge if merge.count(" ") == 1 else f"{_moved(left)} {_moved(right)}")
    return merges


def _moved(piece: str) -> str:
    return piece.replace(" ", _SPACE)


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], str)
