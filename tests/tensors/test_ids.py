"""Tables of ids: sound, broken on purpose, and such as hold the ids themselves."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_convert.tensors.ids import judge_ids, judge_marks

VOCABULARY = 4096
IDS = np.sort(np.random.default_rng(3).choice(VOCABULARY, 1000, replace=False))
OFFSETS = IDS - np.arange(1000)


def told(offsets: np.ndarray, dtype: str = "I64", vocab_size: int = VOCABULARY) -> list[tuple[str, str, str]]:
    data = offsets.astype({"I32": "<i4", "I64": "<i8"}[dtype]).tobytes()
    return [(found.severity, found.rule, found.message) for found in judge_ids("d2t", data, dtype, vocab_size)]


@pytest.mark.parametrize("dtype", ["I32", "I64"])
def test_sound_offsets(dtype: str) -> None:
    assert told(OFFSETS, dtype) == []
    assert told(OFFSETS, dtype, int(IDS[-1]) + 1) == []
    assert told(np.zeros(VOCABULARY), dtype) == []  # the first tokens, or all
    shuffled = np.random.default_rng(4).permutation(IDS)
    assert told(shuffled - np.arange(1000), dtype) == []
    assert told(np.zeros(0), dtype) == []


@pytest.mark.parametrize(("at", "offset", "shown"), [(7, -8, -1), (999, VOCABULARY - 999, VOCABULARY), (0, -1, -1)])
def test_an_id_outside(at: int, offset: int, shown: int) -> None:
    bad = OFFSETS.copy()
    bad[at] = offset
    message = f"the offsets in d2t give 1 ids outside the vocabulary of 4,096, the first {shown} at {at}."
    assert told(bad) == [("error", "d2t-range", message)]


def test_numbers_so_large_that_their_sum_turns_round() -> None:
    bad = OFFSETS.copy()
    bad[5] = 2**63 - 1
    ((_, rule, message),) = told(bad)
    assert rule == "d2t-range"
    assert f"the first {2**63 + 4} at 5" in message


def test_an_id_twice() -> None:
    bad = OFFSETS.copy()
    bad[500] = IDS[10] - 500
    message = "the offsets in d2t give 1 of 1,000 draft tokens an id that is taken already."
    assert told(bad) == [("error", "d2t-duplicate", message)]


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_ids_themselves(order: slice) -> None:
    """In any order they give ids outside, or twice: this vocabulary ends with its last token."""
    ((severity, rule, message),) = told(IDS[order], vocab_size=int(IDS[-1]) + 1)
    assert (severity, rule) == ("error", "d2t-absolute")
    assert message.startswith("d2t holds no offsets but ids: as offsets they give ")


def test_ids_that_could_be_offsets_too() -> None:
    """Sorted ids plus their indices are different and, in a large vocabulary, all inside."""
    ((severity, rule, message),) = told(IDS, vocab_size=2 * VOCABULARY)
    assert (severity, rule) == ("warning", "d2t-absolute")
    assert message.startswith("d2t is read as offsets, but its entries are all different")
    assert told(np.array([0, 3, 4, 9]), vocab_size=100) == []  # of few it is chance


def marked(offsets: np.ndarray, ids: np.ndarray) -> list[tuple[str, str, str]]:
    marks = np.zeros(VOCABULARY, np.bool_)
    marks[ids] = True
    found = judge_marks("d2t", offsets.astype("<i8").tobytes(), "I64", marks.tobytes())
    return [(finding.severity, finding.rule, finding.message) for finding in found]


def test_tokens_that_are_marked() -> None:
    assert marked(OFFSETS, IDS) == []
    assert marked(np.random.default_rng(5).permutation(IDS) - np.arange(1000), IDS) == []


def test_marks_tell_ids_from_offsets() -> None:
    few = np.arange(0, 40, 2)
    assert told(few)[0][:2] == ("warning", "d2t-absolute")  # good as both
    assert marked(few, 3 * np.arange(20)) == []  # as offsets they lead to every third token
    assert marked(few, few) == [
        ("error", "d2t-absolute", "d2t holds no offsets but ids: they are the tokens that t2d marks.")
    ]


def test_marks_of_another_draft() -> None:
    others = IDS.copy()
    others[-2:] = [IDS[-1], 4095 if IDS[-1] != 4095 else 4094]
    ((severity, rule, message),) = marked(OFFSETS, others)
    assert (severity, rule) == ("warning", "d2t-disagrees")
    assert "leads to 1 tokens that t2d does not mark, and t2d marks 1 that" in message
    assert marked(OFFSETS, IDS[:0])[0][1] == "d2t-disagrees"
