"""dspark-inspect from outside: what it prints, its JSON against the schema, its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dspark_convert.cli.describe import meaning_fields, next_step, value_text
from dspark_convert.inspection import inspect_directory, inspect_file
from fixtures.tiny import make_tiny_pair
from tests.draft_file import ARRAY, BOOL, F32, HIDDEN, STRING, U32, DraftFile

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "inspect-1.json").read_text())


def inspect(*args: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def document(*args: str | Path) -> dict[str, Any]:
    _, out, _ = inspect(*args, "--json")
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    return found


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return DraftFile().write(tmp_path / "dspark-tiny.gguf")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = DraftFile()
    file.kv["dspark.block_size"] = (U32, 5, None)
    file.kv["general.name"] = (STRING, "evil\x1b[2J\n::error::\u202e", None)
    return file.write(tmp_path / "dspark-bad.gguf")


def test_the_meaning_comes_first_then_findings_then_tables(good: Path) -> None:
    code, out, err = inspect(good, "--tensors", "--metadata")
    assert (code, err) == (0, "")
    order = [out.index(text) for text in ("DSpark draft", "Run it with", "Nothing wrong", "Metadata", "Tensors")]
    assert order == sorted(order)
    for text in (
        "7 slots, 7 drafts a round, the first at the anchor",
        "the inputs of target layers 1, 3, 5",
        "77  <77>",
        "vanilla, rank 32",
        "80 tokens, tokenizer gpt2, pre-tokenizer qwen2",
        "borrowed from the target",
        "someone/tiny",
        "--spec-type draft-dspark --spec-draft-n-max 7",
        "[<0>, <1>, <2>, <3>, <4>, <5>, <6>, <7>, …] (80 items)",
        "blk.1.ffn_down.weight",
    ):
        assert text in out


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*{'numpy', 'rich', 'torch', 'ctypes'} & set(sys.modules), file=sys.stderr))\n"
        "from dspark_convert.cli.inspect import main\n"
        "sys.argv = ['dspark-inspect', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "--strict" in done.stdout
    assert done.stderr == "\n"


def test_tables_only_if_asked(good: Path) -> None:
    out = inspect(good)[1]
    assert "blk.1.ffn_down.weight" not in out
    assert "tokenizer.ggml.tokens" not in out
    assert len(out.splitlines()) <= 24


def test_exit_codes(good: Path, bad: Path, tmp_path: Path) -> None:
    assert inspect(good, "--strict")[0] == 0
    assert inspect(bad)[0] == 0
    assert inspect(bad, "--strict")[0] == 1
    file = DraftFile()
    file.kv["general.file_type"] = (U32, 0, None)
    assert inspect(file.write(tmp_path / "dspark-warning.gguf"), "--strict")[0] == 1
    assert inspect(DraftFile().write(tmp_path / "other-name.gguf"), "--strict")[0] == 0  # an info alone
    code, out, err = inspect(tmp_path / "none.gguf")
    assert (code, out) == (2, "")
    assert err == f"error: {tmp_path / 'none.gguf'} does not exist.\n"
    assert inspect()[0] == 2
    code, _, err = inspect(tmp_path, "--deep")
    assert (code, err.count("\n")) == (2, 1)


def test_a_strangers_strings_are_shown_not_obeyed(bad: Path) -> None:
    _, out, _ = inspect(bad, "--metadata")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "evil\\x1b[2J\\n::error::\\u202e" in out
    assert "It cannot be run as it is\n  see the errors below" in out


def test_quiet_tells_errors_alone(good: Path, bad: Path) -> None:
    assert inspect(good, "--quiet") == (0, "", "")
    code, out, err = inspect(bad, "--quiet", "--strict")
    assert (code, out) == (1, "")
    assert err.startswith("error: dspark.block_size: ")


def test_json_of_a_file(good: Path) -> None:
    found = document(good, "--deep")
    assert found["file"] == {
        "path": str(good),
        "kind": "gguf",
        "bytes": good.stat().st_size,
        "version": 3,
        "byte_order": "little",
        "alignment": 32,
    }
    assert found["dialect"] == "dflash"
    assert found["draft"]["target_layers"] == [1, 3, 5]
    assert found["draft"]["rope"] == {"style": "neox", "dimension_count": 16, "freq_base": 1e6, "scaling": None}
    assert found["draft"]["shared_tensors"] == {"token_embd": False, "output": False}
    assert found["metadata"]["tokenizer.ggml.tokens"][77] == "<77>"
    assert found["metadata"]["dflash.sample_from_anchor"] is True
    assert found["tensors"][0] == {"name": "fc.weight", "type": "F32", "shape": [192, 64], "bytes": 49152}
    assert found["findings"] == []


def test_json_of_a_bad_file_and_of_none(bad: Path, tmp_path: Path) -> None:
    assert [f["rule"] for f in document(bad)["findings"]] == ["meaning-disagrees"]
    failure = document(tmp_path / "none.gguf")
    assert failure["error"]["exit_code"] == 2
    file = DraftFile()
    file.kv["general.architecture"] = (STRING, "dflash-draft", None)
    legacy = document(file.write(tmp_path / "old.gguf"))
    assert (legacy["dialect"], legacy["draft"]) == ("dflash-draft", None)
    assert legacy["findings"][0]["rule"] == "legacy-layout"


def test_a_checkpoint_directory_is_seen_as_it_would_be_written(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    code, out, err = inspect(pair.draft_dir, "--tensors")
    assert (code, err) == (0, "")
    assert "Convert it with\n  dspark-convert " in out
    assert "fc.weight" in out
    found = document(pair.draft_dir)
    assert found["file"]["kind"] == "checkpoint"
    assert found["draft"]["target_layers"] == [1, 2, 3]
    assert found["metadata"]["dflash.block_size"] == found["draft"]["block_size"]
    assert len(found["tensors"]) == 40


def test_the_target_in_place_of_the_draft(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    code, out, err = inspect(pair.target_dir)
    assert (code, out) == (3, "")
    assert "not a DSpark draft" in err


def test_errors_in_a_checkpoint_are_findings(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    path = pair.draft_dir / "config.json"
    config = json.loads(path.read_text())
    del config["block_size"]
    path.write_text(json.dumps(config))
    assert inspect(pair.draft_dir, "--strict")[0] == 1
    found = document(pair.draft_dir)
    assert any("block_size" in f["message"] and f["severity"] == "error" for f in found["findings"])
    assert found["draft"] is None
    assert "block_size" in inspect(pair.draft_dir)[1]


def test_eighty_columns_on_a_terminal(good: Path) -> None:
    parent, child = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", good.name, "--tensors"]
    process = subprocess.Popen(command, stdout=child, stderr=subprocess.PIPE, env=env, cwd=good.parent)
    os.close(child)
    shown = b""
    while chunk := _read(parent):
        shown += chunk
    assert process.wait(timeout=30) == 0
    lines = shown.decode().splitlines()
    # The command to run is one line, so that it can be copied.
    assert all(len(line) <= 80 or "llama-server" in line for line in lines)
    assert any(line.endswith("tokenizer qwen2") for line in lines)
    assert b"\x1b[" not in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux' way to say that the other end is closed
        return b""


def described(file: DraftFile, path: Path) -> dict[str, str]:
    inspection = inspect_file(file.write(path))
    return {**dict(meaning_fields(inspection)), "heading": next_step(inspection)[0], "run": next_step(inspection)[1]}


def test_words_for_other_drafts(tmp_path: Path) -> None:
    file = DraftFile()
    file.kv |= {
        "dflash.sample_from_anchor": (BOOL, False, None),
        "dflash.attention.sliding_window": (U32, 128, None),
        "dflash.attention.sliding_window_pattern": (ARRAY, [True, False], BOOL),
        "dflash.attention.causal": (BOOL, True, None),
        "dflash.rope.scaling.type": (STRING, "yarn", None),
        "dflash.rope.scaling.factor": (F32, 16.0, None),
        "dspark.revision": (STRING, "abc", None),
        "dspark.converter_version": (STRING, "0.1.0", None),
        "dspark.target.name": (STRING, "Qwen/Qwen3-8B", None),
    }
    file.tensors["output.weight"] = ("F32", (HIDDEN, 40))
    file.tensors["d2t"] = ("I64", (40,))
    file.tensors["markov_w2.weight"] = ("Q8_0", (32, 40))
    words = described(file, tmp_path / "dspark-it's.gguf")
    assert words["kind"] == "DSpark draft for Qwen/Qwen3-8B, layout dflash"
    assert words["block"] == "7 slots, 6 drafts a round, the first at the slot after the anchor"
    assert words["attention"] == "causal within the block, a window of 128 in layer 0, context 4,096"
    assert words["RoPE"].endswith("base 1,000,000, scaled YaRN 16 times")
    assert words["vocabulary"].startswith("80 tokens, of which it drafts 40, ")
    assert words["shared tensors"] == "embeddings are borrowed from the target, the head is its own (10.2 kB)"
    assert words["made from"] == "someone/tiny at abc, by dspark-convert 0.1.0"
    assert "dspark-it'\"'\"'s.gguf'" in words["run"]
    assert words["run"].endswith("--spec-draft-n-max 6")


def test_words_for_the_early_layout(tmp_path: Path) -> None:
    file = DraftFile()
    file.kv = {key.replace("dflash.", "dspark."): value for key, value in file.kv.items()}
    file.kv["general.architecture"] = (STRING, "dspark", None)
    words = described(file, tmp_path / "dspark-early.gguf")
    assert words["kind"].endswith("layout dspark")
    assert words["runs on"] == "the first llama.cpp revisions with DSpark"
    assert words["heading"] == "Make a file for mainline llama.cpp with"
    assert words["run"] == f"dspark-convert {tmp_path / 'dspark-early.gguf'} --target-gguf TARGET.gguf"


def test_value_text() -> None:
    assert value_text(True) == "true"
    assert value_text(1e-6) == "1e-06"
    assert value_text(1e6) == "1000000"
    assert value_text("a\nb" * 60) == "a\\nb" * 33 + "a… (180 characters)"
    assert value_text(["x" * 50, 2]) == f"[{'x' * 12}… (50 characters), 2]"
    assert value_text(list(range(9))) == "[0, 1, 2, 3, 4, 5, 6, 7, …] (9 items)"


def test_inspect_directory_is_the_plan(tmp_path: Path) -> None:
    from dspark_convert.plan import plan_for_directory

    pair = make_tiny_pair(tmp_path)
    inspection, plan = inspect_directory(pair.draft_dir), plan_for_directory(pair.draft_dir)
    assert inspection.draft == plan.draft
    assert inspection.findings == plan.findings
    assert [row.name for row in inspection.tensors] == [job.name for job in plan.tensors]
    assert inspection.nbytes == sum(job.nbytes for job in plan.tensors)


def test_a_checkpoint_with_errors_has_no_made_up_sizes(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    config = pair.draft_dir / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"mask_token_id": 99999}))
    code, out, _ = inspect(pair.draft_dir)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == str(pair.draft_dir)
    assert any(line.startswith("mask token") and line.endswith("99999") for line in lines)
    assert not any(line.startswith(("weights", "made from", "shared tensors")) for line in lines)
    assert "error: config.json: mask_token_id" in out


@pytest.mark.parametrize(
    ("change", "heading"),
    [
        ("tokenizer.ggml.tokens", "Make a file for mainline llama.cpp with"),
        ("dflash.block_size", "It cannot be run as it is"),
        ("dflash.attention.layer_norm_rms_epsilon", "It cannot be run as it is"),
    ],
)
def test_what_to_do_with_a_file_that_lacks_a_key(tmp_path: Path, change: str, heading: str) -> None:
    file = DraftFile()
    del file.kv[change]
    assert described(file, tmp_path / "dspark-x.gguf")["heading"] == heading


def test_embeddings_alone_are_left_out_by_a_port(tmp_path: Path) -> None:
    file = DraftFile()
    file.tensors["token_embd.weight"] = ("F32", (HIDDEN, 80))
    words = described(file, tmp_path / "-x.gguf")
    assert words["heading"] == "Make a file for mainline llama.cpp with"
    assert "runs on" not in words


def test_a_name_is_never_taken_for_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DraftFile().write(Path("-m $(x).gguf"))
    assert " './-m $(x).gguf' --spec-type" in next_step(inspect_file(Path("-m $(x).gguf")))[1]


def test_origins_of_a_checkpoint(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    out = inspect(pair.draft_dir, "--origins")[1]
    assert re.search(r"^block_size +config\.json: block_size$", out, re.MULTILINE)
    assert re.search(r"^sample_from_anchor +default \(True\)$", out, re.MULTILINE)
    assert "Origins" not in inspect(pair.draft_dir)[1]


def test_origins_of_a_file(good: Path) -> None:
    assert "Every field is a key of the file" in inspect(good, "--origins")[1]


def test_a_header_is_read_without_numpy(good: Path) -> None:
    look = "from dspark_convert.cli.inspect import inspect\nfrom dspark_convert.cli.runner import run\n"
    then = "try:\n    run(inspect, 'x', sys.argv[1:])\nfinally:\n    assert 'numpy' not in sys.modules\n"
    watched = f"import sys\n{look}{then}"
    done = subprocess.run([sys.executable, "-c", watched, good], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_line_to_run_names_a_file_only(good: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    target.touch()
    inspection = inspect_file(good)
    assert f"llama-server -m {target} " in next_step(inspection, str(target))[1]
    for other in ("", str(tmp_path), "org/name", "org/name:target.gguf"):
        assert "llama-server -m TARGET.gguf " in next_step(inspection, other)[1]
