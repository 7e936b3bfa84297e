"""Files broken on purpose: each is refused by a sentence, before any native code sees it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from dspark_convert.errors import InputError
from dspark_convert.runtime.precheck import precheck
from dspark_convert.runtime.shape import DraftShape
from tests.family_file import FAMILIES
from tests.mutations.copies import read
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, make_random_pair

Change = Callable[[Expected], Any]


def set_kv(key: str, kind: str, value: Any) -> Change:
    return lambda want: want.kv.__setitem__(key, (kind, value))


def drop_kv(key: str) -> Change:
    return lambda want: want.kv.pop(key)


def drop_tensor(name: str) -> Change:
    return lambda want: want.tensors.pop(name)


def add_embeddings(want: Expected) -> None:
    data = np.zeros((512, 128), np.float32).tobytes()
    want.tensors["token_embd.weight"] = ("F32", (128, 512), data)


BROKEN: dict[str, tuple[Change, str, str]] = {
    "block-size-missing": (drop_kv("dflash.block_size"), "draft", "block_size"),
    "block-size-zero": (set_kv("dflash.block_size", "UINT32", 0), "draft", "block size is 0"),
    "block-size-huge": (set_kv("dflash.block_size", "UINT32", 300), "draft", "300"),
    "block-size-text": (set_kv("dflash.block_size", "STRING", "7"), "draft", "block_size"),
    "taps-missing": (drop_kv("dflash.target_layers"), "draft", "target_layers"),
    "tap-negative": (set_kv("dflash.target_layers", "ARRAY[INT32]", [-1, 2, 3]), "draft", "negative"),
    "tap-past-the-end": (set_kv("dflash.target_layers", "ARRAY[INT32]", [1, 2, 77]), "pair", "0 to 3"),
    "tap-behind-the-last": (set_kv("dflash.target_layers", "ARRAY[INT32]", [1, 2, 4]), "pair", "0 to 3"),
    "other-layer-count": (set_kv("dspark.target.block_count", "UINT32", 5), "pair", "a target of 5 layers"),
    "taps-too-few": (set_kv("dflash.target_layers", "ARRAY[INT32]", [1, 2]), "draft", "fc.weight"),
    "mask-out-of-range": (set_kv("tokenizer.ggml.mask_token_id", "UINT32", 512), "draft", "mask token is 512"),
    "heads-zero": (set_kv("dflash.attention.head_count_kv", "UINT32", 0), "draft", "heads"),
    "heads-uneven": (set_kv("dflash.attention.head_count_kv", "UINT32", 3), "draft", "3 key/value heads"),
    "key-length-zero": (set_kv("dflash.attention.key_length", "UINT32", 0), "draft", "heads are 0 wide"),
    "confidence-lost": (drop_tensor("conf_proj.weight"), "draft", "conf_proj.weight"),
    "tensor-lost": (drop_tensor("blk.1.attn_k.weight"), "draft", "blk.1.attn_k.weight"),
    "embeddings-alone": (add_embeddings, "draft", "token_embd.weight"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_draft_is_refused(random_pair: PairFiles, name: str) -> None:
    change, check, words = BROKEN[name]
    checks, shape = precheck(random_pair.broken(name, change), random_pair.target)
    assert shape is None
    assert [c.name for c in checks] == ["draft", "pair"]
    failed = [c for c in checks if c.status == "fail"]
    assert [c.name for c in failed] == [check]
    assert words in failed[0].detail


def test_good_pair(random_pair: PairFiles) -> None:
    checks, shape = precheck(random_pair.draft, random_pair.target)
    assert [(c.name, c.status) for c in checks] == [("draft", "pass"), ("pair", "pass")]
    assert shape == DraftShape(7, reads_anchor=True, mask_token_id=507, causal=False, has_confidence_head=True)
    assert shape.drafts_per_block == 7


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("dspark", "Markov rank 32, mask token 77,"),
        ("dflash", "no Markov head, mask token 77,"),
        ("dflash2", "selector of rank 8 over 7 candidates, mask token 77,"),
    ],
)
def test_what_chains_the_tokens_is_told(tmp_path: Path, random_pair: PairFiles, family: str, words: str) -> None:
    check, _ = precheck(FAMILIES[family]().write(tmp_path / "x.gguf"), random_pair.target)[0]
    assert (check.name, check.status) == ("draft", "pass")
    assert words in check.detail


def test_flags_reach_the_shape(random_pair: PairFiles) -> None:
    def change(want: Expected) -> None:
        want.kv["dflash.sample_from_anchor"] = ("BOOL", False)
        want.kv["dflash.attention.causal"] = ("BOOL", True)

    _, shape = precheck(random_pair.broken("flags", change), random_pair.target)
    assert shape is not None
    assert (shape.reads_anchor, shape.causal, shape.drafts_per_block) == (False, True, 6)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hidden_size": 64}, "hidden states of 128"),
        ({"vocab_size": 544}, "512 tokens"),
        ({"target_layers_count": 3}, "0 to 2"),
    ],
)
def test_other_target_is_refused(random_pair: PairFiles, tmp_path: Path, sizes: Any, words: str) -> None:
    other = make_random_pair(tmp_path, **sizes)
    checks, shape = precheck(random_pair.draft, other.target)
    assert shape is None
    assert (checks[1].name, checks[1].status) == ("pair", "fail")
    assert words in checks[1].detail


def test_other_tokens_are_refused(random_pair: PairFiles, tmp_path: Path) -> None:
    """Same size, two tokens swapped: the draft would speak another language."""
    tokens = gguf.GGUFReader(random_pair.target).fields["tokenizer.ggml.tokens"].contents()
    first, second = [token for token in tokens if len(token) == 4 and token.isascii()][:2]
    stored = [struct.pack("<Q", 4) + token.encode() for token in (first, second)]
    data = random_pair.target.read_bytes()
    places = [data.index(item) for item in stored]
    for place, item in zip(places, reversed(stored), strict=True):
        data = data[:place] + item + data[place + len(item) :]
    (tmp_path / "swapped.gguf").write_bytes(data)
    checks, _ = precheck(random_pair.draft, tmp_path / "swapped.gguf")
    assert checks[1].status == "fail"
    words = f"2 tokens differ, the first is {tokens.index(first)}: {first!r} in the draft, {second!r} in the target"
    assert words in checks[1].detail


def test_tokens_shifted_by_one_are_refused(random_pair: PairFiles, tmp_path: Path) -> None:
    draft = read(random_pair.draft)
    tokens = draft.kv["tokenizer.ggml.tokens"].value
    draft.set("tokenizer.ggml.tokens", [*tokens[1:], tokens[0]])
    checks, shape = precheck(draft.write(tmp_path / "shifted.gguf"), random_pair.target)
    assert shape is None
    assert [(c.name, c.status) for c in checks] == [("draft", "pass"), ("pair", "fail")]
    assert "512 tokens differ, the first is 0" in checks[1].detail


def test_one_token_too_many_is_refused(random_pair: PairFiles, tmp_path: Path) -> None:
    draft = read(random_pair.draft)
    draft.set("tokenizer.ggml.tokens", [*draft.kv["tokenizer.ggml.tokens"].value, "extra"])
    checks, shape = precheck(draft.write(tmp_path / "more.gguf"), random_pair.target)
    assert shape is None
    assert "the vocabulary has 513 tokens" in checks[0].detail


def test_other_padding_passes(random_pair: PairFiles, tmp_path: Path) -> None:
    """Tokens that the target calls unused are never written by it."""
    draft = read(random_pair.draft)
    draft.set("tokenizer.ggml.tokens", [*draft.kv["tokenizer.ggml.tokens"].value[:-1], "<unused>"])
    checks, shape = precheck(draft.write(tmp_path / "padding.gguf"), random_pair.target)
    assert ([check.status for check in checks], shape is None) == (["pass", "pass"], False)


def test_target_without_tokens_is_refused(random_pair: PairFiles, tmp_path: Path) -> None:
    target = read(random_pair.target)
    del target.kv["tokenizer.ggml.tokens"]
    checks, shape = precheck(random_pair.draft, target.write(tmp_path / "target.gguf"))
    assert shape is None
    assert (checks[1].status, "the target holds no list of tokens" in checks[1].detail) == ("fail", True)


@pytest.mark.parametrize("types", [1, None])
def test_other_types_of_tokens_are_told_and_pass(random_pair: PairFiles, tmp_path: Path, types: int | None) -> None:
    """Converters disagree on some types; a draft's text is never split."""
    key = "tokenizer.ggml.token_type"
    draft = read(random_pair.draft)
    if types is None:
        del draft.kv[key]
    else:
        draft.set(key, [*draft.kv[key].value[:300], 4, *draft.kv[key].value[301:]])
    checks, shape = precheck(draft.write(tmp_path / "types.gguf"), random_pair.target)
    assert [(c.name, c.status) for c in checks] == [("draft", "pass"), ("pair", "pass")]
    assert shape is not None
    assert f"({types or 512} token types are not the target's, which changes nothing)" in checks[1].detail
    same, _ = precheck(random_pair.draft, random_pair.target)
    assert "token types" not in same[1].detail


