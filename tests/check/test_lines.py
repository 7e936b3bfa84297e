"""Lines of keys, in TOML of every spelling."""

from __future__ import annotations

import pytest

from dspark_convert.check import lines
from dspark_convert.check.lines import line_of

TEXT = '''\
# [[check]] in a comment
title = "one"

[[check]]
name = "a"
text = """
name = "not this"
[[check]]
"""   # ends here
# between
types = [
  "x",  # "]"
  "y",
]

[check.expect]
"block_size" = 7
inline = { taps = [1], deep = 2 }

[[check]] # second
expect.tensors = 3
"odd\\u0020key" = 1
'''


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("title",), 2),
        (("check", 0), 4),
        (("check", 0, "name"), 5),
        (("check", 0, "text"), 6),
        (("check", 0, "types"), 11),
        (("check", 0, "expect"), 16),
        (("check", 0, "expect", "block_size"), 17),
        (("check", 0, "expect", "inline", "deep"), 18),
        (("check", 1), 20),
        (("check", 1, "expect", "tensors"), 21),
        (("check", 1, "odd key"), 22),
    ],
)
def test_every_spelling(place: tuple[str | int, ...], line: int) -> None:
    assert line_of(TEXT, place) == line


def test_no_last_line_end() -> None:
    assert line_of("a = 1\n\nb = 2", ("b",)) == 3
    assert line_of("", ("b",)) == 1


def test_many_checks_are_not_parsed_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 500 checks took minutes to read: each of their lines was looked for in the whole file."""
    parsed: list[int] = []
    loads = lines.tomllib.loads
    monkeypatch.setattr(lines.tomllib, "loads", lambda text: parsed.append(len(text)) or loads(text))
    one = '[[check]]\nname = """\n[[check]]\n"""\n\n'
    text = one * 300
    assert [line_of(text, ("check", index, "name")) for index in range(300)] == [5 * index + 2 for index in range(300)]
    assert sum(parsed) < 20 * len(text)
