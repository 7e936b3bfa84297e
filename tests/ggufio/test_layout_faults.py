"""Files of other layouts that are broken, or that hold what only forks know: each is told, at its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from tests.draft_file import BOOL, F32, HIDDEN, I32, RANK, U32, DraftFile
from tests.gguf_bytes import ARRAY, STRING, Builder
from tests.ggufio.layout_files import fork, ik, plain, prism
from tests.ggufio.stage_layout_files import ds4, ds4_target, ds41
from tests.ggufio.test_layouts import read, where

#: file, key that is changed, its new entry (None: gone), the rule that has to fire there
BROKEN: list[tuple[Callable[[], DraftFile], str, tuple[int, object, int | None] | None, str]] = [
    (prism, "dspark.dspark.mask_token_id", None, "key-missing"),
    (prism, "dspark.dspark.mask_token_id", (I32, 77, None), "key-type"),
    (prism, "dspark.dspark.mask_token_id", (U32, 80, None), "mask-out-of-range"),
    (prism, "dspark.dspark.block_size", None, "key-missing"),
    (prism, "dspark.dspark.target_layers", None, "key-missing"),
    (prism, "dspark.dspark.target_layers", (ARRAY, [0.0, 2.0], F32), "key-type"),
    (prism, "dspark.block_count", None, "key-missing"),
    (prism, "dspark.dspark.confidence_head", (U32, 1, None), "key-type"),
    (prism, "dspark.dspark.surprise", (U32, 1, None), "key-unknown"),
    (prism, "dspark.target_layers", (ARRAY, [0, 2, 4], I32), "meaning-disagrees"),
    (prism, "dspark.dspark.hidden_correction", (BOOL, True, None), "not-portable"),
    (prism, "dspark.dspark.confidence_head_with_markov", (BOOL, False, None), "not-portable"),
    (fork, "dspark.enable_confidence_head", (BOOL, False, None), "confidence-flag"),
    (fork, "dspark.confidence_head_with_markov", (BOOL, False, None), "not-portable"),
    (ik, "dflash-draft.dflash.mask_token_id", None, "key-missing"),
    (ik, "dflash-draft.dflash.mask_token_id", (STRING, "77", None), "key-type"),
    (ik, "dflash-draft.dflash.target_layer_ids", (ARRAY, [0, 2, -3], I32), "taps-negative"),
    (ik, "dflash-draft.dflash.target_layer_ids", (ARRAY, [0, 2, 2**31 - 1], I32), "taps-absurd"),
    (prism, "dspark.dspark.target_layers", (ARRAY, [0, 2, 2**32 - 1], U32), "taps-absurd"),
    (ik, "dflash-draft.dflash.laguna", (BOOL, True, None), "not-portable"),
    (ik, "dflash-draft.dflash.backbone_rotary_base", (F32, 5e6, None), "not-portable"),
    (ik, "dflash-draft.dflash.surprise", (F32, 5e6, None), "key-unknown"),
    (ik, "tokenizer.ggml.mask_token_id", (U32, 3, None), "layout-mask"),
    (ds41, "dspark.surprise", (U32, 1, None), "key-unknown"),
    (ds4, "dspark.stage_count", (U32, 2, None), "layout-stage"),
    (ds4, "dspark.markov_rank", (U32, 8, None), "meaning-disagrees"),
    (ds4, "dspark.noise_token_id", None, "key-missing"),
]
#: rules that stand at a part of the meaning, or at what goes with the key
ELSEWHERE = {
    "mask-out-of-range": "dspark.dspark.mask_token_id",
    "taps-negative": "target_layers",
    "taps-absurd": "target_layers",
    "layout-mask": "dflash-draft.dflash.mask_token_id",
    "confidence-flag": "confidence.proj.weight",
    "layout-stage": "mtp.2.confidence_head.proj.weight",
}


@pytest.mark.parametrize(("build", "key", "entry", "rule"), BROKEN)
def test_what_is_broken_is_told_at_its_place(
    tmp_path: Path,
    build: Callable[[], DraftFile],
    key: str,
    entry: tuple[int, object, int | None] | None,
    rule: str,
) -> None:
    target = ds4_target(tmp_path / "target.gguf")
    _, _, good = read(build(), tmp_path / "dspark-good.gguf", target)
    file = build()
    if entry is None:
        del file.kv[key]
    else:
        file.kv[key] = entry
    _, _, findings = read(file, tmp_path / "dspark-x.gguf", target)
    severities = {finding.severity for finding in findings if finding.rule == rule and finding not in good}
    assert severities & {"error", "warning"}
    assert ELSEWHERE.get(rule, key) in where(findings, rule)


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize(
    ("build", "key"),
    [
        (prism, "dspark.dspark.target_layers"),
        (ik, "dflash-draft.dflash.target_layer_ids"),
        (ds4, "dspark.target_layer_ids"),
    ],
)
def test_taps_that_were_shifted_before(tmp_path: Path, build: Callable[[], DraftFile], key: str, shift: int) -> None:
    """A tool that shifted them and left the layout would be read one off, which our own key tells."""
    target = ds4_target(tmp_path / "target.gguf")
    _, right, _ = read(build(), tmp_path / "right.gguf", target)
    assert right is not None
    file = build()
    kind, taps, item = file.kv[key]
    file.kv[key] = (kind, [tap + shift for tap in taps], I32)
    _, draft, findings = read(file, tmp_path / "x.gguf", target)
    assert draft is not None
    assert draft == replace(right, target_layers=tuple(tap + shift for tap in right.target_layers))
    file.kv["dspark.target_layers"] = (ARRAY, list(right.target_layers), I32)
    findings = read(file, tmp_path / "y.gguf", target)[2]
    assert where(findings, "meaning-disagrees") == ["dspark.target_layers"]
    file.kv[key] = (kind, taps, item)
    assert not where(read(file, tmp_path / "z.gguf", target)[2], "meaning-disagrees")


def test_two_names_for_one_tensor(tmp_path: Path) -> None:
    file = prism()
    file.tensors["fc.weight"] = ("F32", (3 * HIDDEN, HIDDEN))
    findings = read(file, tmp_path / "dspark-x.gguf")[2]
    assert where(findings, "layout-clash") == ["fc.weight"]


def test_bare_names_are_told_as_the_file_has_them(tmp_path: Path) -> None:
    file = ik()
    file.tensors["dflash_fc"] = file.tensors.pop("dflash_fc.weight")
    file.tensors["markov_w2.weight"] = ("F32", (RANK, 79))
    findings = read(file, tmp_path / "dspark-x.gguf")[2]
    assert where(findings, "tensor-unexpected") == ["dflash_fc"]
    assert where(findings, "tensor-missing") == ["fc.weight"]
    assert where(findings, "tensor-shape") == ["markov_w2.weight"]


def test_a_misshapen_tensor_is_told_under_its_own_name(tmp_path: Path) -> None:
    file = prism()
    file.tensors["dspark.hidden_norm.weight"] = ("F32", (HIDDEN // 2,))
    assert where(read(file, tmp_path / "dspark-x.gguf")[2], "tensor-shape") == ["dspark.hidden_norm.weight"]


def packed_otherwise(path: Path, number: int, elements: int, size: int, shape: tuple[int, int] = (256, 64)) -> Path:
    """The good file with ``fc.weight`` under type ``number``, in blocks of ``size`` bytes for ``elements``."""
    file = plain()
    build = Builder()
    infos, blob = [build.tensor("fc.weight", shape, number, 0)], bytes(shape[0] * shape[1] // elements * size)
    blob += bytes(-len(blob) % 32)
    infos.append(build.tensor("output_norm.weight", (HIDDEN,), 0, len(blob)))
    kvs = [build.kv(key, kind, value, item) for key, (kind, value, item) in file.kv.items()]
    path.write_bytes(build.file(kvs, infos, blob + bytes(4 * HIDDEN)))
    return path


@pytest.mark.parametrize(
    ("number", "elements", "size", "words"),
    [
        (42, 128, 34, "ggml type 42 means Q2_0 to mainline llama.cpp, but the data is of the size that PrismML's"),
        (142, 128, 34, "ggml type 142 is PrismML's PQ2_0"),
        (144, 256, 136, "ggml type 144 is ik_llama.cpp's IQ4_KS"),
        (42, 64, 18, None),  # mainline's own
        (99, 32, 36, None),  # nobody's that is known: the reader alone tells
    ],
)
def test_types_of_forks_are_named(tmp_path: Path, number: int, elements: int, size: int, words: str | None) -> None:
    with open_gguf(packed_otherwise(tmp_path / "x.gguf", number, elements, size)) as gguf:
        found = [finding for finding in read_draft(gguf).findings if finding.rule == "foreign-type"]
    assert [(finding.severity, finding.where) for finding in found] == ([("error", "fc.weight")] if words else [])
    assert all(words and finding.message.startswith(words) for finding in found)


def test_a_size_that_both_have_is_mainlines(tmp_path: Path) -> None:
    """One row of 128: 34 bytes or 36, and 64 with the padding in either case."""
    with open_gguf(packed_otherwise(tmp_path / "x.gguf", 42, 128, 34, (128, 1))) as gguf:
        assert not [finding for finding in read_draft(gguf).findings if finding.rule == "foreign-type"]
