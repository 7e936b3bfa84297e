"""Every key of a file against the checkpoint's facts: one wrong key, one sentence that names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFValueType

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.reference.facts import Facts, read_facts
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.stated import check_stated
from tests.mutations.copies import Value, read
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles


def check(pair: PairFiles, draft: Path, facts: Facts | None = None) -> Check:
    with open_gguf(draft) as ours:
        return check_stated(ours, facts or read_facts(pair.draft_dir))


def changed(pair: PairFiles, **kv: Any) -> Check:
    """The check of a copy whose ``dflash.<key>`` (dots as __) is set to (type, value), or removed by None."""

    def change(want: Expected) -> None:
        for name, value in kv.items():
            key = "dflash." + name.replace("__", ".")
            if value is None:
                del want.kv[key]
            else:
                want.kv[key] = value

    return check(pair, pair.broken("stated", change))


def test_right_file(random_pair: PairFiles) -> None:
    assert check(random_pair, random_pair.draft).status == "pass"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("block_size", ("UINT32", 6), "is 6, but the checkpoint has 7"),
        ("sample_from_anchor", ("BOOL", False), "is false, but the checkpoint has true"),
        ("target_layers", ("ARRAY[INT32]", [0, 1, 2]), "is [0, 1, 2], but the checkpoint has [1, 2, 3]"),
        ("has_confidence_head", ("BOOL", False), "is false"),
        ("attention.causal", ("BOOL", True), "is true, but the checkpoint has false"),
        ("block_count", ("UINT32", 2), "is 2, but the checkpoint has 3"),
        ("embedding_length", ("UINT32", 64), "is 64"),
        ("feed_forward_length", ("UINT32", 128), "is 128"),
        ("context_length", ("UINT32", 2048), "is 2048, but the checkpoint has 1024"),
        ("attention.head_count", ("UINT32", 8), "is 8"),
        ("attention.head_count_kv", ("UINT32", 4), "is 4, but the checkpoint has 2"),
        ("attention.key_length", ("UINT32", 16), "is 16"),
        ("attention.value_length", ("UINT32", 16), "is 16"),
        ("attention.layer_norm_rms_epsilon", ("FLOAT32", 1.0001e-6), "is 1.0001"),
        ("rope.freq_base", ("FLOAT32", 10001.0), "is 10001, but the checkpoint has 10000"),
        ("rope.dimension_count", ("UINT32", 16), "is 16, but the checkpoint has 32"),
        ("rope.scaling.type", ("STRING", "yarn"), "is yarn, but the checkpoint has none"),
        ("rope.scaling.factor", ("FLOAT32", 4.0), "is 4, but the checkpoint has nothing of the kind"),
        ("attention.sliding_window", ("UINT32", 128), "is 128, but the checkpoint has 0"),
        ("rope.dimension_sections", ("ARRAY[INT32]", [8, 8, 0, 0]), "is [8, 8, 0, 0]"),
        ("embedding_scale", ("FLOAT32", 2.0), "is 2, but the checkpoint has 1"),
        ("attention.scale", ("FLOAT32", 1.0), "is 1, but the checkpoint has 0.176776692"),
        ("attention.value_scale", ("FLOAT32", 0.5), "is 0.5, but the checkpoint has 1"),
        ("logit_scale", ("FLOAT32", 2.0), "is 2, but the checkpoint has 1"),
        ("final_logit_softcapping", ("FLOAT32", 30.0), "is 30, but the checkpoint has 0"),
        ("hidden_activation", ("STRING", "gelu"), "is gelu, but the checkpoint has silu"),
        ("conv_kernel_size", ("UINT32", 2), "is 2, but the checkpoint has nothing of the kind"),
        ("attention.key_length_swa", ("UINT32", 16), "is 16, but the checkpoint has nothing of the kind"),
        ("vocab_size", ("UINT32", 511), "is 511"),
    ],
)
def test_one_wrong_key(random_pair: PairFiles, key: str, value: Any, words: str) -> None:
    found = changed(random_pair, **{key.replace(".", "__"): value})
    assert found.status == "fail"
    assert found.detail.startswith(f"dflash.{key} {words}")
    assert ";" not in found.detail


@pytest.mark.parametrize("key", ["block_size", "target_layers", "rope.freq_base", "has_confidence_head"])
def test_key_that_is_missing_means_the_runtime_s_default(random_pair: PairFiles, key: str) -> None:
    found = changed(random_pair, **{key.replace(".", "__"): None})
    # 10000 and true are the defaults, and here also right
    assert found.status == ("pass" if key in ("rope.freq_base", "has_confidence_head") else "fail")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.dimension_count", ("UINT32", 32)),
        ("rope.scaling.type", ("STRING", "none")),
        ("attention.sliding_window", ("UINT32", 0)),
        ("attention.causal", ("BOOL", False)),
        ("attention.value_scale", ("FLOAT32", 0.0)),
        ("attention.scale", ("FLOAT32", 32**-0.5)),
        ("embedding_scale", ("FLOAT32", 1.0)),
        ("attention.head_count_kv", ("ARRAY[INT32]", [2, 2, 2])),
        ("rope.dimension_sections", ("ARRAY[INT32]", [16, 0, 0, 0])),
    ],
)
def test_harmless_spellings(random_pair: PairFiles, key: str, value: Any) -> None:
    assert changed(random_pair, **{key.replace(".", "__"): value}).status == "pass"


def test_mask_token(random_pair: PairFiles) -> None:
    path = random_pair.broken("mask", lambda want: want.kv.update({"tokenizer.ggml.mask_token_id": ("UINT32", 501)}))
    assert check(random_pair, path).detail == "tokenizer.ggml.mask_token_id is 501, but the checkpoint has 507"


def test_our_own_keys(random_pair: PairFiles) -> None:
    def change(want: Expected) -> None:
        want.kv["dspark.block_size"] = ("UINT32", 7)
        want.kv["dspark.markov_rank"] = ("UINT32", 8)
        want.kv["dspark.rope_style"] = ("STRING", "norm")

    found = check(random_pair, random_pair.broken("own", change)).detail
    assert found == (
        "dspark.markov_rank is 8, but the checkpoint has 16;"
        " dspark.rope_style is norm, but what the checkpoint needs is neox"
    )


def test_one_token_too_many(random_pair: PairFiles, tmp_path: Path) -> None:
    draft = read(random_pair.draft)
    draft.set("tokenizer.ggml.tokens", [*draft.kv["tokenizer.ggml.tokens"].value, "extra"])
    found = check(random_pair, draft.write(tmp_path / "more.gguf")).detail
    assert found == "tokenizer.ggml.tokens has 513 entries, but the checkpoint 512"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("tokenizer.ggml.tokens", "tokenizer.ggml.tokens has 0 entries, but the checkpoint 512"),
        ("dflash.rope.dimension_sections", "dflash.rope.dimension_sections is 5"),
    ],
)
def test_a_number_where_a_list_belongs(random_pair: PairFiles, tmp_path: Path, key: str, words: str) -> None:
    draft = read(random_pair.draft)
    draft.kv[key] = Value(GGUFValueType.UINT32, 5)
    assert words in check(random_pair, draft.write(tmp_path / "number.gguf")).detail


def test_early_layout_is_left_alone(random_pair: PairFiles, tmp_path: Path) -> None:
    copy = tmp_path / "early.gguf"
    shutil.copy(random_pair.draft, copy)
    data = copy.read_bytes().replace(b"general.architecture\x08\0\0\0\x06\0\0\0\0\0\0\0dflash",
                                     b"general.architecture\x08\0\0\0\x06\0\0\0\0\0\0\0dspark")  # fmt: skip
    copy.write_bytes(data)
    assert check(random_pair, copy).status == "skip"


def test_facts_of_a_draft_without_heads(random_pair: PairFiles, tmp_path: Path) -> None:
    """Without a Markov head llama.cpp reads from slot 1 whatever the flags say."""
    from safetensors.torch import load_file, save_file

    directory = tmp_path / "dflash"
    directory.mkdir()
    config = json.loads((random_pair.draft_dir / "config.json").read_text("utf-8"))
    changes = {"markov_rank": 0, "enable_confidence_head": False, "sample_from_anchor": False}
    (directory / "config.json").write_text(json.dumps(config | changes), "utf-8")
    tensors = load_file(random_pair.draft_dir / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "_head." not in name}
    save_file(kept, directory / "model.safetensors")

    def change(want: Expected) -> None:
        del want.kv["dflash.sample_from_anchor"], want.kv["dflash.has_confidence_head"]
        for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
            del want.tensors[name]

    path = random_pair.broken("headless", change)
    assert check(random_pair, path, read_facts(directory)).status == "pass"
    found = check(random_pair, path).detail
    assert found.startswith("the file has no Markov head, without which llama.cpp reads from the first mask on")
