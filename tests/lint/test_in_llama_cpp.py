"""What the rules say of llama.cpp, seen in llama.cpp: what it runs, refuses, dies of, and leaves unread."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.draft_file import (
    ARRAY,
    BOOL,
    F32,
    FEED_FORWARD,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    I32,
    KV_HEADS,
    STRING,
    U32,
    DraftFile,
    good_shapes,
)
from tests.family_file import FAMILIES, put
from tests.lint.family_cases import FAMILY_CASES
from tests.target_file import LAYERS, TargetFile

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole little Qwen3, which the good drafts fit."""
    file = TargetFile()
    sizes = {
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
    }
    file.kv |= {f"qwen3.{name}": (U32, size, None) for name, size in sizes.items()}
    file.kv["qwen3.attention.layer_norm_rms_epsilon"] = (F32, 1e-6, None)
    layer = {name.removeprefix("blk.0."): entry for name, entry in good_shapes().items() if name.startswith("blk.0.")}
    file.tensors |= {f"blk.{number}.{name}": entry for number in range(LAYERS) for name, entry in layer.items()}
    file.tensors["output_norm.weight"] = ("F32", (HIDDEN,))
    return file.write(tmp_path_factory.mktemp("target") / "target.gguf")


def run(target: Path, *drafts: Path | str, memory: int | None = None) -> tuple[int, list[str]]:
    """The child's exit status and what it said; ``memory``: the bytes of addresses that it may have."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
    child = [sys.executable, "-m", "tests.lint.llama_child", str(target), *map(str, drafts)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(
        child,
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limit,
    )
    return done.returncode, done.stdout.splitlines()


def test_good_files_of_all_families_draft(tmp_path: Path, target: Path) -> None:
    code, said = run(target, *(make().write(tmp_path / f"{name}.gguf") for name, make in FAMILIES.items()))
    assert (code, [line.split()[0] for line in said]) == (0, ["loaded", "drafted"] * len(FAMILIES))


#: rules of faults for which the loader refuses a file
REFUSED = ("activation", "d2t-missing", "scale-unapplied", "selector-sizes", "tensor-missing", "tensor-shape")
#: rules of faults that an assertion ends the process for
DEADLY = ("value-width", "vector-type", "d2t-range", "rope-dimensions")


def test_refused_files_are_refused(tmp_path: Path, target: Path) -> None:
    cases = [case for case in FAMILY_CASES if case[1] in REFUSED]
    drafts = []
    for number, (family, _, _, change) in enumerate(cases):
        file = FAMILIES[family]()
        change(file)
        drafts.append(file.write(tmp_path / f"{number}.gguf"))
    code, said = run(target, *drafts)
    assert code == 0
    assert len(said) == len(cases) >= 15
    assert all("refused to load the draft" in line for line in said)


def tokenizer(path: Path, model: str, pre: str, keeps: str) -> Path:
    """A good draft with another kind of tokenizer, of whose merges and scores it only ``keeps`` one."""
    file = DraftFile()
    del file.kv["tokenizer.ggml.merges"]
    file.kv |= {"tokenizer.ggml.model": (STRING, model, None), "tokenizer.ggml.pre": (STRING, pre, None)}
    if keeps == "merges":
        file.kv["tokenizer.ggml.merges"] = (ARRAY, ["< 1", "<1 >"], STRING)
    return file.write(path)


def test_merges_are_needed_and_scores_are_not(tmp_path: Path, target: Path) -> None:
    bad = [("gpt2", "qwen2", ""), ("hybriddna", "qwen2", ""), ("gemma4", "kimi-k2", "")]
    refused = [tokenizer(tmp_path / f"{at}.gguf", *case) for at, case in enumerate(bad)]
    code, said = run(target, *refused)
    assert (code, len(said)) == (0, len(refused))
    assert all("refused to load the draft" in line for line in said)
    good = [("gpt2", "kimi-k2", ""), ("gemma4", "qwen2", "merges"), ("llama", "default", ""), ("t5", "default", "")]
    code, said = run(target, *(tokenizer(tmp_path / f"good-{at}.gguf", *case) for at, case in enumerate(good)))
    assert (code, [line.split()[0] for line in said]) == (0, ["loaded", "drafted"] * len(good))


@pytest.mark.parametrize(("family", "rule", "severity", "change"), [c for c in FAMILY_CASES if c[1] in DEADLY])
def test_deadly_files_end_the_process(
    tmp_path: Path, target: Path, family: str, rule: str, severity: str, change: Any
) -> None:
    file = FAMILIES[family]()
    change(file)
    code, said = run(target, file.write(tmp_path / "x.gguf"))
    assert (code < 0, said, severity) == (True, ["loaded"], "error"), rule


#: family, what is changed of its good file, whether the block that is drafted is another
READ: list[tuple[str, dict[str, tuple[Any, ...]], bool]] = [
    ("kimi", {"rope__scaling__yarn_beta_fast": (F32, 4.0)}, False),
    ("kimi", {"rope__scaling__yarn_beta_slow": (F32, 2.0)}, False),
    ("kimi", {"rope__scaling__yarn_ext_factor": (F32, 0.5)}, False),
    ("kimi", {"rope__scaling__yarn_attn_factor": (F32, 2.0)}, False),
    ("kimi", {"rope__scaling__yarn_log_multiplier": (F32, 1.0)}, False),
    ("kimi", {"rope__scaling__attn_factor": (F32, 1.0)}, True),
    ("kimi", {"rope__scaling__factor": (F32, 8.0)}, True),
    ("kimi", {"rope__scaling__original_context_length": (U32, 64)}, True),
    ("kimi", {"rope__scaling__type": (STRING, "linear")}, True),
    ("gemma4", {"final_logit_softcapping": (F32, 1.0)}, False),
    ("gemma4", {"logit_scale": (F32, 0.5)}, False),
    ("gemma4", {"attention__scale": (F32, 0.5)}, True),
    ("gemma4", {"embedding_scale": (F32, 4.0)}, True),
    ("gemma4", {"hidden_activation": (STRING, "silu")}, True),
    ("gemma4", {"hidden_activation": (STRING, "gelu")}, False),  # the tanh form too
    ("mimo", {"attention__value_scale": (F32, 1.0)}, True),
    ("mimo", {"rope__dimension_count": (U32, HEAD_DIM)}, True),
    ("mimo", {"sample_from_anchor": (BOOL, True)}, False),
    ("mimo", {"has_confidence_head": (BOOL, True)}, False),
    ("speculators-dspark", {"attention__sliding_window": (U32, 2)}, True),
    ("dflash2", {"logit_scale": (F32, 0.5)}, True),
    ("dflash2", {"final_logit_softcapping": (F32, 1.0)}, True),
]


def test_keys_that_count_and_keys_that_do_not(tmp_path: Path, target: Path) -> None:
    drafts = []
    for number, (family, change, _) in enumerate(READ):
        files = [FAMILIES[family](), FAMILIES[family]()]
        put(files[1], **change)
        drafts += [file.write(tmp_path / f"{number}{side}.gguf") for side, file in enumerate(files)]
    code, said = run(target, *drafts)
    blocks = [line for line in said if line != "loaded"]
    assert (code, len(blocks)) == (0, len(drafts))
    found = [blocks[2 * at] != blocks[2 * at + 1] for at in range(len(READ))]
    assert {str(case): differs for case, differs in zip(READ, found, strict=True)} == {str(c): c[2] for c in READ}


def test_a_window_beyond_the_context_hides_nothing_and_takes_room(tmp_path: Path, target: Path) -> None:
    drafts = []
    for width in (4096, 2**20, 2**31):
        file = FAMILIES["nemotron"]()
        put(file, attention__sliding_window=(U32, width))
        drafts.append(file.write(tmp_path / f"{width}.gguf"))
    code, said = run(target, *drafts, memory=6 * 2**30)
    assert (code < 0, said[0], said[2:]) == (True, "loaded", ["loaded", said[1], "loaded"])


@pytest.mark.parametrize("sections", [False, True])
def test_frequencies_count_but_not_with_sections(tmp_path: Path, target: Path, sections: bool) -> None:
    """With M-RoPE's sections all dimensions turn, as in a file without the tensor."""
    files = [FAMILIES["gemma4"](), FAMILIES["gemma4"]()]
    del files[1].tensors["rope_freqs.weight"], files[1].kv["dspark.rope_rotated"]
    if sections:
        for file in files:
            put(file, rope__dimension_sections=(ARRAY, [HEAD_DIM // 2, 0, 0, 0], I32))
    _, said = run(target, *(file.write(tmp_path / f"{at}.gguf") for at, file in enumerate(files)))
    blocks = [line for line in said if line.startswith("drafted")]
    assert len(blocks) == 2
    assert (blocks[0] == blocks[1]) == sections


def test_a_missing_scale_is_taken_for_one(tmp_path: Path, target: Path) -> None:
    def nemotron(scale: bytes | None) -> DraftFile:
        file = FAMILIES["nemotron"]()
        if scale is None:
            del file.tensors["blk.0.attn_output.scale"]
        else:
            file.data["blk.0.attn_output.scale"] = scale
        return file

    one = b"\x00\x00\x80\x3f"
    files = [nemotron(None), nemotron(one), FAMILIES["nemotron"]()]
    _, said = run(target, *(file.write(tmp_path / f"{at}.gguf") for at, file in enumerate(files)))
    blocks = [line for line in said if line.startswith("drafted")]
    assert blocks[0] == blocks[1] != blocks[2]
