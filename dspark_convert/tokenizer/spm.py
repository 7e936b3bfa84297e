"""Key/values of a vocabulary in SentencePiece's manner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dspark_convert.findings import Finding, warning
from dspark_convert.ggufio.types import KV, ValueType, array, boolean, string
from dspark_convert.tokenizer.files import TokenizerFiles
from dspark_convert.tokenizer.pieces import SPACE, PieceModel, Pieces
from dspark_convert.tokenizer.vocabulary import TokenType, Vocabulary, lay_out

#: scores of llama.cpp's converter for what is no piece
ADDED_SCORE = -1000.0
PADDING_SCORE = -10000.0

#: of Gemma 4, special in its files: llama.cpp's converter keeps them visible, so that chats can be read
_VISIBLE = frozenset(
    ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>')
)


def read_pieces_vocabulary(files: TokenizerFiles, pieces: Pieces, vocab_size: int) -> Vocabulary:
    """The ``vocab_size`` tokens of a target; raises InputError as ``lay_out`` does."""
    kinds = {i: kind for i, kind in enumerate(pieces.types) if kind is not TokenType.NORMAL}
    vocabulary = lay_out(files, pieces.ids, kinds, vocab_size, str)
    findings = (*vocabulary.findings, *_judge(files, pieces, vocabulary))
    return replace(vocabulary, findings=findings)


def piece_kvs(pieces: Pieces, vocabulary: Vocabulary) -> list[KV]:
    """For ``llama`` and ``t5``, without special tokens."""
    size = len(vocabulary.texts)
    scores = [*pieces.scores[:size], *[PADDING_SCORE] * (size - len(pieces.scores))]
    for i, kind in enumerate(vocabulary.types):
        if i in vocabulary.added:
            scores[i] = ADDED_SCORE
        elif kind == TokenType.UNUSED and i >= len(pieces.scores):
            scores[i] = PADDING_SCORE
    return [
        string("tokenizer.ggml.model", pieces.model.value),
        string("tokenizer.ggml.pre", "default"),
        array("tokenizer.ggml.tokens", ValueType.STRING, vocabulary.texts),
        array("tokenizer.ggml.scores", ValueType.FLOAT32, scores),
        array("tokenizer.ggml.token_type", ValueType.INT32, vocabulary.types),
    ]


def preparation_kvs(files: TokenizerFiles, pieces: Pieces) -> list[KV]:
    """What llama.cpp does to a text first; tokenizer_config.json has the last word on the space before it."""
    stated = files.settings.get("add_prefix_space")
    prefix = stated if isinstance(stated, bool) else pieces.preparation.space_prefix
    kvs = [boolean("tokenizer.ggml.add_space_prefix", prefix)]
    if pieces.model is PieceModel.UNIGRAM:
        kvs.append(boolean("tokenizer.ggml.remove_extra_whitespaces", pieces.preparation.merge_spaces))
        if pieces.preparation.charsmap:
            charsmap = list(pieces.preparation.charsmap)
            kvs.append(array("tokenizer.ggml.precompiled_charsmap", ValueType.UINT8, charsmap))
    return kvs


def gemma4_kvs(pieces: Pieces, vocabulary: Vocabulary) -> list[KV]:
    """For Gemma 4, whose pieces llama.cpp joins by merges, as the tokenizers library does."""
    types = list(vocabulary.types)
    texts = list(vocabulary.texts)
    for text, i in vocabulary.ids.items():
        if text in _VISIBLE:
            types[i] = int(TokenType.USER_DEFINED)
        elif SPACE in text and types[i] == TokenType.USER_DEFINED:
            # Runs of spaces: the merges make them, and look them up by this spelling.
            texts[i], types[i] = text, int(TokenType.NORMAL)
    return [
        string("tokenizer.ggml.model", "gemma4"),
        array("tokenizer.ggml.tokens", ValueType.STRING, texts),
        array("tokenizer.ggml.scores", ValueType.FLOAT32, [ADDED_SCORE] * len(texts)),
        array("tokenizer.ggml.token_type", ValueType.INT32, types),
        array("tokenizer.ggml.merges", ValueType.STRING, list(pieces.merges)),
    ]


def _judge(files: TokenizerFiles, pieces: Pieces, vocabulary: Vocabulary) -> Iterator[Finding]:
    where = files.name
    unigram = pieces.model is PieceModel.UNIGRAM
    left_out = list(pieces.preparation.others)
    if not unigram:
        left_out += ["replacing characters by a table"] if len(pieces.preparation.charsmap) else []
        left_out += ["joining runs of spaces"] if pieces.preparation.merge_spaces else []
    if left_out:
        message = (
            f"{where} prepares text by steps that llama.cpp does not take ({', '.join(left_out)}), so that some texts"
            " are cut otherwise than in training."
        )
        yield warning("tokenizer-preparation", "tokenizer.ggml.model", message)
    count = vocabulary.types.count(int(TokenType.BYTE))
    if not unigram and count < 256:
        message = f"the vocabulary has {count} of 256 byte tokens, and llama.cpp ends on a character without a token."
        yield warning("tokenizer-bytes", "tokenizer.ggml.tokens", message)
    elif unigram and count:
        message = "llama.cpp uses no byte tokens in a Unigram model: a character that no token covers becomes unknown."
        yield warning("tokenizer-bytes", "tokenizer.ggml.tokens", message)