def test_other_merges_are_refused(random_pair: PairFiles, tmp_path: Path) -> None:
    draft = read(random_pair.draft)
    merges = draft.kv["tokenizer.ggml.merges"].value
    draft.set("tokenizer.ggml.merges", [*merges[1::-1], *merges[2:]])
    checks, _ = precheck(draft.write(tmp_path / "merges.gguf"), random_pair.target)
    assert [(c.name, c.status) for c in checks] == [("draft", "pass"), ("pair", "fail")]
    assert checks[1].detail == "tokenizer.ggml.merges: it is not the target's, although the tokens are."


def test_embeddings_alone_are_judged_with_the_target(random_pair: PairFiles, tmp_path: Path) -> None:
    """Our converter writes the table alone for a tied target: then it must be one."""

    def change(want: Expected) -> None:
        add_embeddings(want)
        want.kv["dspark.converter_version"] = ("STRING", "0")

    checks, shape = precheck(random_pair.broken("alone", change), random_pair.target)
    assert shape is None
    assert "needs both or neither" in checks[1].detail
    tied = make_random_pair(tmp_path, tie=True)
    assert precheck(tied.broken("alone", change), tied.target)[1] is not None


def test_wrong_kinds_of_file(random_pair: PairFiles, tmp_path: Path) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("not a model")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(random_pair.draft.read_bytes()[:-1000])
    for draft, target, words in (
        (text, random_pair.target, "is no GGUF file"),
        (random_pair.target, random_pair.target, "is a complete qwen3 model"),
        (random_pair.draft, random_pair.draft, "is itself a draft"),
        (cut, random_pair.target, "is damaged"),
    ):
        with pytest.raises(InputError, match=words):
            precheck(draft, target)


