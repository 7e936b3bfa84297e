"""Whole validations on pairs whose acceptance is known, and every way in which one must fail."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import default_prompts, read_prompts, validate
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles

PROMPTS = ("the small boat", "once upon a time", "what is a house")


def states(report: ValidationReport) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def detail(report: ValidationReport, name: str) -> str:
    return next(check.detail for check in report.checks if check.name == name)


def run(pair: PairFiles, draft: Path | None = None, max_tokens: int = 25) -> ValidationReport:
    return validate(draft or pair.draft, pair.target, prompts=PROMPTS, max_tokens=max_tokens, timeout=60)


def test_perfect_draft_passes(bigram_pair: PairFiles) -> None:
    report = run(bigram_pair)
    assert report.passed
    assert states(report) == dict.fromkeys(("draft", "pair", "load", "drafting", "acceptance", "lossless"), "pass")
    assert report.lossless is True
    assert report.acceptance is not None
    # 24 tokens behind the first one: three whole rounds of 8 a prompt
    assert report.acceptance.drafted == report.acceptance.accepted == (9,) * 7
    assert report.acceptance.mean_accepted_length == 8
    assert detail(report, "lossless") == "3 of 3 texts equal plain decoding"


def test_library_is_described(bigram_pair: PairFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSPARK_LLAMA_LIB", raising=False)
    library = run(bigram_pair).library
    assert library["source"].startswith("xllamacpp 20")
    assert Path(library["path"]).is_file()
    assert {library["model_params"], library["context_params"]} <= {"A", "B", "C"}
    assert library["injection"] in ("decode", "encode+decode")


def test_json_is_as_designed(bigram_pair: PairFiles) -> None:
    document = json.loads(json.dumps(run(bigram_pair).to_json()))
    assert list(document) == ["schema", "library", "checks", "parity", "acceptance", "lossless"]
    assert document["schema"] == "dspark-validate/1"
    assert document["parity"] is None
    assert document["acceptance"] == {"drafted": [9] * 7, "accepted": [9] * 7, "mean_accepted_length": 8.0}
    assert document["lossless"] is True
    assert all(list(check) == ["name", "status", "detail"] for check in document["checks"])


def test_draft_that_knows_nothing_fails(random_pair: PairFiles) -> None:
    report = run(random_pair)
    assert not report.passed
    assert states(report)["acceptance"] == "fail"
    assert "by chance alone" in detail(report, "acceptance")
    assert report.lossless is True  # a wrong draft never makes wrong text


def test_shuffled_markov_head_fails(bigram_pair: PairFiles) -> None:
    def change(want: Expected) -> None:
        kind, shape, data = want.tensors["markov_w1.weight"]
        rows = np.frombuffer(data, np.float32).reshape(shape[::-1])
        want.tensors["markov_w1.weight"] = (kind, shape, np.roll(rows, 1, axis=0).tobytes())

    report = run(bigram_pair, bigram_pair.broken("shuffled", change))
    assert not report.passed
    assert states(report)["acceptance"] == "fail"


def test_wrong_anchor_flag_is_seen_in_acceptance(bigram_pair: PairFiles) -> None:
    """A bonus-anchor draft read as such proposes one token less a block."""

    def change(want: Expected) -> None:
        want.kv["dflash.sample_from_anchor"] = ("BOOL", False)

    report = run(bigram_pair, bigram_pair.broken("bonus", change))
    assert report.acceptance is not None
    assert len(report.acceptance.drafted) == 6


def test_nan_in_a_tensor_is_told(random_pair: PairFiles) -> None:
    def change(want: Expected) -> None:
        kind, shape, data = want.tensors["output_norm.weight"]
        want.tensors["output_norm.weight"] = (kind, shape, np.full(len(data) // 4, np.nan, np.float32).tobytes())

    report = run(random_pair, random_pair.broken("nan", change))
    assert states(report)["drafting"] == "fail"
    assert "computes NaN" in detail(report, "drafting")


@pytest.mark.usefixtures("no_library")
def test_file_that_fails_the_checks_before_never_reaches_the_library(random_pair: PairFiles) -> None:
    report = run(random_pair, random_pair.broken("no-block", lambda want: want.kv.pop("dflash.block_size")))
    assert not report.passed
    assert states(report) == {
        "draft": "fail",
        **dict.fromkeys(("pair", "load", "drafting", "acceptance", "lossless"), "skip"),
    }
    assert report.to_json()["acceptance"] is None
    assert report.to_json()["lossless"] is None


def test_answers_that_end_at_once_are_no_success(bigram_pair: PairFiles) -> None:
    """With nothing to draft, nothing was shown."""
    report = run(bigram_pair, max_tokens=1)
    assert not report.passed
    assert states(report)["drafting"] == "fail"
    assert "proposed no token" in detail(report, "drafting")


def test_prompt_that_does_not_fit_is_told(bigram_pair: PairFiles) -> None:
    with pytest.raises(UsageError, match="trained for 1024"):
        validate(bigram_pair.draft, bigram_pair.target, prompts=["boat " * 2000], timeout=60)


@pytest.mark.usefixtures("no_library")
def test_no_library(random_pair: PairFiles) -> None:
    with pytest.raises(EnvironmentFault, match=r"dspark-convert\[validate\]"):
        run(random_pair)


def test_file_that_is_no_library(random_pair: PairFiles, tmp_path: Path) -> None:
    text = tmp_path / "libllama.so"
    text.write_text("not a library")
    with pytest.raises(EnvironmentFault, match="cannot be loaded as a library"):
        validate(random_pair.draft, random_pair.target, lib=text, timeout=60)


def test_library_that_is_no_llama_cpp(random_pair: PairFiles) -> None:
    import _ctypes

    with pytest.raises(EnvironmentFault, match=r"is not a llama.cpp library .* llama_backend_init"):
        validate(random_pair.draft, random_pair.target, lib=Path(_ctypes.__file__), timeout=60)


def test_missing_target_file(random_pair: PairFiles) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        validate(random_pair.draft, random_pair.root / "none.gguf")


def test_too_little_time_is_told(random_pair: PairFiles) -> None:
    report = validate(random_pair.draft, random_pair.target, timeout=0.01)
    assert states(report)["load"] == "fail"
    assert "the 0.01 seconds allowed ran out" in detail(report, "load")


def test_prompts(tmp_path: Path) -> None:
    assert len(default_prompts()) >= 6
    path = tmp_path / "prompts.txt"
    path.write_text("one\n\n  two words \n", encoding="utf-8")
    assert read_prompts(path) == ["one", "  two words "]
    path.write_text("\n \n")
    with pytest.raises(InputError, match="holds no prompt"):
        read_prompts(path)
    with pytest.raises(InputError, match="/dev/zero holds more than 16 MiB of prompts"):
        read_prompts(Path("/dev/zero"))
    path.write_bytes(b"ab\xff")
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte 2\)"):
        read_prompts(path)


def test_prompts_from_a_pipe(tmp_path: Path) -> None:
    """As of ``--prompts <(command)``."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("one\n",), daemon=True)
    writer.start()
    assert read_prompts(tmp_path / "pipe") == ["one"]
    writer.join()
    with pytest.raises(UsageError, match="no prompts file"):
        read_prompts(tmp_path)


def test_prompts_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/self/mem: it opens, and reading ends in an error that names no file."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "prompts.txt"
    path.write_text("one")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(EnvironmentFault, match=r"prompts\.txt cannot be read: Input/output error"):
        read_prompts(path)
