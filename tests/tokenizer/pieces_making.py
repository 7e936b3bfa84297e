"""Small vocabularies in SentencePiece's manner: as tokenizer.json, and as the protobuf file tokenizer.model.

The protobuf is put together byte by byte from its documentation, without the package's own code.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.tokenizer.making import added

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIALS = ("<unk>", "<s>", "</s>")
#: id of the first real piece
FIRST = len(SPECIALS) + len(BYTES)

REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Prepend", "prepend": SPACE}
#: as Llama 2's and Gemma's tokenizer.json have it
LLAMA_NORMALIZER = {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}
GEMMA_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
JOIN = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}

TEXTS = (
    "It's what they'll say: I'VE 1234567 apples, don't you'd?",
    "  two  spaces   three\n\n\nlines\r\n\t tabs \n x",
    "我想在apple工作1314151天～かなカナ",
    "нещо на Български, ünïcode Straße",
    "f(x)[0]=='a'; // comment!!!\n\n  return \"x\"/y;\n",
    "<|turn>user <s> it's",
    "a",
    " a ",
    "   ",
    "\n\n\n",
    "",
    "🦙 कान",
)


def train_pieces(size: int = 250) -> list[str]:
    """Pieces of a BPE in the order in which training made them, the characters last, as SentencePiece lists them.

    None has line breaks and other characters in it, as in Gemma's vocabulary.
    """
    from tokenizers import Tokenizer, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    words = [word for text in TEXTS[:5] for word in re.findall(r"\n+| ?[^\s]+|[ \t\r]", text)]
    tokenizer.train_from_iterator(
        words * 3,
        trainers.BpeTrainer(vocab_size=size, show_progress=False),
    )
    vocab = tokenizer.get_vocab()
    ordered = sorted(vocab, key=lambda piece: vocab[piece])
    return [p for p in ordered if len(p) > 1] + [p for p in ordered if len(p) == 1]


def all_merges(pieces: Sequence[str]) -> list[str]:
    """Every way to join two pieces into a third, in the order of the results: what transformers writes."""
    known = set(pieces)
    ways = ((piece[:i], piece[i:]) for piece in pieces for i in range(1, len(piece)))
    return [f"{left} {right}" for left, right in ways if left in known and right in known]


def bpe_document(pieces: Sequence[str], *more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A tokenizer.json as Llama 2's; ``more`` are added tokens, ``fields`` replace top-level ones."""
    tokens = [*SPECIALS, *BYTES, *pieces]
    document: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [*(added(i, text, special=True) for i, text in enumerate(SPECIALS)), *more],
        "normalizer": LLAMA_NORMALIZER,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {text: i for i, text in enumerate(tokens)},
            "merges": all_merges(pieces),
        },
    }
    return document | fields


def unigram_document(pieces: Iterable[tuple[str, float]], **fields: Any) -> dict[str, Any]:
    """A tokenizer.json as T5's."""
    specials = ("<pad>", "</s>", "<unk>")
    document: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [added(i, text, special=True) for i, text in enumerate(specials)],
        "normalizer": {"type": "Sequence", "normalizers": [STRIP, JOIN]},
        "pre_tokenizer": METASPACE,
        "post_processor": None,
        "decoder": METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": 2,
            "byte_fallback": False,
            "vocab": [*([text, 0.0] for text in specials), *map(list, pieces)],
        },
    }
    return document | fields


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One protobuf field: a varint, a float of 4 bytes, or a run of bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def piece(text: str, score: float = 0.0, kind: int | None = None) -> bytes:
    return field(1, field(1, text) + field(2, score) + (b"" if kind is None else field(3, kind)))


def trainer(kind: int = 2, **ids: int) -> bytes:
    numbers = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
    roles = b"".join(field(numbers[role], i) for role, i in ids.items())
    return field(2, field(3, kind) + field(4, 1000) + roles)


def normalizer(*, charsmap: bytes = b"", dummy_prefix: bool = True, merge_spaces: bool = False) -> bytes:
    name = field(1, "identity") + (field(2, charsmap) if charsmap else b"")
    return field(3, name + field(3, int(dummy_prefix)) + field(4, int(merge_spaces)))


def llama_model(pieces: Sequence[str], *more: bytes) -> bytes:
    """A tokenizer.model as Llama 2's, ``more`` behind its pieces."""
    special = piece("<unk>", kind=2) + piece("<s>", kind=3) + piece("</s>", kind=3)
    listed = b"".join(piece(text, kind=6) for text in BYTES)
    real = b"".join(piece(text, -float(i)) for i, text in enumerate(pieces))
    return special + listed + real + b"".join(more)


def save_model(directory: Path, data: bytes, **companions: Any) -> Path:
    """Write ``data`` as tokenizer.model, and each companion ``NAME`` as NAME.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.model").write_bytes(data)
    for name, content in companions.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory
