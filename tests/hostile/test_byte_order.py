"""Row G27 of failures.md: a big-endian file is read as well as any, and it is said that it does not run here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dspark_convert.ggufio.reader import open_gguf
from tests.conftest import Convert
from tests.draft_file import DraftFile
from tests.ggufio.layout_files import FILES
from tests.stage_file import StageFile


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("make", [DraftFile, StageFile, *(make for _, make, _ in FILES.values())])
def test_g27_both_byte_orders_mean_the_same(
    tmp_path: Path, inspect: Convert, make: Callable[[], DraftFile], version: int
) -> None:
    documents = []
    for order in "<>":
        (tmp_path / order).mkdir()
        path = make().write(tmp_path / order / "dspark-x.gguf", order, version)
        documents.append(inspect("--json", path).document)
    little, big = documents
    assert (little["file"]["byte_order"], big["file"]["byte_order"]) == ("little", "big")
    for part in ("dialect", "draft", "metadata", "tensors"):
        assert little.get(part) == big.get(part)
    (more,) = [finding for finding in big["findings"] if finding not in little["findings"]]
    assert (more["rule"], more["severity"]) == ("big-endian", "error")
    assert "needs a byte swap to run on this machine" in more["message"]


def test_g27_strict(tmp_path: Path, inspect: Convert) -> None:
    path = DraftFile().write(tmp_path / "dspark-x.gguf", ">")
    ended = inspect("--strict", path)
    assert ended.code == 1
    assert "big-endian" in ended.out


def test_g27_the_values_are_there(tmp_path: Path) -> None:
    read = []
    for order in "<>":
        with open_gguf(DraftFile().write(tmp_path / "x.gguf", order)) as file:
            tensor = file.tensor("fc.weight")
            assert tensor is not None
            read.append(np.frombuffer(bytes(file.data(tensor)), f"{order}f4"))
    assert np.array_equal(read[0], read[1])
