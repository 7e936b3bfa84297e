"""Reads SentencePiece's own file, tokenizer.model: a protobuf message ``ModelProto``.

Field numbers and defaults are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from dspark_convert.errors import InputError
from dspark_convert.source.jsonfile import read_bytes
from dspark_convert.tokenizer.files import TAKE_GGUF
from dspark_convert.tokenizer.pieces import PieceModel, Pieces, Preparation
from dspark_convert.tokenizer.protobuf import BYTES, FIXED32, NotProtobuf, fields
from dspark_convert.tokenizer.vocabulary import TokenType

#: published files have up to 5 MB
MAX_BYTES = 16 * 2**20

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _SUFFIX = 3, 24
_CHARSMAP, _DUMMY_PREFIX, _EXTRA_WHITESPACES, _ESCAPE = 2, 3, 4, 5
_MODELS = {1: PieceModel.UNIGRAM, 2: PieceModel.BPE}
_OTHER_MODELS = {3: "whole words", 4: "single characters"}

#: protobuf writes -1, which says that there is none, as a number of 64 bits
_NONE = (1 << 64) - 1
#: role -> its field, and its id if the field is left out
_ROLES = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, _NONE)}


def read_model(path: Path) -> Pieces:
    """The pieces in the file ``path``; raises InputError if it is none, damaged, or of another kind."""
    data = memoryview(read_bytes(path, limit=MAX_BYTES, kind="SentencePiece"))
    try:
        return _read(data, path)
    except NotProtobuf as e:
        raise InputError(
            f"{path} is no SentencePiece model, or is cut ({e}); fetch it again, or {TAKE_GGUF}."
        ) from None


def _read(data: memoryview, path: Path) -> Pieces:
    ids: dict[str, int] = {}
    scores: list[float] = []
    types: list[TokenType] = []
    trainer: dict[int, int] = {}
    normalizer: dict[int, int] = {}
    charsmap = b""
    for number, content in _messages(data):
        if number == _PIECES:
            text, score, kind = _piece(content, path, len(scores))
            if ids.setdefault(text, len(scores)) != len(scores):
                raise InputError(f"{path} has the piece {text!r} twice, as {ids[text]} and {len(scores)}.")
            scores.append(score)
            types.append(kind)
        elif number == _TRAINER:
            trainer |= _numbers(content)
        elif number == _NORMALIZER:
            normalizer |= _numbers(content)
            charsmap = next((bytes(part) for n, part in _messages(content) if n == _CHARSMAP), charsmap)
    if not ids:
        raise NotProtobuf("it holds no pieces")
    if not trainer:
        raise NotProtobuf("the part behind the pieces is missing")
    cut = trainer.get(_MODEL_TYPE, 1)
    if cut not in _MODELS:
        what = _OTHER_MODELS.get(cut, f"kind {cut}")
        raise InputError(f"{path} is a SentencePiece model of {what}, which llama.cpp does not know; {TAKE_GGUF}.")
    if not normalizer.get(_ESCAPE, 1):
        raise InputError(f"{path} does not write spaces as U+2581, as llama.cpp's SentencePiece does; {TAKE_GGUF}.")
    return Pieces(
        _MODELS[cut],
        ids,
        scores,
        types,
        Preparation(
            space_prefix=bool(normalizer.get(_DUMMY_PREFIX, 1)),
            merge_spaces=bool(normalizer.get(_EXTRA_WHITESPACES, 1)),
            charsmap=charsmap,
            others=("a space behind the text",) if trainer.get(_SUFFIX) else (),
        ),
        {
            role: role_id
            for role, (number, default) in _ROLES.items()
            if (role_id := trainer.get(number, default)) < len(types)
        },
    )


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    for number, wire, value in fields(data):
        if wire == BYTES and isinstance(value, memoryview):
            yield number, value


def _numbers(data: memoryview) -> dict[int, int]:
    return {number: value for number, _, value in fields(data) if isinstance(value, int)}


def _piece(data: memoryview, path: Path, index: int) -> tuple[str, float, TokenType]:
    text, score, kind = "", 0.0, int(TokenType.NORMAL)
    for number, wire, value in fields(data):
        if isinstance(value, int):
            kind = value if number == _TYPE else kind
        elif (number, wire) == (_TEXT, BYTES):
            text = _decoded(value, path, index)
        elif (number, wire) == (_SCORE, FIXED32):
            (score,) = struct.unpack("<f", value)
    if kind not in set(TokenType) or not math.isfinite(score):
        raise InputError(f"{path}: piece {index} ({text!r}) has the kind {kind} and the score {score}; fetch it again.")
    return text, score, TokenType(kind)


def _decoded(data: memoryview, path: Path, index: int) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: piece {index} is not UTF-8 text; fetch it again.") from None
