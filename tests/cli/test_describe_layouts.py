"""Drafts in other layouts in words: heads under any name, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.cli.describe import meaning_fields, next_step
from dspark_convert.inspection import inspect_file
from tests.cli.test_inspect import document
from tests.ggufio.layout_files import FILES, ds4, ds4_target, prism


def test_heads_are_found_under_their_own_names(tmp_path: Path) -> None:
    fields = dict(meaning_fields(inspect_file(prism().write(tmp_path / "x.gguf"))))
    assert fields["Markov head"] == "vanilla, rank 32 (BF16 and Q8_0)"
    assert fields["runs on"] == "PrismML's llama.cpp of July 2026"


@pytest.mark.parametrize("case", FILES)
def test_what_to_do_next(tmp_path: Path, case: str) -> None:
    path = FILES[case][1]().write(tmp_path / "dspark-x.gguf")
    heading, command = next_step(inspect_file(path, ds4_target(tmp_path / "target.gguf")))
    portable = case not in ("prism-conditioned", "log-snr", "ds41", "v4.1")
    if case == "mainline":
        assert command.startswith("llama-server ")
    elif portable:
        assert command == f"dspark-convert {path} --target-gguf TARGET.gguf"
    else:
        assert heading.startswith("It cannot be run")


def test_sizes_of_the_target_come_from_the_target(tmp_path: Path) -> None:
    path, target = ds4().write(tmp_path / "dspark-x.gguf"), ds4_target(tmp_path / "target.gguf")
    alone = inspect_file(path)
    assert alone.draft is None
    assert next_step(alone)[1] == f"dspark-convert {path} --target-gguf TARGET.gguf"
    found = document(path, "--target", target)
    assert found["draft"]["sliding_window"] == 8
    assert [f["severity"] for f in found["findings"] if f["rule"] == "layout-sizes"] == ["info"]
