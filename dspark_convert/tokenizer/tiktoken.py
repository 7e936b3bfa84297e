"""Reads tiktoken.model, the form in which Kimi publishes its byte-level BPE: one line a token, base64 and rank.

The merges are not in the file: that of a token is the last step in which tiktoken, joining the pair of
lowest rank again and again, would make it. The special tokens are Kimi's: ids behind the ranks, named by
tokenizer_config.json or else ``<|reserved_token_ID|>`` (tokenization_kimi.py).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace

from dspark_convert.errors import InputError
from dspark_convert.source.jsonfile import read_bytes
from dspark_convert.tokenizer.bytelevel import spelled, spelled_out
from dspark_convert.tokenizer.files import TAKE_GGUF, TokenizerFiles
from dspark_convert.tokenizer.vocabulary import TokenType, Vocabulary, lay_out

#: Kimi K2's has 3 MB
MAX_BYTES = 16 * 2**20
#: of the squares of all lengths, which is what finding the merges takes; GPT-4o's 200,000 tokens take 13 millions
MAX_STEPS = 200 * 10**6

#: of Kimi: 256 and two more
SPECIAL_TOKENS = 258


def read_tiktoken(files: TokenizerFiles, vocab_size: int) -> tuple[Vocabulary, list[str]]:
    """The ``vocab_size`` tokens of a target, and their merges, best first.

    Raises InputError if the target is none of Kimi's, or the file is damaged.
    """
    path = files.vocabulary_path
    if not any(kind.startswith("kimi") for kind in files.model_types) and not _is_kimis(files):
        raise InputError(
            f"{path} is a tiktoken vocabulary of a model other than Kimi, whose special tokens and way of splitting"
            f" text only its own code knows: {TAKE_GGUF}."
        )
    ranks = _ranks(files)
    vocab = {spelled(token): rank for token, rank in ranks.items()}
    end = min(len(ranks) + SPECIAL_TOKENS, vocab_size)
    names = _names(files)
    vocab |= {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(len(ranks), end)}
    vocabulary = lay_out(files, vocab, {}, vocab_size, spelled_out)
    types = [*vocabulary.types]
    types[len(ranks) : end] = [int(TokenType.CONTROL)] * (end - len(ranks))
    merges = [f"{spelled(left)} {spelled(right)}" for left, right in _merges(ranks)]
    return replace(vocabulary, types=types), merges


def _is_kimis(files: TokenizerFiles) -> bool:
    """Whether it is the class of Kimi's own code: Moonlight and others have another model type."""
    return files.settings.get("tokenizer_class") == "TikTokenTokenizer"


def _names(files: TokenizerFiles) -> dict[int, str]:
    """What added_tokens_decoder calls the special tokens; ``lay_out`` checks it."""
    table = files.settings.get("added_tokens_decoder")
    entries = table.items() if isinstance(table, dict) else ()
    named = {key: entry.get("content") for key, entry in entries if isinstance(entry, dict) and key.isdecimal()}
    return {int(key): content for key, content in named.items() if isinstance(content, str)}


def _ranks(files: TokenizerFiles) -> dict[bytes, int]:
    """Rank by token, in their order; raises InputError if a line is malformed or a rank is missing."""
    path = files.vocabulary_path
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_bytes(path, limit=MAX_BYTES, kind="tiktoken").splitlines()):
        try:
            text, rank = line.split()
            token = base64.b64decode(text, validate=True)
            fits = token and ranks.setdefault(token, int(rank)) == len(ranks) - 1 == number
        except (ValueError, binascii.Error):
            fits = False
        if not fits:
            raise InputError(
                f"{path}: line {number + 1} is not a new token in base64 with the rank {number}; fetch it again, or"
                f" {TAKE_GGUF}."
            )
    missing = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if missing is not None:
        raise InputError(f"{path} has no token for the byte {missing}; fetch it again, or {TAKE_GGUF}.")
    if sum(len(token) ** 2 for token in ranks) > MAX_STEPS:
        longest = max(map(len, ranks))
        raise InputError(f"{path} has tokens of up to {longest} bytes, too long to find their merges; {TAKE_GGUF}.")
    return ranks


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The two pieces of each token; of one that cannot be made of two, none."""
    pairs = ((token, _parts(token, rank, ranks)) for token, rank in ranks.items() if len(token) > 1)
    return [(parts[0], parts[1]) for _, parts in pairs if len(parts) == 2]


def _parts(token: bytes, limit: int, ranks: dict[bytes, int]) -> list[bytes]:
    """``token`` in pieces, after every step of a rank below ``limit``."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(parts[i] + parts[i + 1], limit) for i in range(len(parts) - 1)]
        best = min(joined)
        if best >= limit:
            break
        at = joined.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts
