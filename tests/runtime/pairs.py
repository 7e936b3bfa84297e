"""Pairs of GGUF files whose behaviour is known without running them, written without the converter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests import oracle

HIDDEN = 128


@dataclass(frozen=True)
class PairFiles:
    """``draft_dir`` and ``target_dir`` are the checkpoints that the two GGUF files came from."""

    root: Path
    target: Path
    draft: Path
    target_dir: Path
    draft_dir: Path

    def broken(self, name: str, change: Callable[[oracle.Expected], Any]) -> Path:
        """A copy of the draft with ``change`` applied to its key/values and tensors."""
        want = oracle.expected(self.draft_dir, self.target_dir, "f32")
        want = replace(want, kv=dict(want.kv), tensors=dict(want.tensors))
        change(want)
        path = self.root / f"{name}.gguf"
        oracle.write(want, path, self.target)
        return path

    def target_tensors(self) -> dict[str, torch.Tensor]:
        return load_file(self.target_dir / "model.safetensors")

    def draft_tensors(self) -> dict[str, torch.Tensor]:
        return load_file(self.draft_dir / "model.safetensors")


def write_gguf(root: Path, target_dir: Path, draft_dir: Path) -> PairFiles:
    target, draft = root / "target.gguf", root / "draft.gguf"
    write_target_gguf(target_dir, target)
    oracle.write(oracle.expected(draft_dir, target_dir, "f32"), draft, target)
    return PairFiles(root, target, draft, target_dir, draft_dir)


def make_random_pair(root: Path, **sizes: Any) -> PairFiles:
    pair = make_tiny_pair(root, dtype="F32", **sizes)
    return write_gguf(root, pair.target_dir, pair.draft_dir)


def make_bigram_pair(root: Path) -> PairFiles:
    """A target whose next token depends on the last one alone, and a draft that knows it perfectly.

    The target's layers add nothing to the residual, so its logits are head · norm(embedding). The
    draft's last norm is 1e-4, so its logits are the Markov head's but for some 1e-4, and that head is the
    target's.
    """
    pair = make_tiny_pair(root, dtype="F32", markov_rank=HIDDEN, hidden_size=HIDDEN)
    target = load_file(pair.target_dir / "model.safetensors")
    for name, tensor in target.items():
        if "o_proj" in name or "down_proj" in name:
            target[name] = torch.zeros_like(tensor)
    save_file(target, pair.target_dir / "model.safetensors", {"format": "pt"})
    draft = load_file(pair.draft_dir / "model.safetensors")
    draft["norm.weight"] *= 1e-4
    draft["markov_head.markov_w1.weight"] = normed_embeddings(target)
    draft["markov_head.markov_w2.weight"] = target["lm_head.weight"].clone()
    save_file(draft, pair.draft_dir / "model.safetensors", {"format": "pt"})
    return write_gguf(root, pair.target_dir, pair.draft_dir)


def normed_embeddings(target: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the bigram target's head sees behind each token: [vocabulary, hidden]."""
    embeddings = target["model.embed_tokens.weight"].double()
    length = (embeddings.pow(2).mean(dim=1, keepdim=True) + 1e-6).sqrt()
    return (embeddings / length * target["model.norm.weight"].double()).float()


def bigram_logits(target: dict[str, torch.Tensor]) -> torch.Tensor:
    """The bigram target's logits behind each token: [vocabulary, vocabulary]."""
    return normed_embeddings(target) @ target["lm_head.weight"].T


def config(directory: Path) -> dict[str, Any]:
    read = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read
