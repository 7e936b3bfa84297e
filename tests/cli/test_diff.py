"""dspark-inspect --diff from outside: the view, its JSON against the schema, exit codes, memory."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from tests.checkpoints import Pair
from tests.conftest import Convert
from tests.diff.pairs import held, put, write_pair
from tests.draft_file import HIDDEN, I32, U32, DraftFile
from tests.gguf_bytes import ARRAY, STRING

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "inspect-1.json").read_text())
#: what "<= 150 MB at any tensor size" leaves of the interpreter, numpy and the mapped headers
MOST_BYTES = 150_000_000


def inspect(*args: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def document(*args: str | Path) -> dict[str, Any]:
    _, out, _ = inspect(*args, "--json")
    found: dict[str, Any] = json.loads(out)
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    return found


def nothing(_file: DraftFile) -> None:
    pass


def other_draft(file: DraftFile) -> None:
    for prefix in ("dflash", "dspark"):
        file.kv[f"{prefix}.target_layers"] = (ARRAY, [1, 3, 4], I32)
    file.kv["tokenizer.ggml.mask_token_id"] = (U32, 76, None)
    tokens = list(file.kv["tokenizer.ggml.tokens"][1])
    tokens[5] = "evil\x1b[2J\n::error::\u202e"
    file.kv["tokenizer.ggml.tokens"] = (ARRAY, tokens, STRING)
    file.kv["general.name"] = (STRING, "a name that is so long that both of them never fit into one line " * 9, None)
    file.kv["general.\x1b[31mkey"] = (STRING, "x", None)
    file.tensors["odd\x1b[2J.weight"] = ("F32", (8,))
    del file.tensors["blk.0.attn_q_norm.weight"]
    values = held(file, "blk.1.ffn_up.weight")
    values[7, 3] += 0.25
    put(file, "blk.1.ffn_up.weight", values)


def quantised(root: Path) -> tuple[Path, Path]:
    values = np.random.default_rng(1).normal(size=(96, HIDDEN)).astype(np.float32)
    paths = []
    for name, kind in (("a", "BF16"), ("b", "Q8_0")):
        file = DraftFile()
        for layer in (0, 1):
            put(file, f"blk.{layer}.ffn_up.weight", values, kind)
        paths.append(file.write(root / f"{name}.gguf"))
    return paths[0], paths[1]


def test_another_draft_at_a_glance(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path, other_draft)
    code, out, err = inspect(a, "--diff", b, "--deep")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    sentence = (
        "Another draft: taps, mask token differ; another vocabulary; 2 tensors are in one of them only; other weights"
        " in 1 of 28 tensors."
    )
    assert " ".join(lines).replace("  ", " ").find(sentence) > 0
    order = [lines.index(title) for title in ("Meaning", "Metadata", "Tensors", "Values")]
    assert order == sorted(order)
    for line in (
        "  taps: [1, 3, 5] -> [1, 3, 4]",
        "  mask token: 77 -> 76",
        "  tokenizer.ggml.tokens: 80 items, 1 different",
        "- blk.0.attn_q_norm.weight: F32 [16]",
        "  28 tensors: 27 the same bytes, 1 different",
        "    1 of 6,144 numbers is different, the largest difference at row 7, column 3",
    ):
        assert line in lines
    assert "    5: <5> -> evil\\x1b[2J\\n::error::\\u202e" in lines
    assert "\x1b" not in out and "\u202e" not in out


@pytest.mark.parametrize("args", [(), ("--deep",), ("--deep", "--tensors")])
def test_everything_fits_80_columns(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "quantised").mkdir()
    for first, second in (write_pair(tmp_path, other_draft), quantised(tmp_path / "quantised")):
        out = inspect(first, "--diff", second, *args)[1]
        # The paths are the user's own.
        assert [line for line in out.splitlines() if len(line) > 80 and str(tmp_path) not in line] == []


def test_another_quantisation_at_a_glance(tmp_path: Path) -> None:
    a, b = quantised(tmp_path)
    code, out, _ = inspect(a, "--diff", b)
    assert code == 1
    assert "The same draft, other quantisation: 2 of 29 tensors of another type" in out
    assert "  BF16 -> Q8_0: 2 tensors: blk.0.ffn_up.weight, blk.1.ffn_up.weight" in out
    code, out, _ = inspect(a, "--diff", b, "--deep", "--tensors")
    assert code == 0
    assert "all values\nwithin rounding." in out
    assert "  29 tensors: 27 the same bytes, 2 within rounding" in out
    assert "where 0.023 is explained" in out.replace("\n ", "")
    (line,) = [line for line in out.splitlines() if line.startswith("blk.0.ffn_up.weight ")]
    assert line.split()[1:4] == ["BF16", "->", "Q8_0"]
    assert line.endswith(" 1.0000  rounding")


def test_json(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path, other_draft)
    found = document(a, "--diff", b, "--deep")
    assert found["file"]["path"] == str(a)
    diff = found["diff"]
    assert diff["other"] == {"path": str(b), "kind": "gguf"}
    assert diff["same"] is False
    assert diff["meaning"] == [
        {"field": "target_layers", "a": [1, 3, 5], "b": [1, 3, 4]},
        {"field": "mask_token_id", "a": 77, "b": 76},
    ]
    changed = {each["key"]: each for each in diff["metadata"]}
    assert changed["tokenizer.ggml.tokens"]["first"] == [{"index": 5, "a": "<5>", "b": "evil\x1b[2J\n::error::\u202e"}]
    assert changed["general.name"]["label"] is True
    assert [each["name"] for each in diff["values"] if each["judgement"] != "identical"] == ["blk.1.ffn_up.weight"]
    assert document(a, "--diff", b)["diff"]["values"] is None


def test_json_of_values_that_json_cannot_hold(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        put(file, "output_norm.weight", np.full(HIDDEN, np.nan, np.float32))

    a, b = write_pair(tmp_path, change)
    (wrong,) = [
        each for each in document(a, "--diff", b, "--deep")["diff"]["values"] if each["judgement"] == "different"
    ]
    assert wrong["max_abs"] is None


def test_a_checkpoint_in_either_order(pair: Pair, tmp_path: Path) -> None:
    command = "from dspark_convert.cli.convert import main; main()"
    file = tmp_path / "own.gguf"
    args = [str(pair.draft), "--target-gguf", str(pair.gguf), "-o", str(file), "--quiet", "--outtype", "q8_0"]
    subprocess.run([sys.executable, "-c", command, *args], check=True)
    for first, second in ((pair.draft, file), (file, pair.draft)):
        code, out, err = inspect(first, "--diff", second, "--deep")
        assert (code, err) == (0, "")
        assert "The same draft, other quantisation" in out
        assert "was left out: the checkpoint" in out
        assert document(first, "--diff", second)["diff"]["same"] is False  # without the values, types count


def test_exit_codes_and_quiet(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path, nothing)
    assert inspect(a, "--diff", b, "--quiet") == (0, "", "")
    (tmp_path / "other").mkdir()
    _, c = write_pair(tmp_path / "other", other_draft)
    assert inspect(a, "--diff", c, "--quiet") == (1, "", "")


def test_a_truncated_side_is_told_and_is_no_success(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path, nothing)
    b.write_bytes(b.read_bytes()[:-100])
    for args, letter in (((a, "--diff", b), 1), ((b, "--diff", a), 0)):
        code, out, _ = inspect(*args)
        assert code == 1
        assert "b.gguf has 1 error (truncated): see dspark-inspect" in " ".join(out.split())
        errors = document(*args)["diff"]["errors"]
        assert (errors[letter], errors[1 - letter]) == (["truncated"], [])


def test_two_copies_of_what_does_not_run_are_no_success(tmp_path: Path) -> None:
    def make() -> DraftFile:
        file = DraftFile()
        file.kv["dflash.rope.dimension_count"] = (U32, 7, None)
        return file

    a, b = write_pair(tmp_path, nothing, make)
    assert inspect(a, "--diff", b)[0] == 1
    told = document(a, "--diff", b)["diff"]
    assert (told["same"], told["errors"]) == (True, [["rope-dimensions"], ["rope-dimensions"]])


def test_sizes_that_a_layout_leaves_to_the_target(tmp_path: Path, convert: Convert) -> None:
    make_deepseek4(tmp_path / "v4")
    write_deepseek4_gguf(tmp_path / "v4", tmp_path / "target.gguf")
    target = tmp_path / "target.gguf"
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    assert convert(tmp_path / "v4", "--target-gguf", target, "-o", str(ours)).code == 0
    ported = convert(ours, "--target-gguf", target, "-o", str(theirs), "--dialect", "ds4")
    assert ported.code == 0, ported.told
    assert document(ours, "--diff", theirs)["diff"]["meaning"] is None
    told = document(ours, "--diff", theirs, "--target", target, "--deep")["diff"]
    assert (told["meaning"], told["same"], told["errors"]) == ([], True, [[], []])
    assert inspect(ours, "--diff", theirs, "--target", target, "--deep")[0] == 0
    assert inspect(theirs, "--diff", ours, "--target", target, "--deep")[0] == 0
    code, err = refused(ours, "--diff", theirs, "--target", tmp_path)
    assert code == 2 and "--target is a GGUF" in err


@pytest.mark.parametrize("option", [["--metadata"], ["--origins"], ["--ctx", "8"], ["--strict"], ["--verify-hash"]])
def test_what_a_comparison_does_not_do(tmp_path: Path, option: list[str]) -> None:
    a, b = write_pair(tmp_path, nothing)
    code, err = refused(a, "--diff", b, *option)
    assert code == 2 and f"leave {option[0]} out" in err


def refused(*args: str | Path) -> tuple[int, str]:
    code, out, err = inspect(*args)
    assert out == ""
    assert err.count("\n") == 1
    return code, err


def test_what_cannot_be_compared(pair: Pair, tmp_path: Path) -> None:
    a, _ = write_pair(tmp_path, nothing)
    assert refused(a, "--diff", a) == (2, f"error: {a} is {a} itself: give another file or checkpoint with --diff.\n")
    link = tmp_path / "link.gguf"
    link.symlink_to(a)
    assert refused(a, "--diff", link)[0] == 2
    code, err = refused(a, "--diff", pair.gguf)
    assert code == 3 and "no DSpark draft" in err and str(pair.gguf) in err
    code, err = refused(pair.gguf, "--diff", a)
    assert code == 3 and "no DSpark draft" in err
    code, err = refused(a, "--diff", tmp_path / "none.gguf")
    assert code == 2 and "none.gguf does not exist" in err
    (tmp_path / "empty").mkdir()
    code, err = refused(a, "--diff", tmp_path / "empty")
    assert code in (2, 3) and "empty" in err
    code, err = refused(a, "--diff", pair.target)
    assert code == 3 and str(pair.target) in err
    code, err = refused(a, "--diff", "someone/draft")
    assert code == 2 and "someone/draft" in err
    assert refused(a, "--diff", link, "--strict")[0] == 2
    assert document(a, "--diff", tmp_path / "none.gguf")["error"]["exit_code"] == 2


def test_150_000_tokens_and_large_tensors_in_little_memory(tmp_path: Path) -> None:
    """Two matrices of 64 MiB, which mapped and read through would count."""
    tokens = [f"token{i}" for i in range(150_000)]
    merges = [f"left{i} right{i}" for i in range(150_000)]
    rows = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    paths = []
    for name, kind, number in (("a", "F32", 7), ("b", "BF16", 140_000)):
        file = DraftFile()
        texts = list(tokens)
        texts[number] = "other"
        file.kv["tokenizer.ggml.tokens"] = (ARRAY, texts, STRING)
        file.kv["tokenizer.ggml.merges"] = (ARRAY, merges, STRING)
        put(file, "markov_w1.weight", rows, kind)
        repeats = 1024
        file.tensors["markov_w1.weight"] = (kind, (256, 64 * repeats))
        file.data["markov_w1.weight"] *= repeats
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    script = (
        "import atexit, sys\n"
        "from pathlib import Path\n"
        "status = Path('/proc/self/status')\n"  # getrusage would tell of the parent's memory too
        "atexit.register(lambda: print(status.read_text().split('VmHWM:')[1].split()[0], file=sys.stderr))\n"
        "from dspark_convert.cli.inspect import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, str(paths[0]), "--diff", str(paths[1]), "--deep"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "150,000 items, 2 different" in done.stdout
    assert "    140000: token140000 -> other" in done.stdout
    assert "F32 -> BF16: 1 tensor" in done.stdout
    assert int(done.stderr.split()[-1]) * 1024 < MOST_BYTES


def test_a_strangers_names_of_any_length_and_number(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        for number in range(60):
            file.kv[f"odd.{number}"] = (U32, number, None)
        file.kv["dflash." + "k" * 60_000] = (STRING, "v" * 60_000, None)
        file.kv["dflash.\x1b]0;title\x07"] = (STRING, "\x1b[31m", None)
        file.tensors["t" * 5000] = ("F32", (8,))

    a, b = write_pair(tmp_path, change)
    code, out, _ = inspect(a, "--diff", b, "--deep", "--tensors")
    assert code == 1
    assert "  and 22 more (--json)" in out.splitlines()
    assert "\x1b" not in out and "\x07" not in out
    assert [line for line in out.splitlines() if len(line) > 80 and str(tmp_path) not in line] == []
    assert len(out) < 20_000
