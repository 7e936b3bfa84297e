"""--lib names the ggml library that makes the types which ggml has to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.tensors.ggml_quants import find_library
from tests.checkpoints import Pair
from tests.conftest import Convert


def test_the_library_that_is_named_makes_the_same_file_as_the_installed_one(pair: Pair, convert: Convert) -> None:
    command = (pair.draft, "--target-gguf", pair.gguf, "--outtype", "q4_k")
    assert convert(*command, "-o", "installed.gguf").code == 0
    assert convert(*command, "-o", "named.gguf", "--lib", str(find_library())).code == 0
    assert Path("installed.gguf").read_bytes() == Path("named.gguf").read_bytes()


@pytest.mark.parametrize("name", ["none.so", "text.so"])
def test_a_library_that_is_none_is_told_before_anything_is_written(name: str, pair: Pair, convert: Convert) -> None:
    Path("text.so").write_text("x\n")
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--outtype", "q4_k", "--lib", name)
    assert (ended.code, ended.out) == (4, "")
    assert name in ended.err
    assert [path.name for path in Path.cwd().iterdir()] == ["text.so"]
