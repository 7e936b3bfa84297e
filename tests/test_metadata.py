"""The runtime's keys of a Draft: names, types and values as llama.cpp reads them, and read back as the same Draft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_convert import metadata
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.source.provenance import Provenance
from tests.draft_file import HEAD_DIM
from tests.family_file import FAMILIES, ROTATED, WINDOW

WINDOWED = {
    "attention.sliding_window": ("UINT32", WINDOW),
    "attention.sliding_window_pattern": ("BOOL", [True, True]),
}

#: key behind "dflash." -> (type or item type, value), of what the plain draft does not have
EXTRA: dict[str, dict[str, tuple[str, Any]]] = {
    "dspark": {},
    "dflash": {},
    "speculators-dflash": {
        "attention.sliding_window": ("UINT32", WINDOW),
        "attention.sliding_window_pattern": ("BOOL", [True, False]),
        "attention.causal": ("BOOL", False),
    },
    "speculators-dspark": {**WINDOWED, "attention.causal": ("BOOL", True)},
    "nemotron": {**WINDOWED, "attention.causal": ("BOOL", True)},
    "mimo": {
        "rope.dimension_count": ("UINT32", HEAD_DIM // 2),
        **WINDOWED,
        "attention.value_scale": ("FLOAT32", pytest.approx(0.612)),
    },
    "kimi": {
        "rope.scaling.type": ("STRING", "yarn"),
        "rope.scaling.factor": ("FLOAT32", 16.0),
        "rope.scaling.original_context_length": ("UINT32", 256),
        # llama.cpp lengthens by this times 0.1 ln 16 + 1, which makes the 1.5 of training
        "rope.scaling.attn_factor": ("FLOAT32", pytest.approx(1.17438996)),
        "rope.scaling.yarn_attn_factor": ("FLOAT32", 1.5),
    },
    "dflash2": {
        **WINDOWED,
        "embedding_scale": ("FLOAT32", 2.0),
        "logit_scale": ("FLOAT32", 0.25),
        "final_logit_softcapping": ("FLOAT32", 20.0),
        "conv_kernel_size": ("UINT32", 3),
        "conv_group_size": ("UINT32", 16),
        "selector_rank": ("UINT32", 8),
        "selector_top_k": ("UINT32", 7),
    },
    "gemma4": {
        "attention.scale": ("FLOAT32", 1.0),
        "embedding_scale": ("FLOAT32", 8.0),
        "hidden_activation": ("STRING", "gelu_pytorch_tanh"),
    },
}


def read(path: Path) -> Any:
    with open_gguf(path) as gguf:
        return read_draft(gguf).draft


@pytest.mark.parametrize("family", FAMILIES)
def test_the_runtimes_keys(tmp_path: Path, family: str) -> None:
    draft, plain = read(FAMILIES[family]().write(tmp_path / "x.gguf")), read(FAMILIES["dspark"]().write(tmp_path / "p"))
    common = {kv.key for kv in metadata.runtime(plain, mrope=False)}
    extra = {
        kv.key.removeprefix("dflash."): ((kv.item_type or kv.type).name, kv.value)
        for kv in metadata.runtime(draft, mrope=False)
        if kv.key not in common
    }
    assert extra == EXTRA[family]
    assert common <= {kv.key for kv in metadata.runtime(draft, mrope=False)}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_is_read_back(tmp_path: Path, family: str) -> None:
    file = FAMILIES[family]()
    draft = read(file.write(tmp_path / "x.gguf"))
    kvs = [*metadata.runtime(draft, mrope=False), *metadata.meaning(draft, Provenance("x"), None), metadata.mask(draft)]
    kept = {key: kv for key, kv in file.kv.items() if not key.startswith(("dflash.", "dspark."))}
    file.kv = kept | {
        kv.key: (int(kv.type), kv.value, None if kv.item_type is None else int(kv.item_type)) for kv in kvs
    }
    assert read(file.write(tmp_path / "y.gguf")) == draft


@pytest.mark.parametrize(
    ("family", "own"),
    [("gemma4", ("rope_rotated", ROTATED)), ("mimo", ("mask_row", True)), ("speculators-dflash", None)],
)
def test_our_keys_say_what_no_key_of_llama_cpp_does(
    tmp_path: Path, family: str, own: tuple[str, int | bool] | None
) -> None:
    draft = read(FAMILIES[family]().write(tmp_path / "x.gguf"))
    found = {kv.key: kv.value for kv in metadata.meaning(draft, Provenance("x"), None)}
    key, value = own or ("causal_pattern", [True, False])
    assert found[f"dspark.{key}"] == value


def test_sections_follow_the_dimensions_that_rotate(tmp_path: Path) -> None:
    draft = read(FAMILIES["mimo"]().write(tmp_path / "x.gguf"))
    found = {kv.key: kv.value for kv in metadata.runtime(draft, mrope=True)}
    assert found["dflash.rope.dimension_sections"] == [HEAD_DIM // 4, 0, 0, 0]
