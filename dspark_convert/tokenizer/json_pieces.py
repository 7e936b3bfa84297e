"""The pieces of a tokenizer.json in SentencePiece's manner, with the scores that its own file would have.

For a BPE the scores are not in the file, but the merges stand in their order: the piece that is
made first has the score 0, the next one -1, as SentencePiece numbers them. Single characters, which
nothing makes, come last.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.tokenizer.files import TokenizerFiles
from dspark_convert.tokenizer.merges import read_merges
from dspark_convert.tokenizer.metaspace import read_preparation
from dspark_convert.tokenizer.pieces import BYTE, PieceModel, Pieces
from dspark_convert.tokenizer.vocabulary import TokenType, bpe_vocabulary, highest_id


def read_bpe(files: TokenizerFiles, vocab_size: int) -> Pieces:
    """Those of a BPE; raises InputError as ``lay_out``, ``read_merges`` and ``read_preparation`` do."""
    ids = bpe_vocabulary(files)
    highest_id(ids, vocab_size, files.tokenizer_path)
    unknown = ids.get(str(files.model.get("unk_token")))
    types = _types(ids, unknown)
    listed = files.tokenizer.get("added_tokens")
    contents = [token.get("content") for token in listed if isinstance(token, dict)] if isinstance(listed, list) else ()
    added = {content for content in contents if isinstance(content, str)}
    merges = read_merges(files, ids)
    scores = _scores(ids, types, merges, added)
    roles = {} if unknown is None else {"unk": unknown}
    return Pieces(PieceModel.BPE, ids, scores, types, read_preparation(files), roles, merges)


def read_unigram(files: TokenizerFiles) -> Pieces:
    """Those of a Unigram model, whose file has the scores; raises InputError for a malformed list."""
    path = files.tokenizer_path
    listed = files.model.get("vocab")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{path} has no vocabulary (model.vocab of a Unigram should list tokens with their scores).")
    ids: dict[str, int] = {}
    scores: list[float] = []
    for entry in listed:
        text, score = _scored(entry)
        if text is None or score is None:
            raise InputError(f"{path}: token {len(scores)} is no pair of a text and a score.")
        if ids.setdefault(text, len(scores)) != len(scores):
            raise InputError(f"{path} has the token {text!r} twice, as {ids[text]} and {len(scores)}.")
        scores.append(score)
    unknown = files.model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(scores):
        unknown = None
    roles = {} if unknown is None else {"unk": unknown}
    return Pieces(PieceModel.UNIGRAM, ids, scores, _types(ids, unknown), read_preparation(files), roles)


def _scored(entry: Any) -> tuple[str | None, float | None]:
    if not isinstance(entry, list) or len(entry) != 2:
        return None, None
    text, score = entry
    fits = type(score) in (int, float) and math.isfinite(score)
    return (text if isinstance(text, str) else None), (float(score) if fits else None)


def _types(ids: dict[str, int], unknown: int | None) -> list[TokenType]:
    types = [TokenType.NORMAL] * (max(ids.values()) + 1)
    for text, token_id in ids.items():
        if text.startswith("<0x") and BYTE.fullmatch(text):
            types[token_id] = TokenType.BYTE
    if unknown is not None:
        types[unknown] = TokenType.UNKNOWN
    return types


def _scores(
    ids: dict[str, int], types: Sequence[TokenType], merges: Sequence[str], added: Collection[str]
) -> list[float]:
    """Scores by id. Added tokens, which are found before any piece, are not counted."""
    made = dict.fromkeys(merge.replace(" ", "", 1) for merge in merges)
    rest = (text for text in ids if text not in made)
    scores = [0.0] * len(types)
    count = 0
    for text in (*made, *rest):
        if text not in added and types[ids[text]] is TokenType.NORMAL:
            scores[ids[text]] = -float(count)
            count += 1
    return scores
