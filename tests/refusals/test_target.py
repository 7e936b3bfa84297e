"""Targets that are not the draft's, or have no usable tokenizer (failures.md 1b, 1c, 2b)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from fixtures.tiny import make_tiny_pair
from tests.checkpoints import ABSENT, Pair, snapshot, write_tensors, zeros
from tests.conftest import Convert
from tests.oracle import read
from tests.refusals.case import Case, both, check_refused, config, put, tensors, without

TOKENIZER = (("tokenizer", "target"),)
HEAD, EMBED = "lm_head.weight", "embed_tokens.weight"
BOTH_DIFFER = (("shared-differs", EMBED), ("shared-differs", HEAD))


def target(**changes: Any) -> Callable[[Pair], object]:
    return lambda pair: pair.config(changes, "target")


def other_target(**options: Any) -> Callable[[Pair], object]:
    """Another target, in place of the draft's own."""

    def damage(pair: Pair) -> None:
        for path in pair.target.iterdir():
            path.unlink()
        made = make_tiny_pair(pair.root / "other", **options)
        for path in made.target_dir.iterdir():
            path.rename(pair.target / path.name)

    return damage


def no_tokenizer(pair: Pair) -> None:
    for path in pair.target.glob("tokenizer*"):
        path.unlink()


def more_tokens(pair: Pair) -> None:
    path = pair.target / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for i in range(20):
        token = {"id": 499 + i, "content": f"<|extra_{i}|>", "special": True}
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], **token})
    path.write_text(json.dumps(tokenizer))


def strange_splits(pair: Pair) -> None:
    path = pair.target / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": "[aeiou]+"}
    path.write_text(json.dumps(tokenizer))


def borrowed_head(pair: Pair) -> None:
    """D25: the draft has no head of its own, and the target's has more rows."""
    pair.tensors(without(HEAD))
    pair.config({"vocab_size": 640}, "target")


def one_head_row(pair: Pair) -> None:
    """Differs in the last row alone, which is among those looked at."""

    def change(tensors: Any) -> None:
        tensor = tensors[HEAD]
        tensors[HEAD] = tensor._replace(data=tensor.data[:-2] + b"\x80\x3f")

    pair.tensors(change)


GGUF = ("--target-gguf", "PAIR/target.gguf")

