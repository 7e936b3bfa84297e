"""The output path and the disk (failures.md 2c), and what a run prints."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import Pair, snapshot
from tests.conftest import Convert, Ended


@pytest.fixture
def go(pair: Pair, convert: Convert) -> Convert:
    def call(*args: str | Path) -> Ended:
        return convert(pair.draft, "--target-model-dir", pair.target, *args)

    return call


def test_default_name_in_the_working_directory(go: Convert) -> None:
    assert go().code == 0
    assert [p.name for p in Path.cwd().iterdir()] == ["dspark-target-BF16.gguf"]
    assert go("--outtype", "q8_0").code == 0
    assert Path("dspark-target-Q8_0.gguf").is_file()


def test_a_directory_takes_the_default_name(go: Convert) -> None:
    Path("out").mkdir()
    assert go("-o", "out").code == 0
    assert [p.name for p in Path("out").iterdir()] == ["dspark-target-BF16.gguf"]
    again = go("-o", "out")
    assert again.code == 2
    assert "--force" in again.err
    assert go("-o", "out", "--force").code == 0


def test_existing_file_is_kept_without_force(go: Convert) -> None:
    Path("out.gguf").write_text("mine")
    ended = go("-o", "out.gguf")
    assert ended.code == 2
    assert "--force" in ended.err
    assert Path("out.gguf").read_text() == "mine"
    assert go("-o", "out.gguf", "--force").code == 0
    assert Path("out.gguf").read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize("path", ["nodir/sub/o.gguf", "file/o.gguf", "x" * 300 + ".gguf", "/dev/full"])
def test_impossible_places_are_told_before_any_work(path: str, pair: Pair, go: Convert) -> None:
    Path("file").write_text("")
    before = snapshot(Path.cwd())
    # the checkpoint is never looked at: a config that nothing can read is not what is told
    (pair.draft / "config.json").write_text("{")
    ended = go("-o", path, "--force")
    assert (ended.code, ended.out) == (2, "")
    assert path[:20] in ended.err
    assert snapshot(Path.cwd()) == before


def test_inputs_are_never_replaced(pair: Pair, go: Convert, convert: Convert) -> None:
    Path("link.gguf").symlink_to(pair.shard)
    Path("hard.gguf").hardlink_to(pair.shard)
    before = snapshot(pair.root)
    files = [path for path in pair.root.rglob("*") if path.is_file() and path != pair.gguf]
    assert len(files) == 6
    for path in [*files, Path("link.gguf"), Path("hard.gguf")]:
        ended = go("-o", path, "--force")
        assert ended.code == 2, path
        assert "input" in ended.err
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", pair.gguf, "--force")
    assert ended.code == 2
    assert snapshot(pair.root) == before


def test_output_may_lie_beside_the_inputs(pair: Pair, go: Convert) -> None:
    for directory in (pair.draft, pair.target):
        assert go("-o", directory).code == 0
        assert go("-o", directory, "--force").code == 0


@pytest.mark.parametrize("name", ["x-{ftype}.gguf", "{0}%s$HOME*?.gguf", "-", "ünï 日本.gguf", "no-suffix"])
def test_names_are_taken_literally(name: str, go: Convert) -> None:
    assert go(f"--outfile={name}").code == 0
    assert [p.name for p in Path.cwd().iterdir()] == [name]


def test_a_targets_name_is_no_path(pair: Pair, convert: Convert) -> None:
    evil = pair.root / "evil"
    evil.mkdir()
    pair.target.rename(evil / "..;touch x$(id)\n\x1b")
    ended = convert(pair.draft, "--target-model-dir", evil / "..;touch x$(id)\n\x1b")
    assert ended.code == 0
    assert [p.name for p in Path.cwd().iterdir()] == ["dspark-touch-x-id-BF16.gguf"]
    assert "\x1b" not in ended.out + ended.err


def test_without_markov_head_the_name_still_finds_it(pair: Pair, convert: Convert) -> None:
    """llama.cpp looks for drafts called dspark-*; the head of zeros makes this one a DSpark draft."""
    pair.tensors(lambda t: [t.pop(name) for name in list(t) if "_head." in name and name != "lm_head.weight"])
    pair.config({"markov_rank": 0, "enable_confidence_head": False})
    assert convert(pair.draft, "--target-model-dir", pair.target).code == 0
    assert [p.name for p in Path.cwd().iterdir()] == ["dspark-target-BF16.gguf"]


def run_limited(pair: Pair, directory: Path, limit: int) -> subprocess.CompletedProcess[str]:
    """The command in a process that may write files of at most ``limit`` bytes."""
    code = "from dspark_convert.cli.convert import main; main()"
    return subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            str(pair.draft),
            "--target-model-dir",
            str(pair.target),
            "-o",
            "out.gguf",
            "--force",
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_fills_up_leaves_the_previous_file(pair: Pair, tmp_path: Path) -> None:
    directory = tmp_path / "limited"
    directory.mkdir()
    (directory / "out.gguf").write_text("the previous file")
    before = snapshot(directory)
    ended = run_limited(pair, directory, 500_000)
    assert ended.returncode == 4, ended.stderr
    assert "out.gguf" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert snapshot(directory) == before


def test_no_room_is_seen_before_writing(go: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    ended = go("-o", "out.gguf")
    assert ended.code == 4
    assert "1000 free" in ended.err
    assert list(Path.cwd().iterdir()) == []


def test_an_unreadable_config_is_told(pair: Pair, go: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal comes from the file system's place."""
    open_path = Path.open

    def deny(path: Path, *args: object, **options: object) -> object:
        if path == pair.draft / "config.json":
            raise PermissionError(13, "Permission denied", str(path))
        return open_path(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", deny)
    ended = go()
    assert ended.code == 3
    assert "config.json cannot be read: Permission denied" in ended.err


def test_an_unreadable_shard_is_told(pair: Pair, go: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    open_path = Path.open

    def deny(path: Path, *args: object, **options: object) -> object:
        if path == pair.shard:
            raise PermissionError(13, "Permission denied", str(path))
        return open_path(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", deny)
    ended = go("--json")
    assert ended.code == 3
    assert ended.findings("error") == [("shard-unreadable", "model.safetensors")]
    assert "Permission denied" in ended.told


def test_streams(pair: Pair, go: Convert) -> None:
    loud = go("-o", "a.gguf")
    assert loud.out.startswith("a.gguf: 1,0")
    assert "shared-omitted" in loud.err
    quiet = go("-o", "b.gguf", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    pair.config({"block_size": 0, "frobnication": 1})
    refused = go("-o", "c.gguf", "--quiet")
    assert (refused.code, refused.out) == (3, "")
    assert [line.split(":")[0] for line in refused.err.splitlines()] == ["error", "  fix", "error"]
    assert "block_size" in refused.err
    pair.config({"block_size": 7})
    strict = go("-o", "c.gguf", "-q", "--strict")
    assert (strict.code, strict.out) == (3, "")
    assert [line.split(":")[0] for line in strict.err.splitlines()] == ["warning", "  fix", "error"]


def test_json_of_a_dry_run_and_of_a_run(go: Convert) -> None:
    planned = go("-o", "a.gguf", "--json", "--dry-run").document
    assert list(Path.cwd().iterdir()) == []
    written = go("-o", "a.gguf", "--json").document
    assert planned["output"] is None
    assert planned["validation"] is written["validation"] is None
    assert (planned["plan"], planned["findings"]) == (written["plan"], written["findings"])
    assert written["output"]["path"] == "a.gguf"
    assert written["output"]["bytes"] == Path("a.gguf").stat().st_size
    assert sum(tensor["bytes"] for tensor in written["plan"]["tensors"]) < written["output"]["bytes"]


def test_json_error_of_a_usage_mistake(convert: Convert, pair: Pair) -> None:
    ended = convert(pair.draft, "--json")
    assert ended.code == ended.document["error"]["exit_code"] == 2
    assert ended.document["findings"] == []
