"""Whole comparisons with the checkpoint: right files of every type pass, wrong ones fail where they are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from benchmarks.noise import in_child
from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.runtime.parity_verdict import Parity
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import read_prompts, validate
from fixtures import train_pair
from fixtures.target_gguf import write_target_gguf
from tests import oracle
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, make_random_pair, write_gguf

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = ("the small boat", "once upon a time there was a house by the river and")
SCHEMA = json.loads((files("dspark_convert") / "schemas" / "validate-1.json").read_text())
CHECKS = "draft pair metadata values load drafting acceptance lossless features parity confidence".split()

#: what issue 3 asks of F32 files
EXACT = 1e-5


def run(pair: PairFiles, draft: Path | None = None, target: Path | None = None, **options: Any) -> ValidationReport:
    """The report on a draft of ``pair``, checked against the schema."""
    asked: dict[str, Any] = {"reference": pair.draft_dir, "prompts": PROMPTS, "max_tokens": 12, "timeout": 60} | options
    report = validate(draft or pair.draft, target or pair.target, **asked)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    return report


def failed(report: ValidationReport) -> list[str]:
    return [check.name for check in report.checks if check.status == "fail"]


def parity_of(report: ValidationReport) -> Parity:
    assert report.parity is not None
    return report.parity


def relative(report: ValidationReport) -> list[float]:
    held = parity_of(report).held
    assert held is not None
    return [position.relative for position in held.positions]


def typed(pair: PairFiles, outtype: str, shared: str = "omit") -> Path:
    path = pair.root / f"{outtype}-{shared}.gguf"
    oracle.write(oracle.expected(pair.draft_dir, pair.target_dir, outtype, shared=shared), path, pair.target)
    return path


def test_right_file(random_pair: PairFiles) -> None:
    """It passes everything but acceptance, which a random draft cannot."""
    report = run(random_pair, target_reference=random_pair.target_dir)
    assert [check.name for check in report.checks] == CHECKS
    assert failed(report) == ["acceptance"]
    acceptance = report.check("acceptance")
    assert acceptance is not None
    assert "the file computes what its checkpoint does (see parity)" in acceptance.detail
    assert len(relative(report)) == 7
    assert 0 < max(relative(report)) < EXACT
    parity = parity_of(report)
    assert parity.held is not None
    assert all(position.argmax_agree == 1 for position in parity.held.positions)
    assert 0 < (parity.held.confidence_max_abs or 0) < 1e-6
    assert parity.unrounded is None
    assert parity.suspects == []
    assert [(f.file_tap, f.reference_tap, f.relative) for f in parity.features] == [(n, n, 0.0) for n in (1, 2, 3)]
    assert all(0 < (f.target_relative or 0) < 1e-5 for f in parity.features)
    # of the blocks as many as were drafted, 16 a prompt at most
    assert report.acceptance is not None
    assert parity.held.blocks == report.acceptance.rounds


def test_trained_pair_passes_everything(tmp_path: Path) -> None:
    root = Path(train_pair.__file__).with_name("pair")
    pair = write_gguf(tmp_path, root / "target", root / "draft")
    prompts = read_prompts(root / "prompts.txt")[:3]
    report = run(pair, target_reference=pair.target_dir, prompts=prompts, max_tokens=32)
    assert report.passed, report.checks
    assert max(relative(report)) < EXACT
    report = run(pair, typed(pair, "bf16"), root / "target.gguf", prompts=prompts, max_tokens=32)
    assert report.passed, report.checks


@pytest.mark.parametrize(
    ("outtype", "shared", "noise"),
    [("f16", "omit", 5e-3), ("bf16", "include", 5e-2), ("q8_0", "include", 0.12)],
)
def test_rounded_file_is_held_against_the_rounded_checkpoint(
    random_pair: PairFiles, outtype: str, shared: str, noise: float
) -> None:
    report = run(random_pair, typed(random_pair, outtype, shared))
    assert failed(report) == ["acceptance"]
    parity = parity_of(report)
    assert parity.tolerance.type_name == outtype.upper()
    # far above exactness, so the type's arithmetic is really measured, and well below the tolerance
    assert EXACT * 10 < max(relative(report)) < noise < parity.tolerance.logits
    assert parity.unrounded is not None
    cost = max(position.relative for position in parity.unrounded.positions)
    assert cost > max(relative(report))
    detail = report.check("parity")
    assert detail is not None
    assert "without the file's rounding" in detail.detail


def test_k_quants(tmp_path: Path) -> None:
    """The file's own values stand in for a second opinion, and the target lends quantised tables."""
    pair = make_random_pair(tmp_path, hidden_size=256, heads=8, intermediate_size=512, markov_rank=256)
    for source in (pair.draft, pair.target):
        in_child(source, tmp_path / f"Q4_K-{source.name}", "Q4_K")
    report = run(pair, tmp_path / "Q4_K-draft.gguf", tmp_path / "Q4_K-target.gguf", target_reference=pair.target_dir)
    assert failed(report) == ["acceptance"]
    parity = parity_of(report)
    assert parity.unrounded is not None
    # what the type costs is ten times what its arithmetic explains: the two are not mixed up
    assert max(relative(report)) < 0.2
    assert max(position.relative for position in parity.unrounded.positions) > 0.5
    assert report.to_json()["parity"]["type"] == "types below 8 bits"


