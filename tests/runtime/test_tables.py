"""Embeddings and head that a checkpoint leaves to its target, borrowed and copied, and the mask token's own row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.tables import MASK_ROW as REFERENCE_S
from dspark_convert.reference.weights import read_tensors
from dspark_convert.runtime.tables import MASK_ROW
from dspark_convert.runtime.values import Values, compare_values
from tests.mutations.copies import Copy, read
from tests.runtime.families import Change, FamilyFile

Family = Callable[[str], FamilyFile]

MASK = 507
EMBED, HEAD = "token_embd.weight", "output.weight"


def row(name: str, index: int, values: Callable[[Any], Any]) -> Change:
    def change(copy: Copy) -> None:
        table = copy.tensors[name].copy()
        table[index] = values(table)
        copy.tensors[name] = table

    return change


def borrow(copy: Copy) -> None:
    del copy.tensors[EMBED], copy.tensors[HEAD]


def flip_head(copy: Copy) -> None:
    copy.tensors[HEAD] = copy.tensors[HEAD][::-1]


def cut_head(copy: Copy) -> None:
    copy.tensors[HEAD] = copy.tensors[HEAD][:-1]


@pytest.mark.parametrize("name", ["mimo", "mimo_bare", "mimo_keyed"])
def test_file_has_the_target_s_tables_and_the_row(family: Family, name: str) -> None:
    copy, target = read(family(name).draft), read(family(name).target)
    differ = (copy.tensors[EMBED] != target.tensors[EMBED]).any(1)
    assert differ.nonzero()[0].tolist() == [MASK]
    np.testing.assert_array_equal(copy.tensors[HEAD], target.tensors[HEAD])
    assert family(name).judge()[1].status == "pass"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (row(EMBED, MASK, lambda table: table[MASK - 1]), "row 507 of token_embd.weight, the mask token's, is 1."),
        (row(EMBED, MASK, lambda table: table[MASK] * 1.01), "is 0.01 of its size away from mask_embedding.pt"),
        (row(EMBED, 9, lambda table: table[10]), "(1 of its 512 rows differ, the first is row 9)"),
        (
            row(HEAD, 9, lambda table: -table[9]),
            "output.weight is 0.083 of its size away from the target's",
        ),
        (flip_head, "output.weight is 1.4 of its size away from the target's output.weight, which the checkpoint"),
        (cut_head, "output.weight is [511, 128], but the target's output.weight [512, 128]"),
        (borrow, "the file borrows the target's token_embd.weight, whose row 507, the mask token's, is 1."),
    ],
)
def test_wrong_table_is_named(family: Family, change: Change, words: str) -> None:
    _, values = family("mimo").changed(change)
    assert values.status == "fail"
    assert words in values.detail
    assert ";" not in values.detail


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0"])
def test_target_of_another_type(family: Family, tmp_path: Path, kind: str) -> None:
    """Both roundings are allowed, and a row that neither explains is not."""
    file = family("mimo")
    target = read(file.target).write(tmp_path / "target.gguf", kind)
    assert file.judge(target=target)[1].status == "pass"
    assert file.changed(row(EMBED, 9, lambda table: table[9] * 1.1), target)[1].status == "fail"


def test_embeddings_of_the_checkpoint_s_own_with_a_row_for_the_mask(family: Family) -> None:
    """Then the two are one table, which the file has to hold."""
    file = family("specforge")
    embed, own = torch.randn(512, 128), torch.ones(128)
    tensors = {**read_tensors(file.directory), "embed_tokens.weight": embed, MASK_ROW: own}

    def judge(rows: torch.Tensor) -> Values:
        copy = read(file.draft)
        copy.tensors[EMBED] = rows.numpy()
        copy.tensors[HEAD] = read(file.target).tensors[HEAD]
        draft = copy.write(file.root / "own.gguf")
        with open_gguf(draft) as ours, open_gguf(file.target) as theirs:
            return compare_values(ours, theirs, tensors, read_facts(file.directory))

    right = embed.clone()
    right[MASK] = own
    values = judge(right)
    assert values.problems == []
    assert values.embed is not None
    assert values.embed.equal(right)
    assert not values.rounded
    (problem,) = judge(embed).problems
    assert problem.startswith("token_embd.weight is")
    assert problem.endswith("(1 of its 512 rows differ, the first is row 507)")


def test_embeddings_alone_are_the_head_too(family: Family) -> None:
    """llama.cpp takes a draft's embeddings for the head that it lacks, whatever the target has."""
    file = family("deepspec_qwen3")
    copy = read(file.converted(shared_tensors="include"))
    assert file.judge(copy.write(file.root / "both.gguf"))[1].status == "pass"
    del copy.tensors[HEAD]
    _, values = file.judge(copy.write(file.root / "one.gguf"))
    assert values.status == "fail"
    assert values.detail.startswith(
        "llama.cpp takes the file's own token_embd.weight for its head, which is 11 of its size"
    )


def test_row_goes_by_one_name() -> None:
    assert MASK_ROW == REFERENCE_S


def test_table_that_nobody_has(family: Family) -> None:
    """A target that is no model, and types that cannot be read."""
    file = family("mimo")
    target = read(file.target)
    for name in (EMBED, HEAD):
        del target.tensors[name]
    (first, second) = file.judge(target=target.write(file.root / "none.gguf"))[1].detail.split("; ")
    assert first == f"{EMBED} is in the file, but neither the checkpoint nor the target has it"
    assert second == f"{HEAD} is in the file, but neither the checkpoint nor the target has it"
    _, values = file.changed(borrow, file.root / "none.gguf")
    assert values.detail == f"the target has no {EMBED} to borrow; the target has no {HEAD} to borrow"
