"""A file of each published family beside its checkpoint and target, to be broken on purpose and judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFValueType

from dspark_convert.runtime.proof import Proof
from dspark_convert.runtime.report import Check
from fixtures.target_gguf import write_target_gguf
from tests.families.proofs import MAKERS, convert
from tests.mutations.copies import Copy, Value, read

#: families whose drafts llama.cpp can run, but for DeepSeek-V4's, which has tests of its own
CONVERTED = (
    *("deepspec_qwen3", "deepspec_qwen36", "dflash_deepspec", "conf_without_markov", "ling", "fork_label"),
    *("zlab_dflash", "zlab_dflash_flat", "zlab_dflash_windows", "mimo", "mimo_bare", "mimo_keyed", "muse"),
    *("specforge", "specforge_yarn", "specforge_early", "kolibri", "lfm2", "nemotron_inner"),
    *("speculators_dspark_bonus", "speculators_dspark_anchor", "speculators_dflash", "speculators_dflash_full"),
    *("speculators_dflash_leftovers", "gemma4", "gemma4_softcap", "dflash2", "dflash2_muse"),
)

UNSIGNED, FLOAT, BOOLEAN = GGUFValueType.UINT32, GGUFValueType.FLOAT32, GGUFValueType.BOOL
STRING, ARRAY, INTEGER = GGUFValueType.STRING, GGUFValueType.ARRAY, GGUFValueType.INT32

Change = Callable[[Copy], Any]


@dataclass(frozen=True)
class FamilyFile:
    """``directory`` is the checkpoint that ``draft``, in F32, was made from."""

    root: Path
    directory: Path
    target_directory: Path
    target: Path
    draft: Path

    def judge(self, draft: Path | None = None, target: Path | None = None) -> tuple[Check, Check]:
        """The checks "metadata" and "values"."""
        metadata, values = Proof(draft or self.draft, target or self.target, self.directory, None).judge_files()
        return metadata, values

    def changed(self, change: Change, target: Path | None = None) -> tuple[Check, Check]:
        copy = read(self.draft)
        change(copy)
        return self.judge(copy.write(self.root / "changed.gguf"), target)

    def converted(self, **options: Any) -> Path:
        """Made again by the converter with other ``options``."""
        from fixtures.hf_pair import TinyPair

        out = self.root / "converted.gguf"
        convert(TinyPair(self.target_directory, self.directory), out, **options)
        return out


def make_family(name: str, root: Path) -> FamilyFile:
    pair = MAKERS[name](root)
    target, draft = root / "target.gguf", root / "draft.gguf"
    write_target_gguf(pair.target_dir, target)
    convert(pair, draft)
    return FamilyFile(root, pair.draft_dir, pair.target_dir, target, draft)


def key(name: str, kind: GGUFValueType, value: Any, item: GGUFValueType | None = None) -> Change:
    """Sets ``name``, which stands behind "dflash." unless it says "dspark." itself."""
    full = name if name.startswith("dspark.") else f"dflash.{name}"
    return lambda copy: copy.kv.update({full: Value(kind, value, item)})


def without(name: str) -> Change:
    return lambda copy: copy.kv.pop(f"dflash.{name}")