def test_exact_file_with_a_rounded_target(random_pair: PairFiles, tmp_path: Path) -> None:
    """The head is borrowed, so its type decides, and the reference uses the values that the target holds."""
    write_target_gguf(random_pair.target_dir, target := tmp_path / "bf16.gguf", "bf16")
    report = run(random_pair, target=target)
    assert failed(report) == ["acceptance"]
    assert parity_of(report).tolerance.type_name == "BF16"


def test_tied_target(tmp_path: Path) -> None:
    report = run(make_random_pair(tmp_path, tie=True))
    assert failed(report) == ["acceptance"]
    assert max(relative(report)) < EXACT


def test_draft_without_heads(tmp_path: Path) -> None:
    """DeepSpec's DFlash sibling: anchor-first, which llama.cpp runs with a Markov head of zeros."""
    report = run(make_random_pair(tmp_path, markov_rank=0))
    assert failed(report) == ["acceptance"]
    assert max(relative(report)) < EXACT
    confidence = report.check("confidence")
    assert confidence is not None
    assert confidence.detail == "the checkpoint has no confidence head"


def without_markov_head(want: Expected) -> None:
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        want.tensors.pop(name, None)
    del want.kv["dflash.sample_from_anchor"], want.kv["dflash.has_confidence_head"]


def test_bonus_anchor(tmp_path: Path) -> None:
    pair = make_random_pair(tmp_path)
    edit_config(pair, sample_from_anchor=False)
    report = run(pair, pair.broken("bonus", key("dflash.sample_from_anchor", "BOOL", False)))
    assert failed(report) == ["acceptance"]
    assert len(relative(report)) == 6
    assert max(relative(report)) < EXACT


def test_plain_dflash(tmp_path: Path) -> None:
    pair = make_random_pair(tmp_path, markov_rank=0)
    edit_config(pair, architectures=["DFlashDraftModel"])
    report = run(pair, pair.broken("dflash", without_markov_head))
    assert failed(report) == ["acceptance"]
    assert len(relative(report)) == 6
    assert max(relative(report)) < EXACT


def edit_config(pair: PairFiles, **changes: Any) -> None:
    path = pair.draft_dir / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def key(name: str, kind: str, value: Any) -> Callable[[Expected], Any]:
    return lambda want: want.kv.update({name: (kind, value)})


def tensor(name: str, change: Callable[[Any], Any]) -> Callable[[Expected], None]:
    def edit(want: Expected) -> None:
        kind, shape, data = want.tensors[name]
        values = change(np.frombuffer(data, np.float32).reshape(shape[::-1]).copy())
        want.tensors[name] = (kind, shape, np.ascontiguousarray(values, np.float32).tobytes())

    return edit


def other_rotation(want: Expected) -> None:
    order = np.arange(32).reshape(2, 16).T.reshape(-1)
    for name in [name for name in want.tensors if name.endswith(("attn_q.weight", "attn_k.weight"))]:
        tensor(name, lambda a: a.reshape(-1, 32, a.shape[1])[:, order])(want)


LOGITS = ["parity", "confidence"]


