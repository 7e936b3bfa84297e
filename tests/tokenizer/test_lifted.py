"""tokenizer.json read with its merges joined: the same as the JSON says, or as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer.lifted import read_tokenizer

PAIRS = [["Ġ", "t"], ['"', "\\"], ["\\", '",'], ["],", "["], ["\n", "é"], ["日", "\u2028"]]


def document(merges: Any) -> dict[str, Any]:
    return {"version": "1.0", "model": {"type": "BPE", "vocab": {"merges": 0, '"': 1}, "merges": merges}, "z": [1]}


def read(tmp_path: Path, data: str) -> dict[str, Any]:
    path = tmp_path / "tokenizer.json"
    path.write_text(data, "utf-8", newline="")
    return read_tokenizer(path)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("count", [1, 2, len(PAIRS)])
def test_pairs_are_joined(tmp_path: Path, count: int, ascii_only: bool) -> None:
    pairs = PAIRS[:count]
    found = read(tmp_path, json.dumps(document(pairs), indent=2, ensure_ascii=ascii_only))
    assert found == document([" ".join(pair) for pair in pairs])


def test_as_the_tokenizers_library_lays_it_out(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    model = models.BPE({"a": 0, "b": 1, "ab": 2, "aba": 3}, [("a", "b"), ("ab", "a")])
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"), pretty=True)
    assert read_tokenizer(tmp_path / "tokenizer.json")["model"]["merges"] == ["a b", "ab a"]


@pytest.mark.parametrize(
    "merges",
    [
        [["a", " "], ["b", "c"]],
        [["a b"], ["c", "d", "e"]],
        [["ab"], ["c", "d", "e"]],
        [["a" + " " * 8 + "b"], ["c", "d"]],
        [["a"], ["c" + " " * 8, "d"]],
        [["a", "b"], ["c"]],
        [["a", "b"], ["c", "d", "e"]],
        [["a", "b"], ["c", "\u0020"]],
        [["a", "b"], "c d"],
        [["a", "b"], ["c", 1]],
        [["a", "b"], ["c", ["d", "e"]]],
        [],
        ["a b"],
        None,
    ],
    ids=str,
)
def test_all_else_stays_as_it_stands(tmp_path: Path, merges: Any) -> None:
    assert read(tmp_path, json.dumps(document(merges), indent=2)) == document(merges)
    assert read(tmp_path, json.dumps(document(merges))) == document(merges)


def test_a_space_may_be_spelled_out(tmp_path: Path) -> None:
    data = json.dumps(document([["a", "b"], ["c", "?"]]), indent=2).replace("?", r"\u0020")
    assert read(tmp_path, data) == document([["a", "b"], ["c", " "]])


def test_merges_of_something_else_stay_there(tmp_path: Path) -> None:
    other = {"other": {"merges": [["a", "b"]]}, "model": {"merges": [["c", "d"]]}}
    found = read(tmp_path, json.dumps(other, indent=2))
    assert found["other"] == other["other"]
    assert found["model"]["merges"] in ([["c", "d"]], ["c d"])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"Ġ"', '"Ġ', "not valid JSON"),
        ('"t"', '"t" "u"', "not valid JSON"),
        ('"t"', '"t", "u": "v"', "not valid JSON"),
        ('"t"', '"t"], "x": ["u"', "not valid JSON"),
        ('"t"', r'"\x"', "not valid JSON"),
        ('"z": [', '"z": [ :', "at line 16, column 10"),
        ('"version"', '"z"', "key 'z' stands there twice"),
        ('"type"', '"merges"', "key 'merges' stands there twice"),
    ],
)
def test_what_is_no_json_is_told_by_its_own_lines(tmp_path: Path, old: str, new: str, says: str) -> None:
    data = json.dumps(document(PAIRS[:1]), indent=2, ensure_ascii=False)
    assert old in data
    with pytest.raises(InputError, match=says):
        read(tmp_path, data.replace(old, new, 1))
