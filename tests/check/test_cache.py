"""What passed is kept for as long as nothing changed, and nothing else is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_convert.check import cache as module
from dspark_convert.check import schedule
from dspark_convert.check.cache import Cache, cache_directory
from dspark_convert.check.checks import Case, Check, Expected
from dspark_convert.check.results import Result, StepResult
from tests.check.places import ROOT, run_checks, write

PASSED = Result("a", "auto", (StepResult("plan", "pass", 1.5),))
CASE = Case(Check(name="a", source=Path("/none"), steps=("plan",)), "auto")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    root = tmp_path / "in"
    shutil.copytree(ROOT / "fixtures" / "pair" / "draft", root / "draft")
    for name in ("target.gguf", "prompts.txt", "plan-auto.json", "golden-auto.gguf"):
        write(root / name, name)
    check = Check(
        name="a",
        source=root / "draft",
        steps=("plan",),
        target=root / "target.gguf",
        target_gguf=root / "target.gguf",
        prompts=root / "prompts.txt",
        expected=Expected(
            plan=str(root / "plan-{outtype}.json"),
            golden=str(root / "golden-{outtype}.gguf"),
            warnings=frozenset({"config-unread", "tokenizer", "taps-out-of-range"}),
        ),
    )
    return Case(check, "auto")


def key(case: Case, lib: Path | None = None) -> str | None:
    return Cache(Path("/none"), lib).key(case)


def test_the_key_is_the_same_for_the_same(case: Case) -> None:
    first = key(case)
    assert first is not None and first == key(case)
    assert key(Case(replace(case.check, line=9), "auto")) == first
    path = case.check.source / "model.safetensors"
    os.utime(path, (1, 1))  # a small file counts by its content
    assert key(case) == first


@pytest.mark.parametrize(
    "change",
    [
        lambda root: write(root / "draft" / "config.json", "{}"),
        lambda root: write(root / "draft" / "model.safetensors", "x"),
        lambda root: write(root / "draft" / "new.json", "x"),
        lambda root: (root / "draft" / "config.json").unlink(),
        lambda root: write(root / "target.gguf", "x"),
        lambda root: write(root / "prompts.txt", "x"),
        lambda root: write(root / "plan-auto.json", "x"),
        lambda root: write(root / "golden-auto.gguf", "x"),
    ],
)
def test_every_input_counts(case: Case, change: Callable[[Path], object]) -> None:
    first = key(case)
    change(case.check.source.parent)
    assert key(case) not in (first, None)


def test_every_part_of_a_split_set_counts(case: Case, tmp_path: Path) -> None:
    parts = [write(tmp_path / f"d-0000{number}-of-00003.gguf", "x") for number in (1, 2, 3)]
    split = Case(replace(case.check, source=parts[0], target_gguf=parts[0], steps=("inspect",)), "auto")
    found = {key(split)}
    for part in parts:
        write(part, "y")
        found.add(key(split))
    parts[2].unlink()
    found.add(key(split))
    assert len(found - {None}) == 4


def test_the_check_the_code_and_the_library_count(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {key(case), key(replace(case, outtype="bf16"))}
    for change in (
        {"experts": "q8_0"},
        {"dequantize": True},
        {"steps": ("plan", "convert")},
        {"expected": replace(case.check.expected, block_size=7)},
        {"expected": replace(case.check.expected, warnings=frozenset({"tokenizer"}))},
    ):
        found.add(key(Case(replace(case.check, **change), "auto")))  # type: ignore[arg-type]
    assert len(found) == 7 and None not in found
    runs = Case(replace(case.check, steps=("validate",)), "auto")
    library = write(tmp_path / "libllama.so", "one")
    first = key(runs, library)
    write(library, "two")
    second = key(runs, library)
    assert second != first
    write(tmp_path / "libggml-cpu.so", "what it computes with")
    assert key(runs, library) not in (first, second)
    monkeypatch.setattr(module, "__version__", "9")
    assert key(case) not in found


def test_a_large_file_counts_by_ends_size_and_time(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", 100)
    monkeypatch.setattr(module, "EDGE", 10)
    path = case.check.source / "model.safetensors"
    data, stat = path.read_bytes(), path.stat()
    first = key(case)
    keys = {first}
    for changed in (bytes([data[0] ^ 1]) + data[1:], data[:-1] + bytes([data[-1] ^ 1]), data + b"?"):
        path.write_bytes(changed)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        keys.add(key(case))
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert key(case) == first
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))
    keys.add(key(case))
    assert len(keys) == 5


def test_of_the_hub_only_commits_count(case: Case) -> None:
    for source, kept in (("org/name", False), ("org/name@main", False), (f"org/name@{'0' * 40}", True)):
        assert (key(Case(replace(case.check, source=Path(source)), "auto")) is not None) is kept


def test_what_passed_is_kept_and_what_failed_is_not(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.store("good", PASSED)
    cache.store("bad", replace(PASSED, steps=(StepResult("plan", "fail", 1.0, ("why",)),)))
    assert cache.load("good", CASE) == replace(PASSED, cached=True)
    assert cache.load("bad", CASE) is None
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["good.json"]
    entry = '{"name": "a", "outtype": "auto", "steps": [%s]}'
    step = '{"name": "plan", "status": "%s", "seconds": 1, "reasons": []}'
    others = ("", step % "fail", step % "skip", (step % "pass").replace("plan", "inspect"))
    for text in ("", "{}", "[]", "[" * 100_000, entry % "{}", *(entry % other for other in others)):
        write(tmp_path / "cache" / "good.json", text)
        assert cache.load("good", CASE) is None


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    cache = Cache(tmp_path / "file" / "cache")
    cache.store("good", PASSED)
    assert cache.load("good", CASE) is None


def test_the_command_marks_what_it_did_not_make_again(case: Case, cache: Path) -> None:
    root = case.check.source.parent
    path = write(root / "CHECKS.toml", '[[check]]\nname = "a"\nsource = "draft"\n[check.expect]\ntensors = 40\n')
    made = run_checks(path, "--json").document["checks"][0]
    assert (made["status"], made["cached"]) == ("pass", False)
    entry = next(cache.iterdir())
    before = entry.read_bytes()
    # Whoever edits the package beside this test changes the key.
    again = run_checks(path)
    assert "cached" in again.out and "1 passed (1 cached)" in again.out, again.out
    assert entry.read_bytes() == before
    assert "cached" not in run_checks(path, "--no-cache").out
    write(path, path.read_text("utf-8").replace("40", "41"))
    assert run_checks(path).code == 1
    assert len(list(cache.iterdir())) == 1


def test_a_cache_of_a_relative_place_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for base in ("", "here/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert cache_directory() == Path.home() / ".cache" / "dspark-check"


def test_an_input_that_changes_meanwhile_is_not_kept(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(case: Case, *_: object) -> Result:
        write(case.check.source / "config.json", "{}")
        return PASSED

    monkeypatch.setattr(schedule, "run_case", change)
    cache = Cache(tmp_path / "cache")
    for kept in (0, 1):  # the second time it stays as it is
        schedule.run_cases([case], jobs=1, memory=10**9, cache=cache.anew())
        assert len(list(cache.directory.glob("*.json"))) == kept
