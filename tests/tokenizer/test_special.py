"""Special ids and add_* flags. Expectations are what ``SpecialVocab`` of llama.cpp's gguf-py writes
(the one beside llama-cpp-python 0.3.36; PyPI's gguf 0.19, an older one, is asked where it agrees)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer.making import (
    BASE,
    QWEN2,
    VOCAB,
    VOCAB_SIZE,
    added,
    read,
    rules,
    save,
    sequence,
    split,
    tokenizer,
    values,
)
from tests.tokenizer.making import BYTES as WHOLE

ROLES = ("<s>", "</s>", "<pad>", "<cls>", "<sep>", "<mask>")
S, E, PAD, CLS, SEP = range(BASE, BASE + 5)
ADDED = [added(BASE + i, text, special=True) for i, text in enumerate(ROLES)]
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
IDS = {"bos": S, "eos": E, "padding": PAD}

A = {"Sequence": {"id": "A", "type_id": 0}}
B = {"Sequence": {"id": "B", "type_id": 1}}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
ROBERTA = {"type": "RobertaProcessing", "cls": ["<s>", S], "sep": ["</s>", E]}


def put(token: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": 0}}


def template(single: list[Any], pair: list[Any]) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}}


def ids_and_adds(directory: Path) -> tuple[dict[str, int], dict[str, bool]]:
    keys = values(read(directory))
    ids = {k.removeprefix("ggml.").removesuffix("_token_id"): v for k, v in keys.items() if k.endswith("_token_id")}
    adds = {k.removeprefix("ggml.add_").removesuffix("_token"): v for k, v in keys.items() if k.startswith("ggml.add_")}
    return ids, adds


def oracle(directory: Path) -> tuple[dict[str, int], dict[str, bool]]:
    import gguf

    special = gguf.SpecialVocab(directory)
    short = {"pad": "padding", "sep": "seperator", "unk": "unknown"}
    ids = {short.get(k, k): v for k, v in special.special_token_ids.items() if k not in ("mask", "cls")}
    return ids, {k: v for k, v in special.add_special_token.items() if k in ("bos", "eos", "sep")}


BOS_FIRST = template([put("<s>"), A], [put("<s>"), A, put("<s>"), B])
BOTH = template([put("<s>"), A, put("</s>")], [put("<s>"), A, put("</s>"), B, put("</s>")])
OTHER_END = template([A, put("<sep>")], [A, put("<sep>"), B, put("<sep>")])
OTHER_START = template([put("<cls>"), A], [put("<cls>"), A, B])
SEPARATED = template([put("<s>"), A], [put("<s>"), A, put("</s>"), B])
TWICE = template([put("<s>"), A, put("</s>")], [put("<s>"), A, put("</s>"), put("</s>"), B, put("</s>")])
PLAIN = template([A], [A, B])


@pytest.mark.parametrize(
    ("post_processor", "ids", "adds"),
    [
        (None, IDS, {}),
        (PLAIN, IDS, {}),
        (BOTH, IDS, {"bos": True, "eos": True, "sep": False}),
        (OTHER_END, {"bos": S, "eos": SEP, "padding": PAD, "eot": E}, {"eos": True, "sep": False}),
        (SEPARATED, {**IDS, "seperator": E}, {"bos": True, "sep": True}),
        (TWICE, {**IDS, "seperator": E}, {"bos": True, "eos": True, "sep": True}),
        (ROBERTA, {**IDS, "seperator": E}, {"bos": True, "eos": True, "sep": True}),
    ],
    ids=["none", "plain", "both", "other end", "separated", "twice", "roberta"],
)
def test_post_processors_as_both_versions_of_gguf_py(
    tmp_path: Path, post_processor: Any, ids: dict[str, int], adds: dict[str, bool]
) -> None:
    directory = save(tmp_path, tokenizer(*ADDED, post_processor=post_processor), NAMES, {})
    assert ids_and_adds(directory) == (ids, adds)
    assert oracle(directory) == (ids, adds)


@pytest.mark.parametrize(
    ("post_processor", "adds"),
    [
        (BYTES, {"bos": False, "eos": False}),
        ({"type": "Sequence", "processors": [BYTES, BOS_FIRST]}, {"bos": True, "eos": False, "sep": False}),
        (OTHER_START, {"bos": True}),
    ],
    ids=["bytes", "bytes and template", "another token first"],
)
def test_post_processors_as_the_newer_gguf_py(tmp_path: Path, post_processor: Any, adds: dict[str, bool]) -> None:
    directory = save(tmp_path, tokenizer(*ADDED, post_processor=post_processor), NAMES, {})
    assert ids_and_adds(directory) == (IDS, adds)


def test_order_is_ids_then_flags(tmp_path: Path) -> None:
    processors = {"type": "Sequence", "processors": [BYTES, BOS_FIRST]}
    config = {"bos_token_id": S}
    result = read(save(tmp_path, tokenizer(*ADDED, post_processor=processors), {**NAMES, "bos_token": None}, config))
    keys = [kv.key.removeprefix("tokenizer.ggml.") for kv in result.kvs[5:]]
    # BOS is last of the ids: it comes from config.json, the others from tokenizer_config.json
    assert keys == [f"{role}_token_id" for role in ("bos", "eos", "padding")] + [
        f"add_{r}_token" for r in ("bos", "eos", "sep")
    ]
    assert [int(kv.type) for kv in result.kvs[5:]] == [4, 4, 4, 7, 7, 7]


@pytest.mark.parametrize("role", ["bos", "eos"])
def test_cls_and_sep_stand_in_for_bos_and_eos(tmp_path: Path, role: str) -> None:
    directory = save(tmp_path, tokenizer(*ADDED), {"cls_token": "<cls>", "sep_token": "<sep>"})
    assert ids_and_adds(directory)[0][role] == {"bos": CLS, "eos": SEP}[role]
    assert ids_and_adds(directory) == oracle(directory)


def test_tokens_given_as_objects_count_like_names(tmp_path: Path) -> None:
    settings = {key: {"content": value, "__type": "AddedToken"} for key, value in NAMES.items()}
    directory = save(tmp_path, tokenizer(*ADDED, post_processor=BOTH), settings)
    assert ids_and_adds(directory) == (IDS, {"bos": True, "eos": True, "sep": False})


def test_flags_of_the_config_fill_what_the_post_processor_leaves_open(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(*ADDED), {**NAMES, "add_bos_token": True, "add_eos_token": False})
    assert ids_and_adds(directory) == (IDS, {"bos": True, "eos": False})
    assert ids_and_adds(directory) == oracle(directory)


def test_where_config_and_post_processor_disagree_it_is_told(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(*ADDED, post_processor=BYTES), {**NAMES, "add_bos_token": True})
    assert ids_and_adds(directory)[1] == {"bos": False, "eos": False}
    (finding,) = [f for f in read(directory).findings if f.rule == "tokenizer-add-token"]
    assert (finding.severity, finding.where) == ("info", "tokenizer.ggml.add_bos_token")


@pytest.mark.parametrize(
    ("settings", "config", "ids"),
    [
        ({"eos_token": "</s>"}, {"eos_token_id": 3}, {"eos": E}),  # tokenizer_config.json comes first
        ({"bos_token": None}, {"bos_token_id": S, "eos_token_id": E}, {"bos": S, "eos": E}),
        ({}, {"text_config": {"eos_token_id": E}}, {"eos": E}),  # multimodal
        ({}, {"eos_token_id": 3, "text_config": {"eos_token_id": E}}, {"eos": 3}),
        (None, {"eos_token_id": E}, {"eos": E}),
        ({}, {"pad_token_id": None, "bos_token_id": "x", "unk_token_id": True}, {}),
        ({}, {"mask_token_id": 5, "cls_token_id": 6}, {}),
    ],
)
def test_ids_of_config_json(tmp_path: Path, settings: Any, config: dict[str, Any], ids: dict[str, int]) -> None:
    directory = save(tmp_path, tokenizer(*ADDED), settings, config)
    assert ids_and_adds(directory)[0] == ids
    if True not in config.values():  # gguf-py takes true for the id 1
        assert oracle(directory)[0] == ids


@pytest.mark.parametrize(
    ("config", "ids", "told"),
    [
        ({"eos_token_id": [E, 3]}, {"eos": E}, ["tokenizer-many-ids"]),  # gguf-py writes none
        ({"pad_token_id": -1}, {}, []),  # gguf-py raises
        ({"pad_token_id": VOCAB_SIZE}, {}, ["tokenizer-special-range"]),  # gguf-py writes it
        ({"pad_token_id": -2}, {}, ["tokenizer-special-range"]),
        ({"eos_token_id": []}, {}, []),
    ],
)
def test_ids_that_gguf_py_mishandles(
    tmp_path: Path, config: dict[str, Any], ids: dict[str, int], told: list[str]
) -> None:
    directory = save(tmp_path, tokenizer(*ADDED), {}, config)
    assert ids_and_adds(directory)[0] == ids
    assert [rule for rule in rules(read(directory)) if rule != "tokenizer-padding"] == told


def test_token_named_but_not_declared_is_found_in_the_vocabulary(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(), {"eos_token": "he"}, {})
    assert ids_and_adds(directory)[0] == {"eos": VOCAB["he"]}


def test_declared_tokens_and_config_json_go_before_the_vocabulary(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(), {"eos_token": "he"}, {"eos_token_id": 7})
    assert ids_and_adds(directory)[0] == oracle(directory)[0] == {"eos": 7}


def test_config_json_goes_before_a_template_where_there_is_no_tokenizer_config(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(*ADDED, post_processor=OTHER_END), None, {"eos_token_id": E})
    assert ids_and_adds(directory) == oracle(directory) == ({"eos": E}, {"eos": True, "sep": False})


def test_generation_config_is_the_last_resort(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(*ADDED), {"bos_token": "<s>"}, {"pad_token_id": PAD})
    (directory / "generation_config.json").write_text('{"bos_token_id": 1, "pad_token_id": 2, "eos_token_id": [3, 4]}')
    assert ids_and_adds(directory)[0] == {"bos": S, "padding": PAD, "eos": 3}


GLM = {"[gMASK]": BASE, "<|endoftext|>": BASE + 1, "<|user|>": BASE + 2, "<|observation|>": BASE + 3}
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


@pytest.mark.parametrize(
    ("model_type", "settings", "expected"),
    [
        ("glm4_moe", {}, {"bos": BASE, "eot": BASE + 2, "unknown": BASE + 1, "eom": BASE + 3}),
        # what a file names has the first word
        (
            "glm_moe_dsa",
            {"bos_token": "<|endoftext|>"},
            {"bos": BASE + 1, "eot": BASE + 2, "unknown": BASE + 1, "eom": BASE + 3},
        ),
        ("llama", {}, {}),
    ],
)
def test_roles_that_only_the_family_knows(
    tmp_path: Path, model_type: str, settings: dict[str, Any], expected: dict[str, int]
) -> None:
    entries = [added(i, text, special=True) for text, i in GLM.items()]
    document = tokenizer(*entries, pre_tokenizer=sequence(split(LLAMA3), WHOLE))
    assert ids_and_adds(save(tmp_path, document, settings, {"model_type": model_type}))[0] == expected


def test_role_of_a_token_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    document = tokenizer(added(BASE, "<|user|>"), pre_tokenizer=sequence(split(LLAMA3), WHOLE))
    assert ids_and_adds(save(tmp_path, document, {}, {"model_type": "glm4"}))[0] == {"eot": BASE}