CASES = [
    Case("D31 wider", other_target(hidden_size=192), (("target-hidden-size", "hidden_size"),), ("128", "192")),
    Case("D31 of the same shape", other_target(seed=1), BOTH_DIFFER, ("--shared-tensors include", "64 of 64")),
    Case("D31 head alone", one_head_row, (("shared-differs", HEAD),), ("1 of 64", "row 511")),
    Case(
        "D20 fewer layers",
        other_target(target_layers_count=2),
        (("target-layers", "num_target_layers"), ("taps-out-of-range", "target_layer_ids")),
        ("4 layers", "has 2", "0 to 1"),
    ),
    Case("more layers", target(num_hidden_layers=5), (("target-layers", "num_target_layers"),), ("has 5",)),
    Case("D25 more rows", borrowed_head, (("target-vocabulary", "vocab_size"),), ("512", "640")),
    Case("vocabulary smaller", target(vocab_size=500), (("target-vocabulary", "vocab_size"),), ("512", "500")),
    Case("G17 no tokenizer", no_tokenizer, TOKENIZER, ("tokenizer.json",)),
    Case("G18 more tokens than rows", more_tokens, TOKENIZER, ("518", "512")),
    Case("G15 unknown pre-tokenizer", strange_splits, TOKENIZER, ("[aeiou]+", "--tokenizer-pre")),
    Case("no config", lambda pair: (pair.target / "config.json").unlink(), says=("the target", "no config.json")),
    Case("config is no object", lambda pair: (pair.target / "config.json").write_text("[]"), says=("object",)),
    Case("untappable, --strict", target(model_type="mamba2"), (), ("mamba2",), ("--strict",)),
    Case("no GGUF", lambda pair: pair.gguf.write_bytes(b"PK\3\4" + bytes(60)), says=("ZIP",), args=GGUF),
    Case("LFS pointer", lambda pair: pair.gguf.write_bytes(b"version https://git-lfs"), says=("LFS",), args=GGUF),
    Case("cut", lambda pair: pair.gguf.write_bytes(pair.gguf.read_bytes()[:5000]), says=("target.gguf",), args=GGUF),
    Case(
        "D20 and a draft problem with a GGUF",
        config(target_layer_ids=[0, 1, 77], mask_token_id=600),
        (("taps-out-of-range", "target_layer_ids"), ("config-value", "config.json: mask_token_id")),
        ("offers 0 to 3",),
        GGUF,
    ),
    Case(
        "the draft's problems and the target's together",
        both(no_tokenizer, target(vocab_size=500), tensors(put("x", "BF16", 1))),
        (("tensor-unknown", "x"), ("target-vocabulary", "vocab_size"), *TOKENIZER),
        ("3 problems",),
    ),
    Case(
        "no tokenizer, and a draft that cannot even be described",
        both(no_tokenizer, config(block_size=ABSENT)),
        (("config-missing", "block_size"), *TOKENIZER),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)


def edit_gguf(path: Path, **changes: Any) -> None:
    """Write the file anew without tensors, with some keys set to strings or integers, or taken away."""
    kept = read(path).kv
    writer = gguf.GGUFWriter(path, changes.pop("architecture", "qwen3"))
    fields = {key: value for key, value in kept.items() if key != "general.architecture"}
    for key, value in changes.items():
        fields[key] = ("UINT32" if isinstance(value, int) else "STRING", value)
    for key, (kind, value) in fields.items():
        if value is None:
            continue
        name, _, item = kind.removesuffix("]").partition("[")
        item_type = gguf.GGUFValueType[item] if item else None
        writer.add_key_value(key, value, gguf.GGUFValueType[name], sub_type=item_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("changes", "rule", "says"),
    [
        ({"qwen3.embedding_length": 192}, "target-hidden-size", "192"),
        ({"qwen3.block_count": 3}, "target-layers", "has 3"),
        ({"tokenizer.ggml.model": "none"}, "tokenizer", "--target-model-dir"),
    ],
)
def test_target_gguf_that_does_not_fit(
    changes: dict[str, Any], rule: str, says: str, pair: Pair, convert: Convert
) -> None:
    edit_gguf(pair.gguf, **changes)
    before = snapshot(pair.root)
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--json")
    assert ended.code == 3
    assert {found for found, _ in ended.findings("error")} - {"taps-out-of-range"} == {rule}
    assert says in ended.told
    assert snapshot(pair.root) == before


@pytest.mark.parametrize("architecture", ["dflash", "dspark"])
def test_draft_given_as_the_target_gguf(architecture: str, pair: Pair, convert: Convert) -> None:
    edit_gguf(pair.gguf, architecture=architecture)
    ended = convert(pair.draft, "--target-gguf", pair.gguf)
    assert ended.code == 3
    assert f"itself a draft ({architecture})" in ended.err


@pytest.mark.parametrize("repo", ["no-slash", "a/b/c", "../..", "org/na me", ""])
def test_a_targets_repository_is_only_believed_if_it_is_one(repo: str, pair: Pair, convert: Convert) -> None:
    edit_gguf(pair.gguf, **{"general.source.huggingface.repository": repo})
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--dry-run", "--json")
    assert ended.code == 0
    metadata = ended.document["plan"]["metadata"]
    assert metadata["dspark.target.name"] == metadata["general.base_model.0.name"] == "target"
    assert "general.base_model.0.repo_url" not in metadata


def test_another_targets_tables_can_be_written(pair: Pair, convert: Convert) -> None:
    other_target(seed=1)(pair)
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--shared-tensors", "include", "--json")
    assert ended.code == 0
    assert ended.findings("info")[:2] == list(BOTH_DIFFER)


def test_own_tables_make_up_for_a_target_that_rotates_its(pair: Pair, convert: Convert) -> None:
    edit_gguf(pair.gguf, **{"prism.hadamard.seed": 7})
    args = (pair.draft, "--target-gguf", pair.gguf, "--strict", "--dry-run", "--json")
    borrowed = convert(*args)
    assert (borrowed.code, borrowed.findings("warning")) == (3, [("target-transformed", "target.gguf")])
    assert convert(*args, "--shared-tensors", "include").code == 0


def test_damaged_weights_of_the_target_are_not_needed(pair: Pair, convert: Convert) -> None:
    weights = pair.target / "model.safetensors"
    args = (pair.draft, "--target-model-dir", pair.target, "--dry-run")
    weights.write_bytes(weights.read_bytes()[:-4000])
    assert convert(*args).code == 0
    (pair.target / "model.safetensors.index.json").write_text("{}")
    assert convert(*args).code == 0
    weights.unlink()
    assert convert(*args).code == 0
    write_tensors(weights, {HEAD: zeros("BF16", 0, 128)})
    assert convert(*args).code == 0


def test_a_sharded_target_is_compared_too(pair: Pair, convert: Convert) -> None:
    weights = pair.target / "model.safetensors"
    weights.rename(pair.target / "a.safetensors")
    write_tensors(pair.target / "b.safetensors", {HEAD: zeros("BF16", 512, 128)})
    index = {"weight_map": {HEAD: "b.safetensors", "model.embed_tokens.weight": "a.safetensors"}}
    (pair.target / "model.safetensors.index.json").write_text(json.dumps(index))
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run", "--json")
    assert ended.findings("error") == [("shared-differs", HEAD)]


def test_chat_template_can_be_left_out(pair: Pair, convert: Convert) -> None:
    for flag in (("--target-model-dir", pair.target), ("--target-gguf", pair.gguf)):
        keys = {}
        for more in ((), ("--no-chat-template",)):
            ended = convert(pair.draft, *flag, "--dry-run", "--json", *more)
            keys[more] = set(ended.document["plan"]["metadata"])
        assert keys[()] - keys["--no-chat-template",] == {"tokenizer.chat_template"}


def test_a_template_that_reaches_for_attributes_is_told(pair: Pair, convert: Convert) -> None:
    path = pair.target / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["chat_template"] = "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}"
    path.write_text(json.dumps(settings))
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run", "--json")
    assert ended.code == 0
    assert "__class__" in ended.told
    quiet = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run", "--json", "--no-chat-template")
    assert "__class__" not in quiet.told
