"""Costs, break-even and the sentence, on made-up times."""

from __future__ import annotations

import pytest

from dspark_convert.bench.bench import machine_part
from dspark_convert.bench.costs import MARGIN, best_of, break_even, setting_cost, spread
from dspark_convert.bench.records import Setting, Turn
from dspark_convert.bench.verdict import flags_of, judge_speed
from tests.bench.made import made_round, made_turn

WHOLE = Setting(4)


def turn_of(accepted: list[int], ms: float, setting: Setting = WHOLE, plain_ms: float = 10.0) -> Turn:
    return made_turn({setting: [made_round(count, setting.n_max, ms) for count in accepted]}, plain_ms=plain_ms)


def test_break_even_is_where_both_are_as_fast() -> None:
    # plain: 0.1 tokens a ms; a round of 30 ms is worth 3 tokens: its own one and 2 of 4 proposals
    assert break_even(0.1, 30.0, 4) == pytest.approx(0.5)
    cost = setting_cost([turn_of([2, 2, 2], 30.0)], WHOLE)
    assert cost is not None
    assert cost.break_even == pytest.approx(cost.accepted) == 0.5
    assert cost.speed.median == pytest.approx(1.0)


@pytest.mark.parametrize("accepted", [[0, 0], [1, 0, 2], [4, 4], [3, 1]])
@pytest.mark.parametrize("ms", [12.0, 25.0, 49.0, 70.0])
def test_a_draft_pays_exactly_above_break_even(accepted: list[int], ms: float) -> None:
    cost = setting_cost([turn_of(accepted, ms)], WHOLE)
    assert cost is not None and cost.break_even is not None
    assert (cost.speed.median > 1) == (cost.accepted > cost.break_even)
    # and by as much: speed = (1 + acc * block) / (raw * step)
    assert cost.speed.median == pytest.approx((1 + cost.accepted * 4) / (1 + cost.break_even * 4))


def test_parts_of_a_round() -> None:
    cost = setting_cost([turn_of([4, 0], 20.0), turn_of([4, 0], 40.0, plain_ms=20.0)], WHOLE)
    assert cost is not None
    assert (cost.draft_ms.median, cost.verify_ms.median, cost.inject_ms.median) == (15.0, 12.0, 3.0)
    assert (cost.round_ms.low, cost.round_ms.median, cost.round_ms.high) == (20.0, 30.0, 40.0)
    assert (cost.turns, cost.drafted, cost.tokens, cost.accepted) == (2, 4.0, 3.0, 0.5)
    # each turn against its own plain run: the machine was half as fast in the second
    assert (cost.speed.low, cost.speed.high) == (1.5, 1.5)


def test_quartiles() -> None:
    assert spread([5.0]) == (found := spread([5.0, 5.0])) and found.median == 5.0
    assert (spread([1.0, 2.0, 3.0, 4.0, 5.0]).low, spread([1.0, 2.0, 3.0, 4.0, 5.0]).high) == (2.0, 4.0)


def test_nothing_to_measure() -> None:
    empty = made_turn({WHOLE: []})
    assert setting_cost([empty], WHOLE) is None
    assert machine_part([empty], WHOLE).plain is None
    assert judge_speed([], WHOLE) == "Speed was not measured: every text ended at its first token."


def swept(speeds: dict[Setting, float]) -> Turn:
    """One turn in which everything is accepted, with rounds as long as gives these speeds at 10 ms a plain token."""
    rounds = {s: [made_round(s.n_max, s.n_max, 10.0 * (s.n_max + 1) / speed)] for s, speed in speeds.items()}
    return made_turn(rounds, sweep=True)


def test_sweep_finds_the_fastest_and_a_threshold_only_if_it_helps() -> None:
    speeds = {Setting(1): 1.2, Setting(2): 1.7, Setting(3): 1.5, Setting(4): 1.4, Setting(4, 0.4): 1.71}
    machine = machine_part([swept(speeds)], WHOLE)
    assert [cost.setting.n_max for cost in machine.n_max] == [1, 2, 3, 4]
    assert [cost.setting.p_min for cost in machine.p_min] == [0.0, 0.4]
    assert len(machine.settings) == 5
    assert machine.best is not None and machine.best.setting == Setting(2)
    assert machine.verdict == "Pays: 1.70x plain decoding at --spec-draft-n-max 2."
    better = machine_part([swept({**speeds, Setting(4, 0.4): 1.7 * (1 + MARGIN) + 0.01})], WHOLE)
    assert better.best is not None and better.best.setting == Setting(4, 0.4)
    assert better.best.break_even is None
    assert flags_of(better.best.setting) == "--spec-draft-n-max 4 --spec-draft-p-min 0.4"
    assert best_of([]) is None


def test_turns_of_the_sweep_alone_are_compared() -> None:
    lucky = turn_of([4, 4], 5.0)
    machine = machine_part([lucky, swept({Setting(2): 1.5, WHOLE: 1.1})], WHOLE)
    assert machine.best is not None and machine.best.setting == Setting(2)
    assert machine_part([lucky], WHOLE).best is not None


def sentence(accepted: list[int], ms: float) -> str:
    return machine_part([turn_of(accepted, ms)], WHOLE).verdict


def test_sentences() -> None:
    assert sentence([1, 1], 45.0) == (
        "Does not pay here: 0.44x plain decoding at best (--spec-draft-n-max 4). At n-max 4 a round takes as long as"
        " 4.50 plain tokens and makes 2.00: it would pay if 88% of the proposals were accepted, and 25% are."
    )
    assert sentence([4, 4], 60.0).endswith(
        "a round takes as long as 6.00 plain tokens and makes 5.00; even if everything were accepted it would make 5."
    )
    assert sentence([2, 2], 30.0) == "Makes no difference here: 1.00x plain decoding at best (--spec-draft-n-max 4)."
    mixed = machine_part([turn_of([count], 25.0) for count in (4, 4, 4, 0, 0)], WHOLE).verdict
    assert mixed.startswith("Pays on most prompts: 2.00x")
