"""Meaning, metadata and tensors of pairs that differ on purpose, and the sentence that says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.diff.compare import Diff, compare
from dspark_convert.diff.verdict import verdict
from tests.diff.pairs import Change, deep, fill, put, write_pair
from tests.draft_file import BOOL, F32, HIDDEN, I32, LAYERS, U32, VOCAB, DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.stage_file import StageFile


def diff_of(root: Path, change: Change, make: Any = DraftFile) -> Diff:
    return compare(*write_pair(root, change, make))


def fields(diff: Diff) -> dict[str, tuple[Any, Any]]:
    assert diff.meaning is not None
    return {each.field: (each.a, each.b) for each in diff.meaning}


def keys(diff: Diff) -> dict[str, str]:
    return {key.key: key.change for key in diff.metadata}


def other_taps(file: DraftFile) -> None:
    for prefix in ("dflash", "dspark"):
        file.kv[f"{prefix}.target_layers"] = (ARRAY, [1, 3, 4], I32)


def test_no_difference(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, lambda _file: None)
    assert diff.is_same
    assert (diff.meaning, diff.metadata, diff.tensors) == ((), (), ())
    assert verdict(diff) == "The same draft: no difference in meaning or tensors (values: --deep)"


def test_other_taps_and_mask(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        other_taps(file)
        file.kv["tokenizer.ggml.mask_token_id"] = (U32, 76, None)

    diff = diff_of(tmp_path, change)
    assert not diff.is_same
    assert fields(diff) == {"target_layers": ([1, 3, 5], [1, 3, 4]), "mask_token_id": (77, 76)}
    assert set(keys(diff)) == {"dflash.target_layers", "dspark.target_layers", "tokenizer.ggml.mask_token_id"}
    assert verdict(diff) == "Another draft: taps, mask token differ"


@pytest.mark.parametrize(
    ("key", "entry", "field", "value"),
    [
        ("dflash.sample_from_anchor", (BOOL, False, None), "sample_from_anchor", False),
        ("dflash.rope.freq_base", (F32, 1e4, None), "rope.freq_base", 1e4),
        ("dflash.attention.layer_norm_rms_epsilon", (F32, 1e-5, None), "rms_norm_eps", float(np.float32(1e-5))),
        ("dflash.context_length", (U32, 8192, None), "context_length", 8192),
        ("dflash.attention.causal", (BOOL, True, None), "causal", True),
        ("dflash.attention.sliding_window", (U32, 512, None), "sliding_window", 512),
    ],
)
def test_each_field_of_the_meaning(tmp_path: Path, key: str, entry: Any, field: str, value: Any) -> None:
    diff = diff_of(tmp_path, lambda file: file.kv.update({key: entry}))
    assert {name: b for name, (_, b) in fields(diff).items()} == {field: value}
    assert not diff.is_same


def test_a_stage_field(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, lambda file: file.kv.update({"dflash.expert_weights_scale": (F32, 2.5, None)}), StageFile)
    assert fields(diff) == {"deepseek4.expert_weights_scale": (1.5, 2.5)}
    assert verdict(diff) == "Another draft: expert weights scale differs"


def test_labels_make_no_other_draft(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        file.kv["general.name"] = (STRING, "Another name", None)
        del file.kv["dspark.source"]
        file.kv["general.license"] = (STRING, "mit", None)

    diff = diff_of(tmp_path, change)
    assert diff.is_same
    assert keys(diff) == {"general.name": "changed", "dspark.source": "only-a", "general.license": "only-b"}
    assert verdict(diff).startswith("The same draft, other labels: no difference")


def test_a_key_that_is_not_understood_counts(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, lambda file: file.kv.update({"dflash.novelty": (U32, 1, None)}))
    assert not diff.is_same
    assert verdict(diff) == "The same kind of draft, but other metadata (dflash.novelty)"


def test_another_type_of_the_same_value(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        file.kv["tokenizer.ggml.eos_token_id"] = (I32, 78, None)
        file.kv["tokenizer.ggml.token_type"] = (ARRAY, [1] * VOCAB, U32)

    diff = diff_of(tmp_path, change)
    assert {(key.key, key.change, key.types) for key in diff.metadata} == {
        ("tokenizer.ggml.eos_token_id", "type", ("UINT32", "INT32")),
        ("tokenizer.ggml.token_type", "type", ("[INT32]", "[UINT32]")),
    }


def test_another_vocabulary_by_its_first_tokens(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        kind, tokens, item = file.kv["tokenizer.ggml.tokens"]
        tokens = [f"new{i}" if i % 10 == 3 else text for i, text in enumerate(tokens)]
        file.kv["tokenizer.ggml.tokens"] = (kind, [*tokens, "more"], item)

    diff = diff_of(tmp_path, change)
    (key,) = diff.metadata
    assert key.items is not None
    assert (key.items.lengths, key.items.different) == ((80, 81), 9)
    assert key.items.first[0] == (3, "<3>", "new3")
    assert [index for index, _, _ in key.items.first] == [3, 13, 23, 33]
    assert verdict(diff) == "The same kind of draft, but another vocabulary"
    assert not diff.is_same


@pytest.mark.parametrize(("gone", "change"), [("a", "only-b"), ("b", "only-a")])
def test_a_list_that_only_one_has(tmp_path: Path, gone: str, change: str) -> None:
    a, b = write_pair(tmp_path, lambda file: file.kv.pop("tokenizer.ggml.token_type"))
    diff = compare(b, a) if gone == "a" else compare(a, b)
    (key,) = diff.metadata
    assert (key.key, key.change) == ("tokenizer.ggml.token_type", change)
    assert key.items is not None and key.items.lengths == ((0, VOCAB) if gone == "a" else (VOCAB, 0))


def test_a_list_that_ends_early_is_told_where(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        kind, tokens, item = file.kv["tokenizer.ggml.tokens"]
        file.kv["tokenizer.ggml.tokens"] = (kind, tokens[:78], item)

    (key,) = diff_of(tmp_path, change).metadata
    assert key.items is not None
    assert (key.items.different, key.items.first) == (2, ((78, "<78>", None), (79, "<79>", None)))


def test_tensors_lost_added_reshaped_and_of_another_type(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        del file.tensors["blk.0.attn_q_norm.weight"]
        put(file, "extra.weight", np.ones(8, np.float32))
        put(file, "blk.1.ffn_up.weight", np.ones((95, HIDDEN), np.float32))
        put(file, "blk.1.ffn_gate.weight", np.ones((96, HIDDEN), np.float32), "F16")

    a, b = write_pair(tmp_path, change)
    diff = compare(a, b)
    assert {tensor.name: tensor.change for tensor in diff.tensors} == {
        "blk.0.attn_q_norm.weight": "only-a",
        "extra.weight": "only-b",
        "blk.1.ffn_up.weight": "shape",
        "blk.1.ffn_gate.weight": "type",
    }
    assert not diff.is_same
    assert verdict(diff) == (
        "The same kind of draft, but 2 tensors are in one of them only; 1 of 28 tensors of another shape"
    )
    values = deep(a, b)
    assert not values.is_same
    assert {value.name for value in values.values or ()} == (
        set(DraftFile().tensors) - {"blk.0.attn_q_norm.weight"}
    ) - {"blk.1.ffn_up.weight"}


def test_other_types_alone_are_another_quantisation(tmp_path: Path) -> None:
    values = np.round(np.random.default_rng(1).normal(size=(96, HIDDEN)) * 4).astype(np.float32)

    def change(file: DraftFile) -> None:
        put(file, "blk.1.ffn_up.weight", values, "F16")

    def make() -> DraftFile:
        file = DraftFile()
        put(file, "blk.1.ffn_up.weight", values)
        return file

    first = make()
    second = make()
    change(second)
    a, b = first.write(tmp_path / "a.gguf"), second.write(tmp_path / "b.gguf")
    diff = compare(a, b)
    assert not diff.is_same  # what it holds is not known yet
    assert verdict(diff).startswith("The same draft, other quantisation: 1 of 29 tensors of another type, values not")


def early(file: DraftFile) -> None:
    """The same draft in the early layout: architecture and prefix, and the rank as a key."""
    moved = {key: entry for key, entry in file.kv.items() if key.startswith("dflash.")}
    for key, entry in moved.items():
        del file.kv[key]
        if not key.endswith(("sample_from_anchor", "has_confidence_head")):
            file.kv["dspark." + key.removeprefix("dflash.")] = entry
    file.kv["general.architecture"] = (STRING, "dspark", None)


def test_two_layouts_of_one_draft(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, early)
    assert (diff.a.dialect, diff.b.dialect) == ("dflash", "dspark")
    assert diff.meaning == ()
    assert not any(key.counts for key in diff.metadata)
    assert diff.is_same
    # Keys that only one layout has are told; those that mean the same are not.
    assert keys(diff) == {"dflash.sample_from_anchor": "only-a", "dflash.has_confidence_head": "only-a"}


def test_two_layouts_of_two_drafts(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        other_taps(file)
        early(file)

    diff = diff_of(tmp_path, change)
    assert set(fields(diff)) == {"target_layers"}
    assert keys(diff)["dflash.target_layers"] == "changed"


def test_sinks_without_their_suffix_are_the_same_tensor(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        for layer in range(3):
            name = f"blk.{layer}.attn_sinks.weight"
            file.tensors = {(key.removesuffix(".weight") if key == name else key): t for key, t in file.tensors.items()}
            file.data[name.removesuffix(".weight")] = file.data.pop(name)

    a, b = write_pair(tmp_path, change, StageFile)
    diff = deep(a, b)
    assert not diff.tensors
    assert {value.judgement for value in diff.values or ()} == {"identical"}


def test_a_meaning_that_cannot_be_read_is_no_equality(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, lambda file: file.kv.pop("dflash.block_count"))
    assert diff.meaning is None
    assert not diff.is_same
    assert verdict(diff).startswith("Not compared in full: the meaning of one of them cannot be read")


def test_two_copies_of_what_cannot_be_read_are_the_same(tmp_path: Path) -> None:
    def make() -> DraftFile:
        file = DraftFile()
        del file.kv["dflash.block_count"]
        return file

    diff = diff_of(tmp_path, lambda _file: None, make)
    assert diff.meaning is None
    assert diff.is_same
    assert verdict(diff).startswith("The same draft: no difference")
    assert not diff_of(tmp_path, other_taps, make).is_same


def test_two_layouts_that_cannot_be_read_are_not_the_same(tmp_path: Path) -> None:
    def make() -> DraftFile:
        file = DraftFile()
        del file.kv["dflash.block_count"]
        return file

    diff = diff_of(tmp_path, early, make)
    assert diff.meaning is None
    assert not diff.is_same


def test_a_layout_without_a_tokenizer_beside_itself_has_what_it_has(tmp_path: Path) -> None:
    def make() -> DraftFile:
        file = DraftFile()
        fill(file)
        prism(file)
        return file

    first, second = make(), make()
    second.kv["tokenizer.ggml.model"] = (STRING, "gpt2", None)
    diff = compare(first.write(tmp_path / "a.gguf"), second.write(tmp_path / "b.gguf"))
    assert keys(diff) == {"tokenizer.ggml.model": "changed"}
    assert not diff.is_same


def test_a_draft_with_a_window_in_every_layer(tmp_path: Path) -> None:
    """The pattern belongs to the meaning, which no key of ours repeats."""

    def make() -> DraftFile:
        file = DraftFile()
        file.kv["dflash.attention.sliding_window"] = (U32, 8, None)
        file.kv["dflash.attention.sliding_window_pattern"] = (ARRAY, [True] * LAYERS, BOOL)
        return file

    def change(file: DraftFile) -> None:
        file.kv["dflash.attention.sliding_window_pattern"] = (ARRAY, [True, False], BOOL)

    assert fields(diff_of(tmp_path, change, make)) == {"sliding_window_pattern": ([True, True], [True, False])}


#: PrismML's names, and mainline's
PRISM = {
    "dspark.fc.": "fc.",
    "dspark.hidden_norm.": "enc.output_norm.",
    "dspark.markov_head_a.": "markov_w1.",
    "dspark.markov_head_b.": "markov_w2.",
    "dspark.confidence_head.": "conf_proj.",
}


def prism(file: DraftFile) -> None:
    """The same draft in PrismML's first layout: taps one lower, other names, no vocabulary."""
    kv = {key: entry for key, entry in file.kv.items() if key.startswith("general.")}
    for key, entry in file.kv.items():
        if key.startswith("dflash.") and key.split(".")[1] not in ("block_size", "target_layers", "sample_from_anchor"):
            kv["dspark." + key.removeprefix("dflash.")] = entry
    del kv["dspark.has_confidence_head"]
    kind, taps, item = file.kv["dflash.target_layers"]
    kv |= {
        "general.architecture": (STRING, "dspark", None),
        "dspark.dspark.block_size": file.kv["dflash.block_size"],
        "dspark.dspark.target_layers": (kind, [tap - 1 for tap in taps], item),
        "dspark.dspark.mask_token_id": file.kv["tokenizer.ggml.mask_token_id"],
        "dspark.dspark.markov_rank": file.kv["dspark.markov_rank"],
        "dspark.dspark.confidence_head": (BOOL, True, None),
        "dspark.dspark.confidence_head_with_markov": (BOOL, True, None),
        "tokenizer.ggml.model": (STRING, "none", None),
    }
    file.kv = kv
    for theirs, mainline in PRISM.items():
        for name in [name for name in file.tensors if name.startswith(mainline)]:
            file.tensors[name.replace(mainline, theirs, 1)] = file.tensors.pop(name)
            file.data[name.replace(mainline, theirs, 1)] = file.data.pop(name)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_layout_with_other_names_and_taps(tmp_path: Path, swapped: bool) -> None:
    a, b = write_pair(tmp_path, prism)
    diff = deep(b, a) if swapped else deep(a, b)
    assert {diff.a.dialect, diff.b.dialect} == {"dflash", "dspark-prism"}
    assert diff.meaning == ()
    assert diff.tensors == ()
    assert {each.judgement for each in diff.values or ()} == {"identical"}
    assert diff.to_json()["target_keys_left_out"] is True
    assert diff.is_same


def test_a_layout_with_other_names_and_another_draft(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        other_taps(file)
        put(file, "fc.weight", np.ones((HIDDEN, 3 * HIDDEN), np.float32))
        prism(file)

    diff = deep(*write_pair(tmp_path, change))
    assert fields(diff) == {"target_layers": ([1, 3, 5], [1, 3, 4])}
    assert [each.name for each in diff.wrong_values] == ["fc.weight"]


def test_two_files_of_one_other_layout_keep_their_own_words(tmp_path: Path) -> None:
    first, second = DraftFile(), DraftFile()
    for file in (first, second):
        fill(file)
        prism(file)
    kind, taps, item = second.kv["dspark.dspark.target_layers"]
    second.kv["dspark.dspark.target_layers"] = (kind, [*taps[:2], 3], item)
    diff = compare(first.write(tmp_path / "a.gguf"), second.write(tmp_path / "b.gguf"))
    assert set(keys(diff)) == {"dspark.dspark.target_layers"}
    assert fields(diff) == {"target_layers": ([1, 3, 5], [1, 3, 4])}