@pytest.mark.parametrize(
    ("change", "checks", "suspect"),
    [
        (other_rotation, ["values", *LOGITS], "the check values names them"),
        (key("dflash.rope.freq_base", "FLOAT32", 1e6), ["metadata", *LOGITS], "the check metadata names the keys"),
        (key("dflash.target_layers", "ARRAY[INT32]", [0, 1, 2]), ["metadata", "features", *LOGITS], "one too low"),
        (key("dflash.target_layers", "ARRAY[INT32]", [3, 2, 1]), ["metadata", "features", *LOGITS], "another order"),
        (key("tokenizer.ggml.mask_token_id", "UINT32", 501), ["metadata", *LOGITS], "metadata"),
        (key("dflash.sample_from_anchor", "BOOL", False), ["metadata", *LOGITS], "metadata"),
        (key("dflash.block_size", "UINT32", 6), ["metadata", *LOGITS], "metadata"),
        (key("dflash.block_size", "UINT32", 8), ["metadata", *LOGITS], "metadata"),
        (key("dflash.attention.causal", "BOOL", True), ["metadata", *LOGITS], "metadata"),
        (key("dflash.attention.layer_norm_rms_epsilon", "FLOAT32", 1e-5), ["metadata"], "metadata"),
        (key("dflash.context_length", "UINT32", 2048), ["metadata"], "metadata"),
        (tensor("markov_w1.weight", lambda a: np.roll(a, 1, 0)), ["values", *LOGITS], "values"),
        (tensor("conf_proj.bias", lambda a: a + 0.5), ["values", "confidence"], "values"),
        (tensor("conf_proj.weight", lambda a: np.roll(a, 16, 1)), ["values", "confidence"], "only the confidence"),
    ],
)
def test_wrong_file_fails_where_it_is_wrong(
    random_pair: PairFiles, change: Callable[[Expected], Any], checks: list[str], suspect: str
) -> None:
    report = run(random_pair, random_pair.broken("wrong", change))
    assert [name for name in failed(report) if name != "acceptance"] == checks
    assert not report.passed
    assert any(suspect in cause for cause in parity_of(report).suspects), parity_of(report).suspects
    if "parity" in checks:
        assert max(relative(report)) > 0.1
    else:
        assert max(relative(report)) < 1e-4


def test_a_wrong_file_is_not_called_right_where_its_numbers_agree(random_pair: PairFiles) -> None:
    """A norm follows, which takes the factor away."""
    report = run(random_pair, random_pair.broken("doubled", tensor("fc.weight", lambda a: 2 * a)))
    assert failed(report) == ["values", "acceptance"]
    acceptance = report.check("acceptance")
    assert acceptance is not None
    assert "the conversion is right" not in acceptance.detail


def test_another_target(random_pair: PairFiles, tmp_path: Path) -> None:
    """Same sizes, other weights: the borrowed tables differ, and so do the layer inputs."""
    other = make_random_pair(tmp_path, seed=9)
    report = run(random_pair, target=other.target, target_reference=random_pair.target_dir)
    assert {"values", "features"} <= set(failed(report))
    assert any("another target" in cause for cause in parity_of(report).suspects)


def test_taps_that_the_target_does_not_offer(tmp_path: Path) -> None:
    """The checkpoint was trained for a deeper target; the file was made to run with this one."""
    deep = make_random_pair(tmp_path / "deep", target_layers_count=6, target_layer_ids=(0, 1, 4))
    shallow = make_random_pair(tmp_path / "shallow")
    path = shallow.root / "draft-of-deep.gguf"
    want = oracle.expected(deep.draft_dir, deep.target_dir, "f32")
    want.kv["dflash.target_layers"] = ("ARRAY[INT32]", [1, 2, 3])
    oracle.write(want, path, shallow.target)
    report = run(deep, path, shallow.target)
    assert {"metadata", "features", "parity"} <= set(failed(report))
    features, parity = report.check("features"), report.check("parity")
    assert features is not None
    assert parity is not None
    assert features.detail == "the checkpoint taps the input of layer 5, but the target offers 0 to 3"
    assert parity.detail.startswith("nothing was compared: the target does not offer the layers")


def test_files_are_judged_although_they_do_not_load(random_pair: PairFiles) -> None:
    report = run(random_pair, random_pair.broken("short", lambda want: want.tensors.pop("blk.1.ffn_up.weight")))
    assert failed(report) == ["draft", "values"]
    assert [check.status for check in report.checks][-7:] == ["skip"] * 7
    assert report.parity is None


def test_answers_that_end_at_once_prove_nothing(random_pair: PairFiles) -> None:
    report = run(random_pair, max_tokens=1)
    parity = report.check("parity")
    assert parity is not None
    assert parity.status == "fail"
    assert "nothing was compared" in parity.detail


def test_checkpoint_that_the_reference_cannot_compute(random_pair: PairFiles, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(InputError):
        run(random_pair, reference=tmp_path)
    with pytest.raises(UsageError, match="there is no directory"):
        run(random_pair, reference=tmp_path / "none")


def test_without_torch(random_pair: PairFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark_convert.runtime import proof

    monkeypatch.setattr(proof, "NEEDED", ("no_such_package",))
    with pytest.raises(EnvironmentFault, match=r"no_such_package not installed; .*pip install 'dspark-convert\[vali"):
        run(random_pair)
    assert validate(random_pair.draft, random_pair.target, prompts=PROMPTS, max_tokens=4).parity is None
