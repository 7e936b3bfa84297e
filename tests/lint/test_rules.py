"""Each rule: a good file broken on purpose, and exactly that rule fires."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

import dspark_convert
from dspark_convert.findings import Finding
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from tests.draft_file import ARRAY, BOOL, F32, HIDDEN, I32, KV_HEADS, RANK, STRING, U32, VOCAB, DraftFile
from tests.lint.breaking import (
    Change,
    bare_dflash,
    both,
    chain,
    data,
    drop,
    put,
    quantised,
    reduced,
    shape,
    values_gone,
)
from tests.lint.family_cases import FAMILY_CASES
from tests.lint.stage_cases import STAGE_CASES


def findings(file: DraftFile, path: Path, *, deep: bool = True) -> tuple[Finding, ...]:
    with open_gguf(file.write(path)) as gguf:
        return lint(gguf, read_draft(gguf), deep=deep)


#: modules of the reader that tell of findings
GGUFIO = ("dialects.py", "keys.py", "layers.py", "rotation.py", "stages.py")

NAN, INF = struct.pack("<f", float("nan")), struct.pack("<f", float("-inf"))

#: rule, severity, how to break the good file
CASES: list[tuple[str, str, Change]] = [
    ("key-missing", "error", put(dflash__target_layers=None)),
    ("key-missing", "error", put(tokenizer__ggml__mask_token_id=None)),
    ("key-missing", "error", put(dflash__block_size=None)),
    ("key-missing", "error", put(dflash__attention__layer_norm_rms_epsilon=None)),
    ("key-type", "error", put(dflash__block_size=(STRING, "7"))),
    ("key-type", "error", put(dflash__target_layers=(ARRAY, [1.0, 3.0, 5.0], F32))),
    ("key-type", "error", put(dflash__target_layers=(U32, 1))),
    ("key-per-layer", "error", put(dflash__attention__head_count=(ARRAY, [4, 2], I32))),
    ("list-too-long", "error", put(dflash__target_layers=(ARRAY, [1] * 5000, I32))),
    ("key-default", "warning", put(dflash__sample_from_anchor=None)),
    ("key-default", "warning", put(dflash__rope__freq_base=None)),
    (
        "key-default",
        "warning",
        chain(put(dflash__has_confidence_head=None), drop("conf_proj.weight", "conf_proj.bias")),
    ),
    (
        "key-default",
        "warning",
        chain(bare_dflash, put(dflash__block_size=None, dspark__block_size=None, dflash__sample_from_anchor=None)),
    ),
    ("meaning-disagrees", "error", put(dspark__block_size=(U32, 5))),
    ("meaning-disagrees", "error", put(dspark__target_layers=(ARRAY, [0, 2, 4], I32))),
    ("meaning-disagrees", "error", put(dspark__markov_rank=(U32, 16))),
    ("meaning-disagrees", "error", put(dspark__backbone=(STRING, "deepseek4"))),
    ("file-type", "warning", put(general__file_type=(U32, 0))),
    ("file-type", "warning", put(general__file_type=(U32, 1))),
    ("file-type", "warning", put(general__file_type=(U32, 38))),
    ("rope-style", "error", put(dspark__rope_style=(STRING, "norm"))),
    ("block-size", "error", both("block_size", (U32, 0))),
    ("block-size", "error", both("block_size", (U32, 2**31))),
    ("block-size", "error", chain(both("block_size", (U32, 1)), put(dflash__sample_from_anchor=(BOOL, False)))),
    ("taps-empty", "error", chain(both("target_layers", (ARRAY, [], I32)), shape("fc.weight", "F32", (0, HIDDEN)))),
    ("taps-negative", "error", both("target_layers", (ARRAY, [-1, 3, 5], I32))),
    ("taps-absurd", "error", both("target_layers", (ARRAY, [1, 3, 513], I32))),
    ("taps-absurd", "error", both("target_layers", (ARRAY, [1, 3, 2**32 - 1], U32))),
    ("taps-duplicate", "warning", both("target_layers", (ARRAY, [3, 3, 5], I32))),
    ("taps-unsorted", "warning", both("target_layers", (ARRAY, [5, 3, 1], I32))),
    ("fc-width", "error", both("target_layers", (ARRAY, [1, 3], I32))),
    ("head-counts", "error", put(dflash__attention__head_count_kv=(U32, 3))),
    ("head-counts", "error", put(dflash__attention__head_count_kv=(U32, 8))),
    ("head-counts", "error", put(dflash__attention__head_count_kv=(U32, 0))),
    ("head-width", "error", put(dflash__attention__key_length=(U32, 0))),
    ("head-width", "error", put(dflash__attention__key_length=(U32, 2**31))),
    ("rope-dimensions", "error", put(dflash__rope__dimension_count=(U32, 32))),
    ("rope-dimensions", "error", put(dflash__rope__dimension_count=(U32, 7))),
    ("norm-epsilon", "error", put(dflash__attention__layer_norm_rms_epsilon=(F32, 0.0))),
    ("rope-base", "error", put(dflash__rope__freq_base=(F32, float("nan")))),
    ("rope-scaling", "error", put(dflash__rope__scaling__type=(STRING, "su"))),
    ("rope-sections-count", "error", put(dflash__rope__dimension_sections=(ARRAY, [8, 8], I32))),
    ("window-without-pattern", "error", put(dflash__attention__sliding_window=(U32, 128))),
    (
        "window-pattern-length",
        "error",
        put(
            dflash__attention__sliding_window=(U32, 128),
            dflash__attention__sliding_window_pattern=(ARRAY, [True], BOOL),
        ),
    ),
    (
        "window-unused",
        "error",
        put(
            dflash__attention__sliding_window=(U32, 128),
            dflash__attention__sliding_window_pattern=(ARRAY, [False, False], BOOL),
        ),
    ),
    (
        "pattern-without-window",
        "warning",
        put(dflash__attention__sliding_window_pattern=(ARRAY, [True, False], BOOL)),
    ),
    ("anchor-without-markov", "error", bare_dflash),
    ("confidence-flag", "error", drop("conf_proj.weight")),
    ("confidence-flag", "warning", put(dflash__has_confidence_head=(BOOL, False))),
    ("logits-unscaled", "warning", put(dflash__final_logit_softcapping=(F32, 30.0))),
    ("embedding-length-out", "error", put(dflash__embedding_length_out=(U32, 256))),
    ("markov-type", "error", put(dspark__markov_head_type=(STRING, "gated"))),
    (
        "no-confidence-head",
        "info",
        chain(put(dflash__has_confidence_head=(BOOL, False)), drop("conf_proj.weight", "conf_proj.bias")),
    ),
    ("block-count", "error", put(dflash__block_count=(U32, 2**31))),
    ("block-count", "error", put(dflash__block_count=(U32, 0))),
    ("tensor-missing", "error", drop("blk.1.attn_norm.weight", "output_norm.weight")),
    ("tensor-missing", "error", drop("markov_w2.weight")),
    ("tensor-missing", "error", put(dflash__block_count=(U32, 3))),
    ("tensor-unexpected", "error", shape("blk.0.attn_q.bias", "F32", (HIDDEN,))),
    ("tensor-unexpected", "error", shape("blk.0.attn_gate.weight", "F32", (HIDDEN, HIDDEN))),
    ("tensor-unexpected", "error", put(dflash__block_count=(U32, 1))),
    ("values-missing", "warning", values_gone),
    ("tensor-shape", "error", shape("blk.0.ffn_up.weight", None, (HIDDEN, 100))),
    ("tensor-shape", "error", shape("markov_w2.weight", None, (RANK, VOCAB - 1))),
    ("tensor-shape", "error", shape("conf_proj.weight", None, (HIDDEN, 1))),
    ("tensor-shape", "error", shape("blk.0.attn_v.weight", None, (HIDDEN, KV_HEADS * 8))),
    ("sinks-name", "error", shape("blk.0.attn_sinks", "F32", (4,))),
    ("token-embd-alone", "error", shape("token_embd.weight", "F32", (HIDDEN, VOCAB))),
    (
        "token-embd-alone",
        "warning",
        chain(
            shape("token_embd.weight", "F32", (HIDDEN, VOCAB)),
            put(dspark__converter_version=(STRING, "0.1.0")),
        ),
    ),
    (
        "own-tables",
        "info",
        chain(shape("token_embd.weight", "F32", (HIDDEN, VOCAB)), shape("output.weight", "F32", (HIDDEN, VOCAB))),
    ),
    ("d2t-without-output", "error", chain(reduced(list(range(40))), drop("output.weight"))),
    ("vector-type", "error", shape("blk.0.attn_norm.weight", "BF16", (HIDDEN,))),
    (
        "heads-quantised",
        "warning",
        chain(
            shape("markov_w2.weight", "Q4_0", (RANK, VOCAB)),
            data("markov_w2.weight", lambda n: (b"\1\1" + b"\x11" * 16) * (n // 32)),
        ),
    ),
    ("vocabulary-missing", "error", put(tokenizer__ggml__tokens=None, tokenizer__ggml__token_type=None)),
    ("vocabulary-missing", "error", put(tokenizer__ggml__model=None)),
    (
        "vocabulary-size",
        "error",
        put(
            tokenizer__ggml__tokens=(ARRAY, [f"<{i}>" for i in range(VOCAB + 4)], STRING),
            tokenizer__ggml__token_type=(ARRAY, [1] * (VOCAB + 4), I32),
        ),
    ),
    ("vocabulary-lists", "error", put(tokenizer__ggml__token_type=(ARRAY, [1], I32))),
    ("token-duplicate", "error", put(tokenizer__ggml__tokens=(ARRAY, ["a", *map(str, range(78)), "a"], STRING))),
    ("merges-missing", "error", put(tokenizer__ggml__merges=None)),
    ("merges-missing", "error", put(tokenizer__ggml__merges=None, tokenizer__ggml__model=(STRING, "gemma4"))),
    (
        "merges-missing",
        "error",
        put(
            tokenizer__ggml__merges=None,
            tokenizer__ggml__pre=(STRING, "kimi-k2"),
            tokenizer__ggml__model=(STRING, "gemma4"),
        ),
    ),
    ("scores-missing", "warning", put(tokenizer__ggml__model=(STRING, "llama"))),
    ("scores-missing", "warning", put(tokenizer__ggml__model=(STRING, "t5"), tokenizer__ggml__merges=None)),
    ("pre-tokenizer-missing", "warning", put(tokenizer__ggml__pre=None)),
    ("pre-tokenizer-unknown", "warning", put(tokenizer__ggml__pre=(STRING, "nonsense"))),
    ("mask-out-of-range", "error", put(tokenizer__ggml__mask_token_id=(U32, VOCAB))),
    ("mask-is-special", "warning", put(tokenizer__ggml__padding_token_id=(U32, 77))),
    ("d2t-type", "error", reduced([0, 1, 2, 3], "F32")),
    ("d2t-range", "error", reduced([0, 1, 2, VOCAB])),
    ("d2t-range", "error", reduced([0, -1, 2, 3])),
    ("d2t-duplicate", "error", reduced([0, 1, 1, 3])),
    (
        "chat-template-attribute",
        "warning",
        put(tokenizer__chat_template=(STRING, "{{ ().__class__.__bases__ }}")),
    ),
    ("chat-template-attribute", "warning", put(tokenizer__chat_template=(STRING, "{{ x|attr('y') }}"))),
    ("chat-template-control", "warning", put(tokenizer__chat_template=(STRING, "a\u202eb"))),
    ("split-file", "error", put(split__count=(U32, 3))),
    ("non-finite-values", "error", data("fc.weight", lambda n: bytes(4 * (n - 1)) + NAN)),
    ("non-finite-values", "error", data("blk.1.ffn_up.weight", lambda n: INF + b"\1" * 4 * (n - 1))),
    ("non-finite-values", "error", data("markov_w1.weight", lambda n: b"\x80\x7f" * n)),
    ("non-finite-values", "error", data("markov_w2.weight", lambda n: (b"\0\x7e" + b"\1" * 32) * (n // 32))),
    ("non-finite-values", "error", data("conf_proj.weight", lambda n: b"\0\xfc" * n)),
    ("non-finite-values", "error", quantised("Q4_0", b"\1\1" + b"\x11" * 16, b"\0\x7c" + b"\x11" * 16)),
    ("non-finite-values", "error", quantised("Q4_1", b"\1\1" + b"\x11" * 18, b"\1\1\1\xfe" + b"\x11" * 16)),
    ("all-zero", "warning", data("blk.0.ffn_up.weight", lambda n: bytes(4 * n))),
]


@pytest.mark.parametrize(("rule", "severity", "change"), CASES)
def test_exactly_that_rule_fires(tmp_path: Path, rule: str, severity: str, change: Change) -> None:
    file = DraftFile()
    change(file)
    kind = "dspark" if "markov_w1.weight" in file.tensors else "dflash"
    found = findings(file, tmp_path / f"{kind}-tiny.gguf")
    # What cannot be broken without breaking another thing too.
    besides = {"taps-empty": "zero-dimension", "head-width": "tensor-shape", "head-counts": "tensor-shape"}.get(rule)
    assert {(finding.rule, finding.severity) for finding in found if finding.rule != besides} == {(rule, severity)}, (
        found
    )
    assert all(finding.message and finding.where for finding in found)


def test_every_rule_is_broken_here() -> None:
    package = Path(dspark_convert.__file__).parent
    sources = [*(package / "lint").glob("*.py"), *(package / "ggufio" / name for name in GGUFIO)]
    sources.append(package / "tokenizer" / "template.py")
    text = "".join(path.read_text() for path in sources)
    rules = set(re.findall(r'(?:error|warning|info|tell)\(\s*"([a-z0-9-]+)"', text))
    of_pairs = {"taps-absurd", "taps-duplicate", "taps-unsorted"}
    elsewhere = {"big-endian", "gguf-version", "file-name", "values-unchecked"}
    of_files = {"broken-block", "split-file", "window-beyond-context"}
    broken = {rule for rule, _, _ in [*CASES, *STAGE_CASES]} | {rule for _, rule, _, _ in FAMILY_CASES}
    assert broken | elsewhere == rules | of_pairs | of_files


def test_a_good_file_has_no_finding(tmp_path: Path) -> None:
    assert findings(DraftFile(), tmp_path / "dspark-tiny.gguf") == ()


def test_a_zero_markov_head_of_ours_is_no_damage(tmp_path: Path) -> None:
    file = DraftFile()
    file.kv["dspark.markov_head_type"] = (STRING, "zero", None)
    for name in ("markov_w1.weight", "markov_w2.weight"):
        file.tensors[name] = ("F32", file.tensors[name][1])
        file.data[name] = bytes(4 * RANK * VOCAB)
    assert findings(file, tmp_path / "dspark-tiny.gguf") == ()


def test_tokenizers_of_other_kinds_are_good(tmp_path: Path) -> None:
    for change in (
        put(tokenizer__ggml__model=(STRING, "gemma4"), tokenizer__ggml__pre=None),
        put(tokenizer__ggml__pre=(STRING, "kimi-k2"), tokenizer__ggml__merges=None),
        put(
            tokenizer__ggml__model=(STRING, "llama"),
            tokenizer__ggml__scores=(ARRAY, [0.0] * VOCAB, F32),
            tokenizer__ggml__merges=None,
        ),
    ):
        file = DraftFile()
        change(file)
        assert findings(file, tmp_path / "dspark-tiny.gguf") == ()


def test_a_cap_changes_nothing_under_a_markov_head_of_zeros(tmp_path: Path) -> None:
    file = DraftFile()
    put(dspark__markov_head_type=(STRING, "zero"), dflash__final_logit_softcapping=(F32, 30.0))(file)
    (finding,) = findings(file, tmp_path / "dspark-tiny.gguf")
    assert (finding.rule, finding.severity) == ("logits-unscaled", "info")
    assert finding.message.endswith("the same tokens are drafted without it.")


def test_a_reduced_vocabulary_is_good(tmp_path: Path) -> None:
    file = DraftFile()
    reduced(list(range(3, 43)))(file)
    assert findings(file, tmp_path / "dspark-tiny.gguf") == ()


@pytest.mark.parametrize(("order", "version", "rule"), [(">", 3, "big-endian"), ("<", 2, "gguf-version")])
def test_byte_order_and_version(tmp_path: Path, order: str, version: int, rule: str) -> None:
    path = DraftFile().write(tmp_path / "dspark-tiny.gguf", order, version)
    with open_gguf(path) as gguf:
        found = lint(gguf, read_draft(gguf), deep=True)
    assert {finding.rule for finding in found} - {"values-unchecked"} == {rule}


def test_a_name_that_llama_cpp_does_not_find(tmp_path: Path) -> None:
    (finding,) = findings(DraftFile(), tmp_path / "draft.gguf")
    assert (finding.rule, finding.severity) == ("file-name", "info")


def test_values_are_read_only_if_asked(tmp_path: Path) -> None:
    file = DraftFile()
    file.data["fc.weight"] = NAN * (3 * HIDDEN * HIDDEN)
    assert findings(file, tmp_path / "dspark-tiny.gguf", deep=False) == ()


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    done: list[int] = []
    with open_gguf(DraftFile().write(tmp_path / "dspark-tiny.gguf")) as gguf:
        lint(gguf, read_draft(gguf), deep=True, advance=done.append)
        assert sum(done) == sum(tensor.nbytes for tensor in gguf.tensors)
