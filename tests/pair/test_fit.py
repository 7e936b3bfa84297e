"""Draft and target side by side: every field that can differ is made to, from files and from directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.inspection import inspect_file
from dspark_convert.pair.fit import Fit
from dspark_convert.pairing import pair_file
from dspark_convert.remote import Silent, open_target
from tests.draft_file import BOOL, F32, HIDDEN, I32, U32, VOCAB, DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.stage_file import StageFile
from tests.target_file import TargetFile, fitting_draft

Change = Callable[[DraftFile, TargetFile], Any]


def judged(tmp_path: Path, change: Change = lambda _draft, _target: None) -> tuple[Fit, list[tuple[str, str]]]:
    """The fit of the pair after ``change``, and (rule, severity) of the findings on it."""
    draft, target = fitting_draft(), TargetFile()
    change(draft, target)
    inspection = inspect_file(draft.write(tmp_path / "draft.gguf"))
    _, fit = pair_file(inspection, open_target(target.write(tmp_path / "target.gguf"), Silent()))
    assert fit is not None
    return fit, [(finding.rule, finding.severity) for finding in fit.findings]


def marks(fit: Fit) -> dict[str, str]:
    return {field.name: field.mark for field in fit.fields if field.mark not in ("ok", "unknown")}


def test_a_pair_that_fits(tmp_path: Path) -> None:
    fit, found = judged(tmp_path)
    assert (fit.verdict, fit.fits, found, marks(fit)) == ("fits", True, [], {})
    table = {field.name: (field.draft, field.target) for field in fit.fields}
    assert table["taps"] == ("1, 3, 5", "0 to 5 of 6 layers")
    assert table["tokens"] == ("80", "80")
    assert table["mask token"] == ("77", "'<77>', unused")
    assert table["head"] == ("borrowed", "F16, head apart")
    assert table["RoPE style"] == ("neox", "neox")
    assert table["self-contained"][0] == "no: not with -sm tensor"
    assert table["runs in"][0] == "llama.cpp from b10335 on"


def kv(which: str, key: str, kind: int, value: Any, item: int | None = None) -> Change:
    def change(draft: DraftFile, target: TargetFile) -> None:
        {"draft": draft, "target": target}[which].kv[key] = (kind, value, item)

    return change


def drop(which: str, key: str) -> Change:
    return lambda draft, target: {"draft": draft, "target": target}[which].kv.pop(key)


def tokens(**texts: str) -> Change:
    """Other texts in the target: ``t5="x"``."""

    def change(_draft: DraftFile, target: TargetFile) -> None:
        kind, items, item = target.kv["tokenizer.ggml.tokens"]
        changed = {int(name[1:]): text for name, text in texts.items()}
        target.kv["tokenizer.ggml.tokens"] = (kind, [changed.get(i, text) for i, text in enumerate(items)], item)

    return change


def rows(_draft: DraftFile, target: TargetFile) -> None:
    target.tensors["token_embd.weight"] = ("F16", (HIDDEN, VOCAB + 16))


def larger(_draft: DraftFile, target: TargetFile) -> None:
    target.kv["tokenizer.ggml.tokens"] = (ARRAY, [f"<{i}>" for i in range(VOCAB + 16)], STRING)
    target.kv["tokenizer.ggml.token_type"] = (ARRAY, [1] * (VOCAB + 16), I32)
    target.tensors = dict.fromkeys(target.tensors, ("F16", (HIDDEN, VOCAB + 16)))


def rounded(_draft: DraftFile, target: TargetFile) -> None:
    target.tensors["output.weight"] = ("MXFP4", (HIDDEN, VOCAB))


def embeddings_alone(draft: DraftFile, _target: TargetFile) -> None:
    draft.tensors["token_embd.weight"] = ("F32", (HIDDEN, VOCAB))


def types(_draft: DraftFile, target: TargetFile) -> None:
    target.kv["tokenizer.ggml.token_type"] = (ARRAY, [3] + [1] * (VOCAB - 1), I32)
    target.kv["tokenizer.ggml.token_type"][1][77] = 5


CASES: dict[str, tuple[Change, str, str, str]] = {
    # name: change, field, rule, mark
    "hidden size": (kv("target", "qwen3.embedding_length", U32, 128), "hidden size", "target-hidden-size", "misfit"),
    "taps": (kv("target", "qwen3.block_count", U32, 5), "taps", "taps-out-of-range", "misfit"),
    "layers": (kv("draft", "dspark.target.block_count", U32, 7), "taps", "target-layers", "misfit"),
    "vocabulary": (larger, "vocabulary size", "target-vocabulary", "misfit"),
    "rows": (rows, "vocabulary size", "target-table-rows", "misfit"),
    "tokens": (tokens(t30="x"), "tokens", "target-tokens", "misfit"),
    "padding": (tokens(t79="x"), "tokens", "target-padding", "remark"),
    "no tokens": (drop("target", "tokenizer.ggml.tokens"), "tokens", "target-tokens", "misfit"),
    "types": (types, "token types", "target-token-types", "note"),
    "merges": (
        kv("target", "tokenizer.ggml.merges", ARRAY, ["< 2", "< 1"], STRING),
        "merges",
        "target-merges",
        "misfit",
    ),
    "model": (kv("target", "tokenizer.ggml.model", STRING, "llama"), "tokenizer", "target-tokenizer", "misfit"),
    "chat template": (
        kv("target", "tokenizer.chat_template", STRING, "{{ messages }}"),
        "chat template",
        "target-chat-template",
        "note",
    ),
    "pre": (kv("target", "tokenizer.ggml.pre", STRING, "llama3"), "tokenizer", "target-pre-tokenizer", "note"),
    "mask is eos": (
        kv("target", "tokenizer.ggml.eos_token_id", U32, 77),
        "mask token",
        "target-mask-used",
        "remark",
    ),
    "mask is text": (kv("draft", "tokenizer.ggml.mask_token_id", U32, 5), "mask token", "target-mask-used", "remark"),
    "mask range": (
        kv("draft", "tokenizer.ggml.mask_token_id", U32, VOCAB),
        "mask token",
        "target-mask-range",
        "misfit",
    ),
    "rope base": (kv("target", "qwen3.rope.freq_base", F32, 1e4), "RoPE base", "target-rope-base", "remark"),
    "rope style": (
        lambda _draft, target: target.kv.update(
            {"general.architecture": (STRING, "nanbeige", None), "nanbeige.block_count": (U32, 6, None)}
        ),
        "RoPE style",
        "target-rope-style",
        "note",
    ),
    "rope scaling": (
        kv("target", "qwen3.rope.scaling.type", STRING, "yarn"),
        "RoPE scaling",
        "target-rope-scaling",
        "note",
    ),
    "mrope": (
        kv("target", "qwen3.rope.dimension_sections", ARRAY, [4, 2, 2, 0], I32),
        "M-RoPE",
        "target-mrope",
        "remark",
    ),
    "mrope of the draft": (
        kv("draft", "dflash.rope.dimension_sections", ARRAY, [8, 0, 0, 0], I32),
        "M-RoPE",
        "target-mrope",
        "remark",
    ),
    "context": (kv("target", "qwen3.context_length", U32, 8192), "context", "target-context", "note"),
    "architecture": (
        lambda _draft, target: target.kv.update(
            {"general.architecture": (STRING, "mamba2", None), "mamba2.block_count": (U32, 6, None)}
        ),
        "architecture",
        "target-untappable",
        "remark",
    ),
    "transform": (kv("target", "prism.hadamard.seed", U32, 7), "head", "target-transformed", "remark"),
    "rounded": (rounded, "head", "target-quantised", "note"),
    "one table": (embeddings_alone, "head", "token-embd-alone", "misfit"),
    "name": (kv("draft", "dspark.target.name", STRING, "acme/Other-8B"), "target", "target-name", "remark"),
    "base model": (
        kv("draft", "general.base_model.0.name", STRING, "Other 8B"),
        "target",
        "target-name",
        "note",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_field_can_differ(name: str, tmp_path: Path) -> None:
    change, field, rule, mark = CASES[name]
    fit, found = judged(tmp_path, change)
    severity = {"misfit": "error", "remark": "warning", "note": "info"}[mark]
    assert (rule, severity) in found
    (row,) = (row for row in fit.fields if row.name == field)
    assert (row.mark, rule in row.rules) == (mark, True)
    assert [severity for told, severity in found if told != rule and severity == "error"] == []
    expected = {"misfit": "does not fit", "remark": "fits with remarks", "note": "fits"}[mark]
    assert (fit.verdict, fit.fits) == (expected, mark != "misfit")


def test_first_tokens_that_differ_are_told_and_made_safe(tmp_path: Path) -> None:
    fit, _ = judged(tmp_path, tokens(t10="a\x1b[2J", t11="b", t12="c", t13="d", t14="e"))
    (finding,) = fit.findings
    assert finding.message.startswith(
        "5 tokens differ, the first is 10: '<10>' in the draft, 'a\\x1b[2J' in the target"
    )
    assert finding.message.endswith("; then 11 ('<11>', 'b'), 12 ('<12>', 'c'), 13 ('<13>', 'd'), ….")


@pytest.mark.parametrize("stated", ["acme/Tiny-7B", "tiny_7b", "Tiny-7B-Instruct", "https://hub/acme/Tiny-7B/"])
def test_names_that_agree(stated: str, tmp_path: Path) -> None:
    assert judged(tmp_path, kv("draft", "dspark.target.name", STRING, stated))[1] == []


def test_a_target_that_gives_itself_no_name_is_not_held_to_its_files(tmp_path: Path) -> None:
    def change(draft: DraftFile, target: TargetFile) -> None:
        draft.kv["dspark.target.name"] = (STRING, "acme/Other-8B", None)
        del target.kv["general.name"]

    assert judged(tmp_path, change)[1] == []


def test_sections_that_follow_the_text_axis(tmp_path: Path) -> None:
    def change(draft: DraftFile, target: TargetFile) -> None:
        target.kv["qwen3.rope.dimension_sections"] = (ARRAY, [4, 2, 2, 0], I32)
        draft.kv["dflash.rope.dimension_sections"] = (ARRAY, sections, I32)

    sections = [8, 0, 0, 0]
    assert judged(tmp_path, change)[1] == []
    sections = [4, 2, 2, 0]
    assert judged(tmp_path, change)[1] == [("target-mrope", "warning")]


def test_tables_of_its_own(tmp_path: Path) -> None:
    def change(draft: DraftFile, target: TargetFile) -> None:
        rounded(draft, target)
        embeddings_alone(draft, target)
        draft.tensors["output.weight"] = ("F32", (HIDDEN, VOCAB))

    fit, found = judged(tmp_path, change)
    assert found == []
    table = {field.name: (field.draft, field.target) for field in fit.fields}
    assert (table["head"][0], table["self-contained"][0]) == ("its own", "yes")
    assert table["runs in"][0] == "llama.cpp from b10952 on"


@pytest.mark.parametrize(
    "change",
    [
        kv("draft", "dflash.has_confidence_head", BOOL, False),
        kv("draft", "dflash.sample_from_anchor", BOOL, False),
        kv("draft", "dflash.attention.causal", BOOL, True),
    ],
    ids=["no confidence head", "bonus anchor", "causal"],
)
def test_the_first_builds_with_dspark_do_not_run_all_of_it(tmp_path: Path, change: Change) -> None:
    """b10335 refuses a Markov head without a confidence head, and reads slot 0 whatever the file says."""
    fit, _ = judged(tmp_path, change)
    table = {field.name: field.draft for field in fit.fields}
    assert table["runs in"] == "recent llama.cpp, e.g. b11549"


def test_a_draft_that_cannot_be_read(tmp_path: Path) -> None:
    fit, _ = judged(tmp_path, drop("draft", "dflash.block_size"))
    assert (fit.verdict, fit.fits, fit.fields) == ("cannot be judged", False, ())


@pytest.mark.parametrize(
    "change",
    [
        kv("draft", "dflash.attention.layer_norm_rms_epsilon", F32, 0.5),
        kv("draft", "dflash.rope.dimension_count", U32, 7),
        lambda draft, _target: draft.tensors.update({"fc.weight": ("F32", (HIDDEN, HIDDEN))}),
    ],
    ids=["norm-epsilon", "rope-dimensions", "shape"],
)
def test_a_draft_that_cannot_be_run(tmp_path: Path, change: Change) -> None:
    fit, found = judged(tmp_path, change)
    assert (fit.verdict, fit.fits, found) == ("cannot be run", False, [])
    assert marks(fit) == {}


def test_a_truncated_draft_cannot_be_run(tmp_path: Path) -> None:
    draft = fitting_draft().write(tmp_path / "draft.gguf")
    draft.write_bytes(draft.read_bytes()[:-100])
    target = open_target(TargetFile().write(tmp_path / "target.gguf"), Silent())
    _, fit = pair_file(inspect_file(draft), target)
    assert fit is not None
    assert fit.verdict == "cannot be run"


def test_odd_values_do_no_harm(tmp_path: Path) -> None:
    def change(draft: DraftFile, target: TargetFile) -> None:
        target.kv["tokenizer.ggml.token_type"] = (STRING, "x", None)
        target.kv["tokenizer.ggml.merges"] = (U32, 5, None)
        target.kv["tokenizer.ggml.pre"] = (BOOL, True, None)
        target.kv["qwen3.rope.scaling.type"] = (U32, 3, None)
        draft.kv["dspark.target.name"] = (U32, 3, None)
        draft.kv["dflash.rope.dimension_sections"] = (STRING, "wide", None)

    fit, _ = judged(tmp_path, change)
    assert fit.fields


def stages_with(tmp_path: Path, *, architecture: str, streams: int) -> list[tuple[str, str]]:
    draft, target = StageFile(), TargetFile()
    hidden = draft.kv["dflash.embedding_length"][1]
    target.kv |= {
        "general.architecture": (STRING, architecture, None),
        f"{architecture}.embedding_length": (U32, hidden, None),
        f"{architecture}.hyper_connection.count": (U32, streams, None),
    }
    inspection = inspect_file(draft.write(tmp_path / "draft.gguf"))
    _, fit = pair_file(inspection, open_target(target.write(tmp_path / "target.gguf"), Silent()))
    assert fit is not None
    return [(finding.rule, finding.severity) for finding in fit.findings if finding.severity == "error"]


def test_stages_need_the_target_that_they_were_trained_in(tmp_path: Path) -> None:
    streams = StageFile().kv["dflash.hyper_connection.count"][1]
    good = stages_with(tmp_path, architecture="deepseek4", streams=streams)
    assert ("target-not-deepseek4", "error") not in good and ("target-hyper-connections", "error") not in good
    assert ("target-not-deepseek4", "error") in stages_with(tmp_path, architecture="qwen3", streams=streams)
    other = stages_with(tmp_path, architecture="deepseek4", streams=streams + 1)
    assert ("target-hyper-connections", "error") in other
