"""The second opinion: xllamacpp's server against the decoding loop here, to the token."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime import server, validation
from dspark_convert.runtime.guard import Outcome, run_job
from dspark_convert.runtime.library import Library, find_library
from dspark_convert.runtime.report import Check, ValidationReport
from dspark_convert.runtime.server import Counts, find_package, judge_answers, predict_counts
from dspark_convert.runtime.validation import read_prompts, validate
from fixtures import train_pair
from fixtures.target_gguf import write_target_gguf
from tests.cli.test_validate import call, checked
from tests.families.proofs import convert
from tests.oracle import Expected
from tests.runtime.foreseeing import make_dflash_pair
from tests.runtime.pairs import PairFiles, write_gguf

ROOT = Path(train_pair.__file__).with_name("pair")
PROMPTS = read_prompts(ROOT / "prompts.txt")

#: a token in the middle of what the trained target writes
MIDDLE = 453


def rounds(*accepted: int, drafts: int = 7) -> list[dict[str, Any]]:
    return [{"drafts": [0] * drafts, "accepted": count} for count in accepted]


@pytest.mark.parametrize(
    ("accepted", "length", "max_tokens", "counts"),
    [
        pytest.param([7, 7, 7], 25, 25, Counts(21, 21), id="whole rounds"),
        # written 1, 9, 17: room for 20 - 17 - 1 = 2 in the third round
        pytest.param([7, 7, 7], 20, 20, Counts(16, 16), id="a cut round"),
        # written 1, 9, 12, 15: room for 7, 16 - 9 - 1 = 6, 16 - 12 - 1 = 3 and none
        pytest.param([7, 2, 2, 5], 16, 16, Counts(16, 11), id="three cut rounds"),
        pytest.param([7], 9, 10, Counts(7, 7), id="the last token ends the text"),
        # written 1, 9, 17 of 12: five tokens lie behind the end
        pytest.param([7, 7], 12, 64, Counts(14, 9, 5), id="accepted behind the end"),
        pytest.param([], 1, 64, Counts(0, 0), id="ended at once"),
        pytest.param([0, 3], 2, 2, Counts(0, 0), id="no room for a draft"),
    ],
)
def test_counts_that_the_server_should_give(accepted: list[int], length: int, max_tokens: int, counts: Counts) -> None:
    assert predict_counts({"rounds": rounds(*accepted), "drafted": [1] * length}, max_tokens) == counts


def a_run(**changes: Any) -> dict[str, Any]:
    text = list(range(17))
    return {"plain": text, "drafted": text, "gaps": [1.0] * 17, "noise": 1e-3, "rounds": rounds(7, 7), **changes}


ANSWER = {"tokens": list(range(17)), "drafted": 14, "accepted": 14}
OTHER_TEXT = {**ANSWER, "tokens": [0, 1, 9, *range(3, 17)]}
NEAR_TIE = {"gaps": [1.0, 1.0, 1e-4, *[1.0] * 14]}


@pytest.mark.parametrize(
    ("run", "answer", "max_tokens", "status", "words"),
    [
        (a_run(), ANSWER, 17, "pass", "accepted 14 of 14 drafts, this run 14 of 14; 1 of 1 texts are the same"),
        (
            a_run(),
            {**ANSWER, "accepted": 13},
            17,
            "fail",
            "accepted 13 of 14 drafts, this run 14 of 14: one of the two",
        ),
        (a_run(), {**ANSWER, "drafted": 21}, 17, "fail", "one of the two does not draft as the file says"),
        (a_run(), {**ANSWER, "drafted": 0, "accepted": 0}, 17, "fail", "accepted 0 of 0 drafts"),
        (a_run(), OTHER_TEXT, 17, "fail", "another text for prompt 1 from token 2 on"),
        (a_run(**NEAR_TIE), OTHER_TEXT, 17, "pass", "0 of 1 texts are the same, the others part on near-ties"),
        (a_run(plain=[5] * 17), OTHER_TEXT, 17, "pass", "0 of 1 texts are the same"),
        # the text ends by itself, and the server leaves the token out that ends it
        (a_run(), {**ANSWER, "tokens": list(range(16))}, 64, "pass", "1 of 1 texts are the same"),
        (a_run(), {**ANSWER, "tokens": list(range(15))}, 64, "fail", "from token 15 on"),
        (a_run(), {**ANSWER, "tokens": list(range(16))}, 17, "fail", "from token 16 on"),
        (a_run(), {**ANSWER, "tokens": list(range(18))}, 64, "fail", "from token 17 on"),
    ],
)
def test_verdict(run: dict[str, Any], answer: dict[str, Any], max_tokens: int, status: str, words: str) -> None:
    check = judge_answers([run], [answer], max_tokens)
    assert check.status == status
    assert words in check.detail


def test_acceptance_behind_the_end_may_be_counted_or_not() -> None:
    text = list(range(12))
    run = a_run(plain=text, drafted=text)
    for accepted, status in ((9, "pass"), (12, "pass"), (14, "pass"), (8, "fail"), (15, "fail")):
        check = judge_answers([run], [{"tokens": text[:-1], "drafted": 14, "accepted": accepted}], 64)
        assert (check.status, "9 (and 5 behind the texts' ends)" in check.detail) == (status, True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return write_gguf(tmp_path_factory.mktemp("trained"), ROOT / "target", ROOT / "draft")


def opinion(report: ValidationReport) -> Check:
    return next(check for check in report.checks if check.name == "server")


def told_counts(said: Check) -> list[str]:
    """What was accepted of what, by the server and here."""
    return said.detail.split("; ")[0].removeprefix("xllamacpp's server accepted ").split(" drafts, this run ")


def ask(pair: PairFiles, draft: Path | None = None, **options: Any) -> ValidationReport:
    return validate(draft or pair.draft, pair.target, server=True, prompts=PROMPTS, timeout=100, **options)


def test_trained_pair(trained: PairFiles) -> None:
    """Equal to the draft: 64 tokens a prompt cut the last round of each."""
    report = ask(trained)
    assert report.passed, report.checks
    counted, expected = told_counts(opinion(report))
    assert counted == expected
    assert opinion(report).detail.endswith("10 of 10 texts are the same")
    assert report.checks[-1].name == "server"


def bonus(want: Expected) -> None:
    want.kv["dflash.sample_from_anchor"] = ("BOOL", False)


def without_heads(want: Expected) -> None:
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        del want.tensors[name]
    want.kv["dflash.sample_from_anchor"] = want.kv["dflash.has_confidence_head"] = ("BOOL", False)


@pytest.mark.parametrize("change", [bonus, without_heads])
def test_other_kinds_of_blocks(trained: PairFiles, change: Any) -> None:
    said = opinion(ask(trained, trained.broken(change.__name__, change), max_tokens=21))
    assert said.status == "pass"
    counted, expected = told_counts(said)
    assert counted == expected


def test_a_dflash2_draft(tmp_path: Path) -> None:
    """llama.cpp's server runs it as a DFlash draft, and walks through the selector's choices as is done here."""
    pair = make_dflash_pair("dflash2", tmp_path)
    convert(pair, tmp_path / "draft.gguf")
    write_target_gguf(pair.target_dir, tmp_path / "target.gguf")
    prompts = ["the small boat", "once upon a time"]
    report = validate(tmp_path / "draft.gguf", tmp_path / "target.gguf", server=True, prompts=prompts, timeout=100)
    assert opinion(report).status == "pass", report.checks
    counted, expected = told_counts(opinion(report))
    assert counted == expected and not counted.startswith("0 of")


def test_texts_that_end(trained: PairFiles, tmp_path: Path) -> None:
    """With a token from the middle as the one that ends a text."""
    paths = [tmp_path / "draft.gguf", tmp_path / "target.gguf"]
    key = b"tokenizer.ggml.eos_token_id" + struct.pack("<I", 4)
    for source, path in zip((trained.draft, trained.target), paths, strict=True):
        data = bytearray(source.read_bytes())
        at = data.index(key) + len(key)
        data[at : at + 4] = struct.pack("<I", MIDDLE)
        path.write_bytes(data)
    report = validate(paths[0], paths[1], server=True, prompts=PROMPTS, timeout=100)
    said = opinion(report)
    assert said.status == "pass", said
    assert "behind the texts' ends)" in said.detail
    assert said.detail.endswith("10 of 10 texts are the same")


def test_another_loop_than_the_server_s_is_seen(trained: PairFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stands for a decoding loop which reads the draft's slots one too late."""
    real = run_job

    def shifted(*args: Any, **options: Any) -> Outcome:
        outcome = real(*args, **options)
        assert outcome.result is not None
        for run in outcome.result["runs"]:
            for entry in run["rounds"]:
                entry["accepted"] = max(0, entry["accepted"] - 1)
        return outcome

    monkeypatch.setattr(validation, "run_job", shifted)
    assert opinion(ask(trained)).status == "fail"


