from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.source.hub_id import HubId, meant, parse_hub_file, parse_hub_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deepseek-ai/dspark_qwen3_8b_block7", HubId("deepseek-ai/dspark_qwen3_8b_block7")),
        ("a/b@v1.0", HubId("a/b", "v1.0")),
        ("a/b@refs/pr/4", HubId("a/b", "refs/pr/4")),
        ("a/b@", None),
        ("a/b@..", None),
        ("a/b@x/../y", None),
        ("a/b@-x", None),
        ("a/b@x?y", None),
        ("a", None),
        ("a/b/c", HubId("a/b", folder="c")),
        ("a/b/c/d e", None),
        ("a/b/c_1/d-2.0+x=1@v1", HubId("a/b", "v1", "c_1/d-2.0+x=1")),
        ("a/b/über", HubId("a/b", folder="über")),
        ("a/b/c/", HubId("a/b", folder="c")),
        ("a/b//c", HubId("a/b", folder="c")),
        ("a/b/..", None),
        ("a/b/../c", None),
        ("a/b/c/..", None),
        ("a/../b/c", None),
        ("/a/b/c", None),
        ("a/b/.c", None),
        ("a/b/~", None),
        ("a/b/-c", None),
        ("a/b/c\\d", None),
        ("a/b/c\0d", None),
        ("a/b/c\nd", None),
        ("a/b/c\n", None),
        ("a/b/c@x@y", None),
        ("a/b/c@..", None),
        ("a/b/c:d", None),
        ("a/b/" + "c" * 255, HubId("a/b", folder="c" * 255)),
        ("a/b/" + "c" * 256, None),
        ("a/b/" + "ü" * 128, None),
        ("a/b/" + "c/" * 499 + "c", HubId("a/b", folder="c/" * 499 + "c")),
        ("a/b/" + "c/" * 500 + "c", None),
        ("a/b/\udcff", None),
        ("a/b/model.safetensors", None),
        ("a/b/model.safetensors/c", None),
        ("a/b/c/config.json", None),
        ("a/b/c.gguf@v1", None),
        ("hf.co/a/b", None),
        ("huggingface.co/a/b/tree/main/c", None),
        ("../b", None),
        ("a/..", None),
        ("/a/b", None),
        ("a/draft.gguf", None),
        ("a/model.safetensors", None),
        ("~/draft", None),
    ],
)
def test_form(text: str, expected: HubId | None) -> None:
    assert parse_hub_id(Path(text)) == expected


def test_what_lies_on_the_disk_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert parse_hub_id(Path("a/b")) is None
    assert parse_hub_id(Path("a/c")) == HubId("a/c")
    assert parse_hub_id(Path("a/b/c")) is None
    assert parse_hub_id(Path("a/c/b")) == HubId("a/c", folder="b")


@pytest.mark.parametrize("text", ["a/b", "a/b@v1", "a/b/c", "a/b/c/d@refs/pr/4"])
def test_spelling(text: str) -> None:
    assert str(parse_hub_id(Path(text))) == text


def test_spelling_of_a_file() -> None:
    assert HubId("a/b", "v1").file("x.gguf") == "a/b:x.gguf"
    assert HubId("a/b", "v1", "c/d").file("x.gguf") == "a/b:c/d/x.gguf"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", (HubId("a/b"), None)),
        ("a/b@v1", (HubId("a/b", "v1"), None)),
        ("a/b:x.gguf", (HubId("a/b"), "x.gguf")),
        ("a/b:sub/x.gguf@v1", (HubId("a/b", "v1"), "sub/x.gguf")),
        ("a/b:x.gguf@refs/pr/4", (HubId("a/b", "refs/pr/4"), "x.gguf")),
        ("a/b:x.safetensors", None),
        ("a/b:", None),
        ("a/b:x.gguf@", None),
        ("a/b:x.gguf@../y", None),
        ("a:x.gguf", None),
        ("C:/models/x.gguf", None),
        ("x.gguf", None),
    ],
)
def test_files_in_a_repository(text: str, expected: tuple[HubId, str | None] | None) -> None:
    assert parse_hub_file(Path(text)) == expected


def test_a_file_of_that_name_on_the_disk_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b:x.gguf").touch()
    assert parse_hub_file(Path("a/b:x.gguf")) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://huggingface.co/org/name", "; a model on the hub is named without its address: org/name"),
        ("hf.co/org/name/tree/main", "; a model on the hub is named without its address: org/name"),
        ("https://hf.co/org/name/tree/main/a/b/", "; a model on the hub is named without its address: org/name/a/b"),
        ("hf.co/org/name/tree/v1/a", "; a model on the hub is named without its address: org/name/a@v1"),
        ("hf.co/org/name/resolve/main/a", "; a model on the hub is named without its address: org/name"),
        ("hf://org/name", "; a model on the hub is named without its address: org/name"),
        ("org/name:a.gguf", " here; a GGUF on the hub has to be downloaded first: hf download org/name a.gguf"),
        ("org/name", ""),
        ("some/where/else", ""),
        ("a.gguf", ""),
    ],
)
def test_what_was_meant_by_a_path_that_does_not_exist(text: str, told: str) -> None:
    assert meant(Path(text)) == told
