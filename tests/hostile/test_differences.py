"""Each difference to ggml's and gguf-py's readers that is explained exists: no explanation outlives its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gguf_bytes import STRING
from tests.hostile.differences import WE_ACCEPT, WE_REFUSE, explain
from tests.hostile.ggml_child import Ggml
from tests.hostile.gguf_py import gguf_py_accepts
from tests.hostile.judge import judge
from tests.hostile.raw import Change, append, draft, put

BOTH_TAKE: dict[str, tuple[Callable[[], bytes], str]] = {
    "an empty tensor": (lambda: draft(empty), r"\[zero-dimension\]"),
    "no data": (lambda: draft()[:-300_000], r"\[truncated\]"),
    "a tensor without a name": (lambda: draft(append("", (8,))), r"\[tensor-name\]"),
    "a text that is not UTF-8": (lambda: draft(put("k", STRING, b"\xff")), r"\[bad-utf8\]"),
    "a NUL in a name": (lambda: draft(append("a\0b", (8,))), r"\[embedded-nul\]"),
    "alignment of 2 MB": (lambda: draft(aligned(1 << 21)), r"general\.alignment"),
    "20,000 entries": (lambda: draft(crowded), "are not read"),
    "a key of 70,000": (lambda: draft(put("k" * 70_000, 4, 1)), "has 70,000 bytes; more than 65,535"),
    "another part of a set": (lambda: draft(put("split.count", 2, 2), put("split.no", 2, 1)), "but not the first"),
    "a part whose set is not there": (lambda: draft(put("split.count", 2, 2)), r"\[split-file\]"),
}


def empty(raw: object) -> None:
    raw.infos["z"] = raw.build.tensor("z", (0, 4), 0, raw.data_bytes)  # type: ignore[attr-defined]


def aligned(alignment: int) -> Change:
    def change(raw: object) -> None:
        raw.alignment = alignment  # type: ignore[attr-defined]
        raw.put("general.alignment", 4, alignment)  # type: ignore[attr-defined]
        raw.infos.clear()  # type: ignore[attr-defined]

    return change


def crowded(raw: object) -> None:
    for index in range(20_000):
        raw.put(f"k{index}", 4, 1)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def ggml() -> Iterator[Ggml]:
    with Ggml() as process:
        yield process


@pytest.mark.parametrize("name", BOTH_TAKE)
def test_others_take_what_we_refuse(tmp_path: Path, ggml: Ggml, name: str) -> None:
    build, told = BOTH_TAKE[name]
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(build())
    assert ggml.accepts(path.read_bytes())
    outcome = judge(path)
    assert not outcome.sound
    assert explain(outcome.told, {told: "it"}), outcome.told
    assert explain(outcome.told, WE_REFUSE)


def test_every_explanation_has_its_file(tmp_path: Path) -> None:
    path = tmp_path / "dspark-x.gguf"
    used = set()
    for build, _ in BOTH_TAKE.values():
        path.write_bytes(build())
        used.add(explain(judge(path).told, WE_REFUSE))
    assert used == set(WE_REFUSE.values())


def test_we_take_the_other_byte_order(tmp_path: Path, ggml: Ggml) -> None:
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(draft(order=">"))
    assert not ggml.accepts(path.read_bytes())
    outcome = judge(path)
    assert outcome.sound
    assert explain(outcome.told, WE_ACCEPT)


def test_both_take_a_good_file_and_neither_a_bad_one(tmp_path: Path, ggml: Ggml) -> None:
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(draft())
    bad.write_bytes(draft()[:2000])
    for path, verdict in ((good, True), (bad, False)):
        assert ggml.accepts(path.read_bytes()) is verdict
        assert gguf_py_accepts(path) is verdict


def test_gguf_py_may_not_run_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row G29: 43 bytes over which version 0.19 never ends."""
    monkeypatch.setattr("tests.hostile.gguf_py.SECONDS", 1)
    path = tmp_path / "x.gguf"
    path.write_bytes(draft(lambda raw: raw.encoded("k", 9, raw.build.pack("IQ", 0, 2**62))))
    assert not gguf_py_accepts(path)
