"""dspark-bench's measurements in a real llama.cpp."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.bench.bench import P_MINS, WORKER, bench, sweep_settings
from dspark_convert.bench.prompts import Prompt, built_in
from dspark_convert.bench.records import Setting, Turn, read_turns
from dspark_convert.errors import InputError, UsageError
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.precheck import precheck
from dspark_convert.runtime.validation import memory_limit, read_prompts, validate
from fixtures import train_pair
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, write_gguf
from tests.runtime.stage_pairs import make_stage_pair
from tests.runtime.test_trained_pair import rotate_the_other_way

ROOT = Path(train_pair.__file__).with_name("pair")
PROMPTS = read_prompts(ROOT / "prompts.txt")
GIVEN = [Prompt("given", text) for text in PROMPTS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return write_gguf(tmp_path_factory.mktemp("trained"), ROOT / "target", ROOT / "draft")


def measure(pair: PairFiles, sweep: list[Setting], prompts: list[str], **changes: Any) -> list[Turn]:
    """What the worker measured, before anything is made of it."""
    _, shape = precheck(pair.draft, pair.target)
    assert shape is not None
    job = {
        "library": str(find_library(None).path),
        "target": str(pair.target),
        "draft": str(pair.draft),
        "shape": asdict(shape),
        "prompts": prompts,
        "max_tokens": 17,
        "seconds": 60.0,
        "exact": True,
        "threads": 1,
        "memory": memory_limit((pair.draft, pair.target)),
        "sweep": sweep,
        **changes,
    }
    outcome = run_job(job, timeout=60, arguments=WORKER)
    assert outcome.result is not None, outcome.fault
    return read_turns(outcome.result, ["given"] * len(prompts))


def test_acceptance_is_what_dspark_validate_reports(trained: PairFiles) -> None:
    report = bench(trained.draft, trained.target, prompts=GIVEN, exact=True, sweep=False)
    validated = validate(trained.draft, trained.target, prompts=PROMPTS)
    assert report.pair.acceptance == validated.acceptance
    assert report.pair.diagnosis.shape == "flat"
    assert report.findings == []
    assert report.pair.same_texts == report.pair.texts == 10
    calibration = report.pair.calibration
    assert calibration is not None
    assert calibration.brier < calibration.base_brier
    # the head is compared with what was reached: each first rejection and every accepted proposal
    assert calibration.count >= sum(report.pair.acceptance.accepted)
    assert len(report.machine.settings) == 1
    assert "--spec-draft-n-max 7" in report.command


def test_a_wrong_rotation_is_diagnosed(trained: PairFiles) -> None:
    broken = trained.broken("rotated", rotate_the_other_way)
    report = bench(broken, trained.target, prompts=GIVEN, exact=True, sweep=False)
    assert report.pair.diagnosis.shape == "falls"
    assert [finding.rule for finding in report.findings] == ["acceptance-falls"]
    assert "RoPE" in report.findings[0].message


def test_every_setting_of_a_draft_that_foresees_everything(bigram_pair: PairFiles) -> None:
    sweep = [Setting(n) for n in range(1, 8)]
    turns = measure(bigram_pair, sweep, ["the small boat", "a"])
    assert [(turn.prompt, turn.sweep) for turn in turns] == [(0, False), (1, False), (0, True), (1, True)]
    assert list(turns[2].rounds) == sweep
    assert list(turns[3].rounds) == sweep[1:] + sweep[:1]  # no setting is always first
    for turn in turns[2:]:
        for setting, rounds in turn.rounds.items():
            assert {(len(entry.drafts), entry.accepted) for entry in rounds} == {(setting.n_max, setting.n_max)}
            assert len(rounds) == -(-16 // (setting.n_max + 1))
            assert turn.texts[setting] == turn.tokens
            assert all(entry.confidences is not None and len(entry.confidences) == setting.n_max for entry in rounds)
            assert all(min(entry.draft_ms, entry.verify_ms, entry.inject_ms) > 0 for entry in rounds)
        assert len(turn.steps_ms) == 16


def test_blocks_end_before_the_first_proposal_below_the_threshold(trained: PairFiles) -> None:
    low, high = Setting(7, 0.5), Setting(7, 0.95)
    turns = measure(trained, [low, high], PROMPTS[:3], max_tokens=48)
    cut = 0
    for turn in (turn for turn in turns if turn.sweep):
        for setting, rounds in turn.rounds.items():
            for entry in rounds:
                assert entry.confidences is not None
                below = [k for k, value in enumerate(entry.confidences) if value < setting.p_min]
                assert len(entry.drafts) == min([*below, 7])
                cut += len(entry.drafts) < 7
            assert turn.texts[setting] == turn.tokens
    assert cut > 3


def test_time_that_ran_out_leaves_what_was_measured(bigram_pair: PairFiles) -> None:
    report = bench(bigram_pair.draft, bigram_pair.target, seconds=0, max_tokens=9)
    told = report.conditions
    assert (told["prompts"], told["prompts_measured"], told["prompts_swept"]) == (12, 1, 0)
    assert report.machine.best is not None
    assert report.pair.texts == 1


def test_default_arithmetic_and_settings(bigram_pair: PairFiles) -> None:
    report = bench(bigram_pair.draft, bigram_pair.target, prompts=GIVEN[:1], max_tokens=9)
    assert report.conditions["exact"] is False
    assert [cost.setting for cost in report.machine.settings] == [
        *(Setting(n) for n in range(1, 8)),
        *(Setting(7, p_min) for p_min in P_MINS),
    ]


def test_threads_are_as_many_as_asked_for(bigram_pair: PairFiles) -> None:
    report = bench(bigram_pair.draft, bigram_pair.target, prompts=GIVEN[:1], max_tokens=2, threads=2, sweep=False)
    assert report.conditions["threads"] == 2


def test_deepseek_v4_pair(tmp_path: Path) -> None:
    pair = make_stage_pair(tmp_path)
    report = bench(pair.draft, pair.target, prompts=[Prompt("given", "ab")], max_tokens=12, exact=True)
    _, shape = precheck(pair.draft, pair.target)
    assert shape is not None
    assert report.pair.acceptance.rounds > 0
    assert [cost.setting for cost in report.machine.settings] == sweep_settings(shape)


def test_files_that_cannot_be_measured(random_pair: PairFiles) -> None:
    mask = {"tokenizer.ggml.mask_token_id": ("UINT32", 9999)}
    broken = random_pair.broken("bench-mask", lambda want: want.kv.update(mask))
    with pytest.raises(InputError, match="mask"):
        bench(broken, random_pair.target)
    with pytest.raises(UsageError, match="positions"):
        bench(random_pair.draft, random_pair.target, max_tokens=100_000)
    with pytest.raises(InputError, match="seconds allowed ran out"):
        bench(random_pair.draft, random_pair.target, timeout=0.01)


def test_confidences_that_are_no_numbers(bigram_pair: PairFiles) -> None:
    def spoil(want: Expected) -> None:
        kind, shape, data = want.tensors["conf_proj.bias"]
        want.tensors["conf_proj.bias"] = (kind, shape, b"\x00\x00\xc0\x7f" * (len(data) // 4))

    broken = bigram_pair.broken("nan-confidence", spoil)
    with pytest.raises(InputError, match="confidences are not finite"):
        bench(broken, bigram_pair.target, prompts=GIVEN[:1], max_tokens=9)


def test_built_in_prompts_come_in_turns_of_kinds() -> None:
    prompts = built_in()
    assert [prompt.kind for prompt in prompts[:4]] == ["code", "maths", "chat", "repetition"]
    assert len(prompts) == len(set(prompts)) == 12
    assert all(prompt.text.strip() for prompt in prompts)
