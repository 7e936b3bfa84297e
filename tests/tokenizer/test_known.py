"""Which merges are sound, told by hashes: the same as a set of the tokens tells."""

from __future__ import annotations

import random

import pytest

from dspark_convert.tokenizer import known
from dspark_convert.tokenizer.known import all_known

TOKENS = ["a", "b", "ab", "Ġ", "Ġa", "日", "日本", "本", "two words", "\n"]


@pytest.mark.parametrize("merges", [["a b"], ["Ġ a", "日 本", "a b"]])
def test_sound(merges: list[str]) -> None:
    assert all_known(merges, TOKENS)


@pytest.mark.parametrize(
    "merge",
    ["a a", "b a", "c a", "a c", "a", "a ", " b", "a  b", "a b c", "a\nb", "a b\n", "", "a\tb", "\ud800 b", "a\0 b"],
)
def test_unsound(merge: str) -> None:
    for merges in ([merge], ["a b", merge], [merge, "a b"]):
        assert not all_known(merges, TOKENS)


def test_a_token_with_a_null_is_no_two_tokens() -> None:
    assert not all_known(["a b"], ["a", "b\0ab"])
    assert not all_known(["a b"], ["a", "b", "ab", "\0"])


def test_as_a_set_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "AT_ONCE", 7)
    draw = random.Random(0)
    tokens = list({"".join(draw.choices("abĠ日", k=draw.randint(1, 4))) for _ in range(120)})
    told = set()
    for _ in range(500):
        pairs = [draw.choices(tokens, k=2) for _ in range(draw.choice([1, 2, 20]))]
        if draw.random() < 0.8:
            pairs = [(left, right) for left, right in pairs if left + right in tokens] or pairs
        sound = all(left + right in tokens for left, right in pairs)
        assert all_known([" ".join(pair) for pair in pairs], tokens) == sound
        told.add(sound)
    assert told == {True, False}
