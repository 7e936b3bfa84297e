"""A draft whose one table is embeddings and head, beside a target that has two: its head is nobody's to borrow."""

from __future__ import annotations

import pytest

from dspark_convert.runtime.proof import Proof
from tests.checkpoints import Pair
from tests.conftest import Convert

HEAD = "lm_head.weight"


def convert_to(pair: Pair, convert: Convert, target: str) -> list[str]:
    ended = convert(pair.draft, target, pair.root / ("target" if target.endswith("dir") else "target.gguf"), "--json")
    assert ended.code == (3 if ended.findings("error") else 0)
    return [rule for rule, _ in ended.findings("error")]


@pytest.mark.parametrize("target", ["--target-model-dir", "--target-gguf"])
def test_converter_refuses_it(pair: Pair, convert: Convert, target: str) -> None:
    pair.tensors(lambda tensors: tensors.pop(HEAD))
    pair.config({"tie_word_embeddings": True})
    assert convert_to(pair, convert, target) == ["shared-differs"]


def test_converter_lets_the_target_have_the_head_of_an_untied_draft(pair: Pair, convert: Convert) -> None:
    pair.tensors(lambda tensors: tensors.pop(HEAD))
    assert convert_to(pair, convert, "--target-gguf") == []


def test_validation_sees_it(pair: Pair, convert: Convert) -> None:
    out = pair.root / "draft.gguf"
    assert convert(pair.draft, "--target-gguf", pair.gguf, "-o", out).code == 0
    pair.tensors(lambda tensors: tensors.pop(HEAD))

    def judge() -> tuple[str, str]:
        check = Proof(out, pair.gguf, pair.draft, None).judge_files()[1]
        return check.status, check.detail

    assert judge()[0] == "pass"
    pair.config({"tie_word_embeddings": True})
    status, told = judge()
    assert status == "fail"
    assert told.startswith("the file borrows the target's output.weight")
