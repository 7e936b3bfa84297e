"""A file proved against a checkpoint that lies on the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints import read_tensors
from tests.conftest import Convert
from tests.hub_place import REPO, HubPlace, repository_of
from tests.runtime.pairs import PairFiles

SHARD = "model.safetensors"
TABLES = ("embed_tokens.weight", "lm_head.weight")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def stocked(hub: HubPlace, bigram_pair: PairFiles, monkeypatch: pytest.MonkeyPatch) -> HubPlace:
    monkeypatch.setattr("dspark_convert.source.hub_files.FIRST_BYTES", 8)
    hub.server.files = repository_of(bigram_pair.draft_dir)
    return hub


def fetched(hub: HubPlace) -> set[str]:
    return {name for path in hub.snapshot.glob("*.safetensors") for name in read_tensors(path)}


@pytest.mark.parametrize("tables", ["omit", "include"])
def test_what_the_file_holds_is_fetched_and_compared(
    tables: str, stocked: HubPlace, bigram_pair: PairFiles, convert: Convert, validate: Convert, tmp_path: Path
) -> None:
    target = ("--target-gguf", bigram_pair.target)
    draft = tmp_path / "draft.gguf"
    made = convert(bigram_pair.draft_dir, *target, "-o", draft, "--outtype", "f32", "--shared-tensors", tables)
    assert made.code == 0
    held = read_tensors(bigram_pair.draft_dir / SHARD)
    wanted = set(held) - (set() if tables == "include" else set(TABLES))
    ended = validate(
        draft, "--target", bigram_pair.target, "--reference", f"{REPO}@main", "--max-tokens", "5", "--json"
    )
    assert ended.code == 0, ended.err
    assert {check["name"]: check["status"] for check in ended.document["checks"]}["parity"] == "pass"
    assert fetched(stocked) == wanted
    assert "bytes to fetch for 1 of 1 shards" in ended.err


def test_another_checkpoint_is_told(
    stocked: HubPlace, bigram_pair: PairFiles, random_pair: PairFiles, validate: Convert
) -> None:
    stocked.server.files = repository_of(random_pair.draft_dir)
    ended = validate(
        bigram_pair.draft, "--target", bigram_pair.target, "--reference", REPO, "--max-tokens", "5", "--json"
    )
    assert ended.code == 1
    assert {check["name"]: check["status"] for check in ended.document["checks"]}["values"] == "fail"


@pytest.mark.parametrize("missing", ["library", "torch", "draft"])
def test_what_stops_it_is_told_before_anything_is_fetched(
    missing: str, stocked: HubPlace, bigram_pair: PairFiles, validate: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "torch":
        monkeypatch.setattr("dspark_convert.runtime.proof.NEEDED", ("no_such_package",))
    lib = ("--lib", "none.so") if missing == "library" else ()
    draft = Path("none.gguf") if missing == "draft" else bigram_pair.draft
    ended = validate(draft, "--target", bigram_pair.target, "--reference", REPO, *lib)
    assert (ended.code, ended.out) == ({"library": 2, "torch": 4, "draft": 2}[missing], "")
    assert stocked.server.log == []


def test_a_repository_that_holds_no_draft(stocked: HubPlace, bigram_pair: PairFiles, validate: Convert) -> None:
    stocked.server.files = repository_of(bigram_pair.target_dir)
    ended = validate(bigram_pair.draft, "--target", bigram_pair.target, "--reference", REPO)
    assert (ended.code, ended.out) == (3, "")
    assert fetched(stocked) == set()


def test_verify_of_a_draft_on_the_hub(
    stocked: HubPlace, bigram_pair: PairFiles, convert: Convert, tmp_path: Path
) -> None:
    (prompts := tmp_path / "prompts.txt").write_text("the small boat\n")
    ended = convert(REPO, "--target-gguf", bigram_pair.target, "--verify", "--prompts", prompts, "--json")
    assert ended.code == 0, ended.err
    checks = {check["name"]: check["status"] for check in ended.document["validation"]["checks"]}
    assert (checks["values"], checks["parity"], checks["lossless"]) == ("pass", "pass", "pass")
    assert fetched(stocked).isdisjoint(TABLES)
