"""Where a directory says that it came from, in each of the ways in which it can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.source.provenance import MAX_CARD_BYTES, Provenance, provenance

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


def made(root: Path, config: dict[str, Any] | None = None, **files: str) -> Provenance:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / f"{name}.md").write_text(text)
    return provenance(root, config or {})


def test_plain_directory_has_its_name_alone(tmp_path: Path) -> None:
    assert made(tmp_path / "my-draft") == Provenance("my-draft")


def test_hub_cache(tmp_path: Path) -> None:
    root = tmp_path / "models--deepseek-ai--dspark_qwen3_8b_block7" / "snapshots" / COMMIT
    repo = "deepseek-ai/dspark_qwen3_8b_block7"
    assert made(root) == Provenance("dspark_qwen3_8b_block7", repo, COMMIT)


def test_hub_cache_through_a_link_and_with_dashes_in_the_name(tmp_path: Path) -> None:
    root = tmp_path / "models--org--a--b" / "snapshots" / COMMIT
    made(root)
    (tmp_path / "link").symlink_to(root)
    assert provenance(tmp_path / "link", {}) == Provenance("a--b", "org/a--b", COMMIT)


def test_a_folder_in_the_hub_cache(tmp_path: Path) -> None:
    root = tmp_path / "models--org--name" / "snapshots" / COMMIT / "drafts" / "dflash"
    assert made(root) == Provenance("name", "org/name", COMMIT)


@pytest.mark.parametrize("path", ["models--gpt2/snapshots/main", "snapshots/main", "datasets--a--b/snapshots/main"])
def test_what_only_looks_like_the_cache(path: str, tmp_path: Path) -> None:
    assert made(tmp_path / path) == Provenance("main")


def test_local_download_knows_its_commit(tmp_path: Path) -> None:
    metadata = tmp_path / "d" / ".cache" / "huggingface" / "download"
    metadata.mkdir(parents=True)
    (metadata / "config.json.metadata").write_text(f"{COMMIT}\netag\n1700000000.0\n")
    assert made(tmp_path / "d") == Provenance("d", None, COMMIT)
    assert made(tmp_path / "d", {"_name_or_path": "org/d"}) == Provenance("d", "org/d", COMMIT)
    assert made(tmp_path / "d" / "dflash") == Provenance("dflash")
    (metadata / "dflash").mkdir()
    (metadata / "dflash" / "config.json.metadata").write_text(f"{COMMIT}\n")
    assert made(tmp_path / "d" / "dflash") == Provenance("dflash", None, COMMIT)
    (metadata / "config.json.metadata").write_text("no commit\n")
    assert made(tmp_path / "d") == Provenance("d")


def test_a_name_in_the_config_counts_only_if_the_directory_agrees(tmp_path: Path) -> None:
    assert made(tmp_path / "d", {"_name_or_path": "org/d"}).repo == "org/d"
    for name in ("org/other", "/home/me/d", "../d", "a/b/d", "", 7, None, ["org/d"]):
        assert made(tmp_path / "d", {"_name_or_path": name}) == Provenance("d")


def test_a_hash_is_no_name(tmp_path: Path) -> None:
    assert made(tmp_path / COMMIT) == Provenance("draft")
    assert made(tmp_path / COMMIT, {"_name_or_path": "org/some-draft"}) == Provenance("some-draft")


@pytest.mark.parametrize(
    ("front", "base"),
    [
        ("base_model: Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ('base_model: "Qwen/Qwen3-8B"', "Qwen/Qwen3-8B"),
        ("base_model:\n- Qwen/Qwen3-8B\n- Qwen/Qwen3-4B", "Qwen/Qwen3-8B"),
        ("base_model:\n  - 'Qwen/Qwen3-8B'", "Qwen/Qwen3-8B"),
        ("base_model: [Qwen/Qwen3-8B, Qwen/Qwen3-4B]", "Qwen/Qwen3-8B"),
        ("license: mit\r\nbase_model:\r\n- Qwen/Qwen3-8B\r", "Qwen/Qwen3-8B"),
        ("base_model: Qwen3-8B", None),
        ("base_model: ../../etc", None),
        ("base_model:\nlicense: mit", None),
        ("base_model:", None),
        ("base_model_relation: finetune", None),
        ("x:\n  base_model: Qwen/Qwen3-8B", None),
    ],
)
def test_front_matter(front: str, base: str | None, tmp_path: Path) -> None:
    assert made(tmp_path / "d", README=f"---\n{front}\n---\nText.\n").base_model == base


@pytest.mark.parametrize(
    "card",
    ["base_model: a/b\n", "Text.\n---\nbase_model: a/b\n---\n", "---\nbase_model: a/b\n", "", "\ud7ff" * 100_000],
)
def test_only_the_front_matter_counts(card: str, tmp_path: Path) -> None:
    assert made(tmp_path / "d", README=card).base_model is None


def test_a_card_that_is_no_text_is_no_fault(tmp_path: Path) -> None:
    made(tmp_path / "d")
    (tmp_path / "d" / "README.md").write_bytes(b"---\nbase_model: a/b\xff\n---\n" + b"\xff" * 200_000)
    assert provenance(tmp_path / "d", {}).base_model is None
    (tmp_path / "d" / "README.md").unlink()
    (tmp_path / "d" / "README.md").mkdir()
    assert provenance(tmp_path / "d", {}) == Provenance("d")


def test_a_pipe_in_the_place_of_the_card_is_not_read(tmp_path: Path) -> None:
    made(tmp_path / "d")
    (tmp_path / "d" / "README.md").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "d" / "README.md")
    pipe = os.open(tmp_path / "d" / "README.md", os.O_RDWR | os.O_NONBLOCK)
    # as much as is read of a card: a reader would get it without waiting
    os.write(pipe, b"---\nbase_model: a/b\n---\n".ljust(MAX_CARD_BYTES))
    assert provenance(tmp_path / "d", {}).base_model is None
    os.close(pipe)
