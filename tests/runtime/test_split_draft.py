"""llama.cpp itself loads a split draft, and drafts with it as with the whole file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.convert import Request, prepare, write
from dspark_convert.errors import InputError
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.options import Options
from dspark_convert.runtime.validation import validate
from tests.runtime.pairs import PairFiles, make_random_pair

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return make_random_pair(tmp_path_factory.mktemp("pair"))


def convert(pair: PairFiles, path: Path, split: int | None) -> list[Path]:
    request = Request(pair.draft_dir, None, pair.target, path, Options(), split_max_size=split)
    return [file.path for file in write(prepare(request), request).files]


@pytest.mark.parametrize("first_alone", [False, True], ids=["tensors", "metadata-alone"])
def test_a_split_draft_runs_as_the_whole_one(pair: PairFiles, tmp_path: Path, first_alone: bool) -> None:
    (whole,) = convert(pair, tmp_path / "whole.gguf", None)
    parts = convert(pair, tmp_path / "split.gguf", 105_000 if first_alone else 300_000)
    assert len(parts) >= 3
    with GGUFFile(parts[0]) as first:
        assert first_alone == (not first.tensors)
    reports = [
        validate(path, pair.target, max_tokens=16, prompts=["a b c", "d e"], timeout=60) for path in (whole, parts[0])
    ]
    for report in reports:
        statuses = {check.name: check.status for check in report.checks}
        assert statuses["load"] == statuses["lossless"] == "pass", report.checks
    assert reports[0].acceptance == reports[1].acceptance


def test_a_set_with_a_part_missing_never_reaches_it(pair: PairFiles, tmp_path: Path) -> None:
    parts = convert(pair, tmp_path / "split.gguf", 300_000)
    parts[1].unlink()
    with pytest.raises(InputError, match=r"1 of its \d parts are missing: split-00002-of-"):
        validate(parts[0], pair.target, max_tokens=4, prompts=["a"], timeout=60)


def test_another_part_is_refused(pair: PairFiles, tmp_path: Path) -> None:
    parts = convert(pair, tmp_path / "split.gguf", 300_000)
    with pytest.raises(InputError, match=r"not the first; give that, split-00001-of-"):
        validate(parts[1], pair.target, max_tokens=4, prompts=["a"], timeout=60)
