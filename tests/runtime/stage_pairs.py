"""A tiny DeepSeek-V4 target and draft as GGUF files, written without the converter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from tests import oracle, stage_oracle


class StagePair(NamedTuple):
    """``directory`` is the checkpoint that holds both."""

    directory: Path
    target: Path
    draft: Path

    def written(self, name: str, change: Callable[[oracle.Expected], Any], outtype: str = "auto") -> Path:
        """Another file of the draft, with ``change`` applied to its key/values and tensors."""
        want = stage_oracle.expected(self.directory, outtype)
        want = replace(want, kv=dict(want.kv), tensors=dict(want.tensors))
        change(want)
        path = self.directory.parent / f"{name}.gguf"
        oracle.write(want, path, self.target)
        return path


def make_stage_pair(root: Path, **changes: Any) -> StagePair:
    directory = make_deepseek4(root / "v4", **changes)
    target, draft = root / "target.gguf", root / "draft.gguf"
    write_deepseek4_gguf(directory, target)
    oracle.write(stage_oracle.expected(directory), draft, target)
    return StagePair(directory, target, draft)
