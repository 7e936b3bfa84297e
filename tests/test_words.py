"""Values and names in messages stay short, whatever a file holds."""

from __future__ import annotations

import pytest

from dspark_convert.words import listed, shown


def test_shown_is_short() -> None:
    assert shown("ab") == "'ab'"
    assert shown(["x"] * 10_000).endswith("...")
    assert len(shown({"a": "b" * 1000})) == 60


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (3, "a, b, c"), (4, "a, b, c and 1 more"), (6, "a, b, c and 3 more")]
)
def test_listed_counts_what_it_leaves_out(count: int, text: str) -> None:
    assert listed(list("abcdef")[:count], 3) == text
