"""Turns and reports made by hand, without llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dspark_convert.bench.bench import command_line, findings_of, machine_part, pair_part
from dspark_convert.bench.records import Round, Setting, Turn
from dspark_convert.bench.report import BenchReport
from dspark_convert.runtime.shape import DraftShape

SHAPE = DraftShape(block_size=4, reads_anchor=True, mask_token_id=9, causal=False, has_confidence_head=True)


def made_round(accepted: int, drafts: int = 4, ms: float = 30.0, confidences: Sequence[float] | None = None) -> Round:
    """Half of ``ms`` for the draft, two fifths for the target, the rest for the features."""
    held = None if confidences is None else tuple(confidences)
    return Round(tuple(range(drafts)), accepted, 0.5 * ms, 0.4 * ms, 0.1 * ms, held)


def made_turn(
    rounds: Mapping[Setting, Sequence[Round]], *, plain_ms: float = 10.0, kind: str = "code", sweep: bool = False
) -> Turn:
    """A text as long as the first setting's rounds make it, behind one token of the prompt."""
    count = 1 + sum(entry.accepted + 1 for entry in next(iter(rounds.values())))
    tokens = tuple(range(count))
    held = {setting: tuple(entries) for setting, entries in rounds.items()}
    return Turn(0, kind, sweep, tokens, (plain_ms,) * (count - 1), held, dict.fromkeys(held, tokens))


def made_report(turns: Sequence[Turn], shape: DraftShape = SHAPE, draft: str = "draft.gguf") -> BenchReport:
    from pathlib import Path

    pair, machine = pair_part(turns, shape), machine_part(turns, Setting(shape.drafts_per_block))
    best = machine.best.setting if machine.best else None
    return BenchReport(
        library={
            "path": "/lib/libllama.so",
            "source": "--lib",
            "model_params": "C",
            "context_params": "C",
            "injection": "decode",
        },
        draft={
            "path": draft,
            "target": "target.gguf",
            "kind": shape.kind,
            "block_size": shape.block_size,
            "drafts_per_block": shape.drafts_per_block,
            "has_confidence_head": shape.has_confidence_head,
        },
        conditions={
            "decoding": "greedy",
            "exact": False,
            "threads": 2,
            "max_tokens": 64,
            "prompts": sum(not turn.sweep for turn in turns),
            "prompts_measured": sum(not turn.sweep for turn in turns),
            "sweep": any(turn.sweep for turn in turns),
            "prompts_swept": sum(turn.sweep for turn in turns),
        },
        pair=pair,
        machine=machine,
        command=command_line(Path(draft), Path("target.gguf"), shape, best),
        findings=findings_of(pair.diagnosis, shape, Path(draft)),
    )


def swept_report(draft: str = "draft.gguf") -> BenchReport:
    """Two kinds of prompts, every n-max, one threshold, and a confidence head that is too sure."""
    whole, cut = Setting(4), Setting(4, 0.5)
    sure = [0.95, 0.9, 0.85, 0.8]
    first = [made_round(accepted, confidences=sure) for accepted in (4, 2, 1, 4, 0, 3) * 8]
    swept = {Setting(n): [made_round(min(n, 2), n, 20.0 + 3 * n, sure)] * 5 for n in range(1, 5)}
    swept[cut] = [made_round(2, 3, 24.0, sure)] * 5
    return made_report(
        [
            made_turn({whole: first}, kind="code"),
            made_turn({whole: first[:20]}, kind="chat"),
            made_turn(swept, kind="code", sweep=True),
            made_turn(swept, kind="chat", sweep=True, plain_ms=12.0),
        ],
        draft=draft,
    )