def test_server_that_does_not_start_is_told(trained: PairFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_job

    def with_target_as_draft(job: dict[str, Any], **options: Any) -> Outcome:
        return real({**job, "draft": job["target"]}, **options)

    monkeypatch.setattr(server, "run_job", with_target_as_draft)
    said = opinion(ask(trained, max_tokens=8))
    assert said.status == "fail"
    assert said.detail.startswith("while starting the server, llama.cpp stopped on an assertion of its own: ")


def test_server_that_takes_too_long_is_ended(trained: PairFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_job
    monkeypatch.setattr(server, "run_job", lambda job, **options: real(job, **{**options, "timeout": 0.01}))
    said = opinion(ask(trained, max_tokens=8))
    assert said.status == "fail"
    assert "the 0.01 seconds allowed ran out" in said.detail


def test_command_and_its_document(trained: PairFiles, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(PROMPTS[0], encoding="utf-8")
    options: list[str | Path] = ["--target", trained.target, "--prompts", prompts, "--server"]
    done = call(trained.draft, *options, "--max-tokens", "24", "--json")
    assert done.returncode == 0, done.stderr
    said = checked(done.stdout)["checks"][-1]
    assert (said["name"], said["status"]) == ("server", "pass")
    wrong = trained.broken("no-block", lambda want: want.kv.pop("dflash.block_size"))
    said = checked(call(wrong, *options, "--json").stdout)["checks"][-1]
    assert (said["name"], said["status"]) == ("server", "skip")


def test_file_names_that_the_server_cannot_open_are_told(trained: PairFiles, tmp_path: Path) -> None:
    draft = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.gguf"))
    draft.symlink_to(trained.draft)
    copy = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe.gguf"))
    copy.write_bytes(trained.draft.read_bytes())
    said = opinion(ask(trained, copy, max_tokens=8))
    assert (said.status, said.detail) == (
        "fail",
        "xllamacpp's server takes no file names but UTF-8 ones; rename the files.",
    )
    assert opinion(ask(trained, draft, max_tokens=8)).status == "pass"  # it names the file that is meant


def test_package_of_the_library_comes_first(tmp_path: Path) -> None:
    library = tmp_path / "xllamacpp.abi3.so"
    installed = find_package(Library(library, "--lib"))
    assert installed == find_library().path.parent
    (tmp_path / "__init__.py").touch()
    assert find_package(Library(library, "--lib")) == tmp_path
    assert find_package(Library(tmp_path / "libllama.so", "--lib")) == installed


def test_missing_package_is_told_before_anything_runs(
    trained: PairFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lone = tmp_path / "libllama.so"
    lone.symlink_to(find_library().path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(validation, "run_job", lambda *_args, **_options: pytest.fail("it ran"))
    monkeypatch.setattr("dspark_convert.runtime.library._named", lambda path, source: Library(path, source))
    with pytest.raises(
        EnvironmentFault, match=r"package xllamacpp, which is not installed; .*dspark-convert\[validate\]"
    ):
        ask(trained, lib=lone)
