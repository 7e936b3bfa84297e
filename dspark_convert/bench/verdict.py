"""The sentence that follows from what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_convert.bench.costs import MARGIN, SettingCost, best_of
from dspark_convert.bench.records import Setting

#: how the sentence on a draft begins that makes its target slower
DOES_NOT_PAY = "Does not pay"


def judge_speed(costs: Sequence[SettingCost], whole: Setting) -> str:
    """Whether the best of ``costs`` pays. ``whole``: the whole block, which is compared with it."""
    best = best_of(costs)
    if best is None:
        return "Speed was not measured: every text ended at its first token."
    speed = best.speed.median
    if speed > 1 + MARGIN:
        if best.speed.low > 1:
            return f"Pays: {speed:.2f}x plain decoding at {flags_of(best.setting)}."
        return (
            f"Pays on most prompts: {speed:.2f}x plain decoding at {flags_of(best.setting)}, but a quarter of them are"
            f" at {best.speed.low:.2f}x or slower."
        )
    if speed >= 1 - MARGIN:
        return f"Makes no difference here: {speed:.2f}x plain decoding at best ({flags_of(best.setting)})."
    slower = f"{DOES_NOT_PAY} here: {speed:.2f}x plain decoding at best ({flags_of(best.setting)})."
    return f"{slower} {_why(best, costs, whole)}"


def _why(best: SettingCost, costs: Sequence[SettingCost], whole: Setting) -> str:
    """What a round costs and gives, at the whole block where the best has a threshold."""
    told = best
    if best.break_even is None:
        told = next((cost for cost in costs if cost.setting == whole), best)
    if told.break_even is None:
        return f"A round makes {told.tokens:.2f} tokens and takes longer than plain decoding needs for them."
    n_max = told.setting.n_max
    # acc = (raw * step - 1) / block, solved for raw * step
    worth = 1 + told.break_even * n_max
    costs_text = f"At n-max {n_max} a round takes as long as {worth:.2f} plain tokens and makes {told.tokens:.2f}"
    if told.break_even > 1:
        return f"{costs_text}; even if everything were accepted it would make {n_max + 1}."
    return (
        f"{costs_text}: it would pay if {told.break_even:.0%} of the proposals were accepted, and"
        f" {told.accepted:.0%} are."
    )


def flags_of(setting: Setting) -> str:
    """llama.cpp's flags of a setting."""
    threshold = f" --spec-draft-p-min {setting.p_min:g}" if setting.p_min else ""
    return f"--spec-draft-n-max {setting.n_max}{threshold}"
