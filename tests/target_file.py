"""A little target GGUF that the good draft of draft_file.py fits, for tests to change."""

from __future__ import annotations

from typing import Any

from tests.draft_file import F32, HIDDEN, I32, U32, VOCAB, DraftFile
from tests.gguf_bytes import ARRAY, STRING

LAYERS = 6


class TargetFile(DraftFile):
    """Change ``kv`` and ``tensors``, then ``write`` it."""

    def __init__(self) -> None:
        super().__init__()
        scalars: dict[str, tuple[int, Any]] = {
            "general.architecture": (STRING, "qwen3"),
            "general.name": (STRING, "Tiny 7B"),
            "qwen3.block_count": (U32, LAYERS),
            "qwen3.context_length": (U32, 4096),
            "qwen3.embedding_length": (U32, HIDDEN),
            "qwen3.rope.freq_base": (F32, 1e6),
            "tokenizer.ggml.model": (STRING, "gpt2"),
            "tokenizer.ggml.pre": (STRING, "qwen2"),
            "tokenizer.ggml.eos_token_id": (U32, 78),
        }
        self.kv = {key: (kind, value, None) for key, (kind, value) in scalars.items()}
        self.kv["tokenizer.ggml.tokens"] = (ARRAY, [f"<{i}>" for i in range(VOCAB)], STRING)
        types = [1] * VOCAB
        types[77] = types[79] = 5
        self.kv["tokenizer.ggml.token_type"] = (ARRAY, types, I32)
        self.kv["tokenizer.ggml.merges"] = (ARRAY, ["< 1", "< 2"], STRING)
        self.tensors = {"token_embd.weight": ("F16", (HIDDEN, VOCAB)), "output.weight": ("F16", (HIDDEN, VOCAB))}


def fitting_draft() -> DraftFile:
    """The good draft with all that the target's tokenizer has."""
    draft, target = DraftFile(), TargetFile()
    for key in ("tokenizer.ggml.token_type", "tokenizer.ggml.merges"):
        draft.kv[key] = target.kv[key]
    return draft