def test_positions_have_four_axes_where_rope_has_sections(random_pair: PairFiles) -> None:
    sections = set_kv("dflash.rope.dimension_sections", "ARRAY[INT32]", [16, 0, 0, 0])
    _, shape = precheck(random_pair.broken("mrope", sections), random_pair.target)
    assert shape is not None
    assert shape.position_axes == 4


def test_early_layout_is_refused(random_pair: PairFiles) -> None:
    from tests import oracle

    want = oracle.expected(random_pair.draft_dir, random_pair.target_dir, "f32", dialect="dspark")
    path = random_pair.root / "early.gguf"
    oracle.write(want, path, random_pair.target)
    checks, shape = precheck(path, random_pair.target)
    assert shape is None
    assert "early DSpark layout" in checks[0].detail


def test_of_many_problems_a_few_are_told(random_pair: PairFiles) -> None:
    broken = random_pair.broken("ff", set_kv("dflash.feed_forward_length", "UINT32", 3))
    checks, _ = precheck(broken, random_pair.target)
    assert checks[0].detail.count("the metadata says") == 4
    assert checks[0].detail.endswith("; and 5 more, which dspark-inspect lists.")


@pytest.mark.parametrize("key", ["tokenizer.ggml.merges", "dflash.rope.dimension_sections"])
def test_a_number_where_a_list_belongs_is_no_fault(key: str, random_pair: PairFiles) -> None:
    checks, _ = precheck(random_pair.broken("number", set_kv(key, "UINT32", 5)), random_pair.target)
    assert checks[0].name == "draft"


def test_a_long_token_is_not_told_whole(random_pair: PairFiles, tmp_path: Path) -> None:
    draft = read(random_pair.draft)
    tokens = list(draft.kv["tokenizer.ggml.tokens"].value)
    draft.set("tokenizer.ggml.tokens", [*tokens[:300], "z" * 100_000, *tokens[301:]])
    checks, _ = precheck(draft.write(tmp_path / "long.gguf"), random_pair.target)
    assert "1 token differs" in checks[1].detail
    assert len(checks[1].detail) < 300
