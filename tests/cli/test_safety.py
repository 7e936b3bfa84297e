"""--split-max-size, --sha256, --tensor-hashes and --verify-hash from outside; output that is the same every time."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import gguf
import jsonschema
import pytest

from tests.checkpoints import Pair
from tests.conftest import Convert, Ended

SCHEMAS = {
    name: json.loads((files("dspark_convert") / "schemas" / f"{name}-1.json").read_text())
    for name in ("convert", "inspect")
}


def inspect(*args: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def inspected(code: int, *args: str | Path) -> dict[str, Any]:
    ended, out, err = inspect(*args, "--json")
    assert ended == code, err
    document: dict[str, Any] = json.loads(out)
    jsonschema.validate(document, SCHEMAS["inspect"])
    return document


def converted(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    document = ended.document
    jsonschema.validate(document, SCHEMAS["convert"])
    output = document["output"]
    assert isinstance(output, dict)
    return output


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_split_output(pair: Pair, convert: Convert) -> None:
    whole = converted(convert(pair.draft, "--target-gguf", pair.gguf, "-o", "whole.gguf", "--json"))
    output = converted(
        convert(pair.draft, "--target-gguf", pair.gguf, "-o", "dspark-x.gguf", "--split-max-size", "200K", "--json")
    )
    paths = sorted(Path().glob("dspark-x-*.gguf"))
    assert len(paths) >= 3
    assert max(path.stat().st_size for path in paths) <= 200_000
    assert output == {
        "path": str(paths[0]),
        "bytes": sum(path.stat().st_size for path in paths),
        "sha256": None,
        "parts": [{"path": str(path), "bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths],
    }
    first, other = inspected(0, paths[0]), inspected(0, whole["path"])
    assert first["draft"] == other["draft"]
    assert first["tensors"] == other["tensors"]
    assert [f for f in first["findings"] if f["severity"] == "error"] == []
    assert first["file"]["bytes"] == output["bytes"]


def test_a_split_output_is_told_in_words(pair: Pair, convert: Convert) -> None:
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", "o.gguf", "--split-max-size", "300K")
    assert ended.code == 0
    count = len(list(Path().glob("o-*.gguf")))
    assert f"o-00001-of-{count:05d}.gguf: " in ended.out
    assert f" bytes in {count} files, " in ended.out
    assert f"--spec-draft-model o-00001-of-{count:05d}.gguf" in ended.out


def test_an_unsplit_file_does_not_stand_in_the_way_of_a_split_one(pair: Pair, convert: Convert) -> None:
    Path("o.gguf").write_bytes(b"previous")
    args = (pair.draft, "--target-gguf", pair.gguf, "-o", "o.gguf", "--split-max-size", "300K")
    assert convert(*args).code == 0
    assert Path("o.gguf").read_bytes() == b"previous"
    again = convert(*args)
    assert again.code == 2
    assert "exists already; add --force" in again.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--split-max-size", "x"), "is no size; give a number with K, M or G"),
        (("--split-max-size", "10K"), "--split-max-size 10000 is too small"),
        (("--tensor-hashes",), "--tensor-hashes needs a place for the hashes: add --sha256 or --json."),
    ],
)
def test_options_that_make_no_sense(pair: Pair, convert: Convert, args: tuple[str, ...], message: str) -> None:
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", "o.gguf", *args)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert list(Path().iterdir()) == []


def test_hashes_beside_the_file_and_their_check(pair: Pair, convert: Convert) -> None:
    args = (pair.draft, "--target-gguf", pair.gguf, "-o", "dspark-o.gguf", "--sha256", "--tensor-hashes", "--json")
    output = converted(convert(*args))
    path = Path("dspark-o.gguf")
    assert output["sha256"] == sha256(path)
    assert output["tensors"] == {
        tensor.name: hashlib.sha256(tensor.data.tobytes()).hexdigest() for tensor in gguf.GGUFReader(path).tensors
    }
    subprocess.run(["sha256sum", "--check", "--strict", f"{path}.sha256"], check=True, capture_output=True)

    code, out, _ = inspect(path, "--verify-hash")
    assert code == 0
    assert f"{sha256(path)}, as it should be" in out
    good = inspected(0, path, "--verify-hash")
    assert [(each["matches"], each["different_tensors"]) for each in good["hashes"]] == [(True, [])]

    tensor = next(each for each in gguf.GGUFReader(path).tensors if each.name == "fc.weight")
    with path.open("r+b") as file:
        file.seek(int(tensor.data_offset) + 11)
        file.write(b"\x12\x34")
    code, out, err = inspect(path, "--verify-hash")
    assert (code, err) == (1, "")
    assert "hash-mismatch" in out
    assert "fc.weight" in out
    (found,) = inspected(1, path, "--verify-hash")["hashes"]
    assert (found["matches"], found["different_tensors"]) == (False, ["fc.weight"])
    code, out, err = inspect(path, "--verify-hash", "--quiet")
    assert (code, out) == (1, "")
    assert "hash-mismatch" in err
    assert inspected(0, path, "--sha256", sha256(path))["hashes"][0]["matches"]


def test_the_check_of_a_set(pair: Pair, convert: Convert) -> None:
    args = ("-o", "o.gguf", "--split-max-size", "300K", "--sha256")
    assert convert(pair.draft, "--target-gguf", pair.gguf, *args).code == 0
    first, *_, last = sorted(Path().glob("o-*.gguf"))
    assert all(each["matches"] for each in inspected(0, first, "--verify-hash")["hashes"])
    with last.open("ab") as file:
        file.write(b"x")
    found = inspected(1, first, "--verify-hash")["hashes"]
    assert [each["path"] for each in found if not each["matches"]] == [str(last)]
    code, _, err = inspect(first, "--sha256", sha256(first))
    assert code == 2
    assert "--sha256 is of one file; use --verify-hash" in err


def test_a_damaged_header_and_its_hash_are_told_together(pair: Pair, convert: Convert) -> None:
    assert convert(pair.draft, "--target-gguf", pair.gguf, "-o", "o.gguf", "--sha256").code == 0
    data = bytearray(Path("o.gguf").read_bytes())
    data[8] ^= 0x80
    data[15] ^= 0x80
    Path("o.gguf").write_bytes(data)
    code, _, err = inspect("o.gguf", "--verify-hash")
    assert code == 3
    assert "hash-mismatch" in err


def test_nothing_to_compare_with(pair: Pair, convert: Convert) -> None:
    assert convert(pair.draft, "--target-gguf", pair.gguf, "-o", "o.gguf").code == 0
    code, out, err = inspect("o.gguf", "--verify-hash")
    assert (code, out) == (3, "")
    assert err.startswith("error: there is no o.gguf.sha256 to compare o.gguf with")
    assert inspect("o.gguf", "--sha256", "0")[0] == 2
    assert inspect(pair.draft, "--verify-hash")[0] == 2


def test_the_same_input_gives_the_same_bytes(
    pair: Pair, convert: Convert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the threads, the working directory, the name of the output and the place of the checkpoint."""
    args: tuple[str | Path, ...] = ("--target-gguf", pair.gguf, "--outtype", "q8_0")
    assert convert(pair.draft, *args, "-o", "first.gguf", "--threads", "1").code == 0
    first = Path("first.gguf").resolve()
    elsewhere = tmp_path / "else" / "where"
    shutil.copytree(pair.draft, elsewhere / pair.draft.name)
    monkeypatch.chdir(elsewhere)
    assert convert(pair.draft.name, *args, "-o", "second.gguf", "--threads", "5", "--sha256").code == 0
    assert Path("second.gguf").read_bytes() == first.read_bytes()
