"""The tokenizer of a target in Hugging Face's form, without transformers, tokenizers or sentencepiece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, warning
from dspark_convert.ggufio.types import KV, ValueType, array, boolean, string
from dspark_convert.tokenizer.files import SENTENCEPIECE, TAKE_GGUF, TIKTOKEN, TokenizerFiles, read_files
from dspark_convert.tokenizer.json_pieces import read_bpe, read_unigram
from dspark_convert.tokenizer.merges import read_merges
from dspark_convert.tokenizer.metaspace import writes_spaces
from dspark_convert.tokenizer.pieces import Pieces
from dspark_convert.tokenizer.pre import PreTokenizer, name_pre_tokenizer
from dspark_convert.tokenizer.result import TokenizerKVs
from dspark_convert.tokenizer.sentencepiece import read_model
from dspark_convert.tokenizer.special import special_kvs
from dspark_convert.tokenizer.spm import gemma4_kvs, piece_kvs, preparation_kvs, read_pieces_vocabulary
from dspark_convert.tokenizer.template import template_kvs
from dspark_convert.tokenizer.tiktoken import read_tiktoken
from dspark_convert.tokenizer.vocabulary import Vocabulary, read_vocabulary

#: how llama.cpp calls a byte-level BPE
BYTE_LEVEL = "gpt2"


@dataclass(frozen=True)
class _Model:
    """``head`` stands before the special tokens, ``tail`` behind the template; ``roles`` as in ``Pieces``."""

    vocabulary: Vocabulary
    head: list[KV]
    tail: list[KV] = field(default_factory=list)
    roles: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def from_directory(
    target_dir: Path, vocab_size: int, *, pre: str | None = None, chat_template: bool = True
) -> TokenizerKVs:
    """Read tokenizer.json, or else tokenizer.model or tiktoken.model, and its companions in ``target_dir``.

    ``vocab_size`` is that of the target's config.json: ids up to it that have no token become
    padding. ``pre`` names the pre-tokenizer of a byte-level BPE by hand; ``chat_template=False`` leaves
    templates out. Raises InputError if there is no tokenizer of a kind that llama.cpp has, if it is
    damaged, does not fit ``vocab_size``, or prepares text in a way that has no name.
    """
    files = read_files(target_dir)
    model = _read_model(files, vocab_size, pre)
    special, special_findings = special_kvs(files, model.vocabulary, model.roles)
    template, template_findings = template_kvs(files) if chat_template else ([], [])
    tail = {kv.key for kv in model.tail}
    unused = [] if pre is None or model.head[0].value == BYTE_LEVEL else [_unused(pre)]
    return TokenizerKVs(
        kvs=(*model.head, *(kv for kv in special if kv.key not in tail), *template, *model.tail),
        findings=(*model.vocabulary.findings, *model.findings, *unused, *special_findings, *template_findings),
    )


def _unused(pre: str) -> Finding:
    message = f"{pre!r} was given, but in SentencePiece's manner llama.cpp has no pre-tokenizer; it is left out."
    return warning("tokenizer-pre-differs", "tokenizer.ggml.pre", message, "leave --tokenizer-pre out")


def _read_model(files: TokenizerFiles, vocab_size: int, pre: str | None) -> _Model:
    if files.name == TIKTOKEN:
        vocabulary, merges = read_tiktoken(files, vocab_size)
        return _byte_level(vocabulary, PreTokenizer(pre or "kimi-k2"), merges)
    if files.name == SENTENCEPIECE:
        return _pieces(files, read_model(files.vocabulary_path), vocab_size)
    kind = files.model.get("type", "BPE" if "merges" in files.model else "unnamed")
    if kind == "Unigram":
        return _pieces(files, read_unigram(files), vocab_size)
    if kind != "BPE":
        raise InputError(
            f"{files.tokenizer_path} holds a model of type {kind!r}; only BPE and Unigram are read: {TAKE_GGUF}."
        )
    if files.model.get("byte_fallback") or writes_spaces(files):
        return _bpe_of_pieces(files, vocab_size)
    vocabulary = read_vocabulary(files, vocab_size)
    merges = read_merges(files, vocabulary.ids)
    named = name_pre_tokenizer(files, pre)
    return _byte_level(vocabulary, named, merges)


def _byte_level(vocabulary: Vocabulary, pre: PreTokenizer, merges: list[str]) -> _Model:
    head = [
        string("tokenizer.ggml.model", BYTE_LEVEL),
        string("tokenizer.ggml.pre", pre.name),
        array("tokenizer.ggml.tokens", ValueType.STRING, vocabulary.texts),
        array("tokenizer.ggml.token_type", ValueType.INT32, vocabulary.types),
        array("tokenizer.ggml.merges", ValueType.STRING, merges),
    ]
    roles = {role: vocabulary.ids[token] for role, token in pre.roles.items() if token in vocabulary.ids}
    return _Model(vocabulary, head, roles=roles, findings=pre.findings)


def _bpe_of_pieces(files: TokenizerFiles, vocab_size: int) -> _Model:
    pieces = read_bpe(files, vocab_size)
    if not any(kind.startswith("gemma4") for kind in files.model_types):
        return _pieces(files, pieces, vocab_size)
    vocabulary = read_pieces_vocabulary(files, pieces, vocab_size)
    tail = [boolean("tokenizer.ggml.add_space_prefix", False), boolean("tokenizer.ggml.add_bos_token", True)]
    return _Model(vocabulary, gemma4_kvs(pieces, vocabulary), tail, pieces.roles)


def _pieces(files: TokenizerFiles, pieces: Pieces, vocab_size: int) -> _Model:
    vocabulary = read_pieces_vocabulary(files, pieces, vocab_size)
    return _Model(vocabulary, piece_kvs(pieces, vocabulary), preparation_kvs(files, pieces), pieces.roles)
