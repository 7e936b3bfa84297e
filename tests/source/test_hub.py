"""A repository on the hub becomes a checkpoint directory of what is needed, and of nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.source.checkpoint import open_checkpoint
from dspark_convert.source.hub import materialise, open_survey
from dspark_convert.source.hub_id import HubId
from dspark_convert.source.safetensors_header import read_bytes
from tests.checkpoints import Tensor, read_tensors
from tests.hub_place import REPO, HubPlace, Told, inside_a_target, only_mtp, shard_of, survey
from tests.hub_server import COMMIT, HubServer, Reply

THIRD, FOURTH = "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"
ID = HubId(REPO)


@pytest.fixture
def stocked(hub: HubPlace) -> HubPlace:
    """A hub with a draft inside a target; ``ours`` are the draft's tensors."""
    hub.ours, hub.server.files = inside_a_target()
    return hub


def fetched(told: Told | None = None) -> Path:
    told = told or Told()
    return materialise(survey(ID, only_mtp, told), told)


def held(root: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for path in root.glob("*.safetensors"):
        found |= read_tensors(path)
    return found


def test_only_what_is_needed(stocked: HubPlace) -> None:
    told = Told()
    root = fetched(told)
    assert held(root) == stocked.ours
    needed = sum(len(tensor.data) for tensor in stocked.ours.values())
    heads = 2 * (1 << 16)
    assert needed < stocked.server.sent(THIRD, FOURTH) <= needed * 1.01 + heads
    touched = {asked.name for asked in stocked.server.log} - {"?"}
    assert touched == {"", "config.json", "README.md", "model.safetensors.index.json", THIRD, FOURTH}
    assert told.totals == [needed] and told.done == needed


def test_the_directory_is_a_checkpoint(stocked: HubPlace) -> None:
    root = fetched()
    assert root == stocked.snapshot
    opened = open_checkpoint(root)
    assert opened.findings == () and opened.fetched
    assert set(opened.tensors) == set(stocked.ours)
    assert (opened.provenance.repo, opened.provenance.revision) == (REPO, COMMIT)
    assert opened.provenance.base_model == "acme/Base"
    # as the library sees it
    from safetensors import safe_open

    with safe_open(root / THIRD, "np") as file:
        assert set(file.keys()) == {"mtp.0.norm", "mtp.0.w"}


def test_metadata_is_kept(hub: HubPlace) -> None:
    text = json.dumps(
        {"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, "__metadata__": {"format": "pt"}}
    ).encode()
    hub.server.files = {
        "config.json": b"{}",
        "model.safetensors": len(text).to_bytes(8, "little") + text + b"\1\2",
    }
    told = Told()
    root = materialise(survey(ID, lambda _config, names: list(names), told), told)
    from safetensors import safe_open

    with safe_open(root / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"} and file.get_tensor("a").tolist() == [1, 2]


def test_headers_alone(stocked: HubPlace) -> None:
    """What a dry run sees is what will be there, without its bytes."""
    found = survey(ID, only_mtp, Told())
    opened = open_survey(found, lambda config, names: (only_mtp(config, names), True))
    assert stocked.server.sent(THIRD, FOURTH) <= 2 * (1 << 16)
    assert not opened.fetched and opened.findings == () and str(opened.root) == REPO
    with pytest.raises(InputError):
        read_bytes(opened.tensors["mtp.0.w"])
    later = open_checkpoint(materialise(found, Told()))
    assert later.provenance == opened.provenance
    places = [
        {name: changed(ref, path=Path(ref.path.name)) for name, ref in checkpoint.tensors.items()}
        for checkpoint in (opened, later)
    ]
    assert places[0] == places[1]


def test_said_before_fetching(stocked: HubPlace) -> None:
    found = survey(ID, only_mtp, Told())
    needed = sum(len(tensor.data) for tensor in stocked.ours.values())
    assert str(found) == f"{REPO} at commit {COMMIT}: {needed:,} bytes to fetch for 2 of 4 shards (needed {needed:,})"
    materialise(found, Told())
    assert str(found) == f"{REPO} at commit {COMMIT} is in the cache: nothing is fetched"


def test_second_run_fetches_nothing(stocked: HubPlace) -> None:
    fetched()
    stocked.server.log.clear()
    told = Told()
    assert held(fetched(told)) == stocked.ours
    assert [asked.name for asked in stocked.server.log] == [""]
    assert told.totals == []


def test_cut_connections(stocked: HubPlace) -> None:
    def cut(reply: Reply) -> Reply:
        return Reply(reply.status, reply.headers, reply.body, cut=len(reply.body) // 2)

    keep = [lambda reply: reply]
    stocked.server.bends = {THIRD: [*keep, cut, cut], FOURTH: [*keep, cut, cut, cut], "config.json": [cut]}
    told = Told()
    assert held(fetched(told)) == stocked.ours
    needed = sum(len(tensor.data) for tensor in stocked.ours.values())
    assert stocked.server.sent(THIRD, FOURTH) <= needed * 1.01 + 2 * (1 << 16)
    assert told.done == needed
    assert len(stocked.waits) == 6 and len(told.notes) == 6


def test_a_server_that_is_gone(stocked: HubPlace) -> None:
    def gone(reply: Reply) -> Reply:
        return Reply(reply.status, reply.headers, reply.body, cut=0)

    stocked.server.bends = {FOURTH: [lambda reply: reply, *[gone] * 20]}
    with pytest.raises(EnvironmentFault, match=f"{FOURTH} cannot be fetched: .*same command again"):
        fetched()
    assert stocked.waits == [0.5, 1, 2, 4, 8]
    assert len(stocked.server.asked(FOURTH)) == 7


def test_goes_on_where_it_stopped(stocked: HubPlace) -> None:
    half = len(stocked.server.files[FOURTH]) // 2

    def cut(reply: Reply) -> Reply:
        return Reply(reply.status, reply.headers, reply.body, cut=half)

    def refuse(_reply: Reply) -> Reply:
        return Reply(404, {"x-error-code": "EntryNotFound"})

    stocked.server.bends = {FOURTH: [lambda reply: reply, cut, refuse]}
    with pytest.raises(InputError):
        fetched()
    assert not (stocked.snapshot / FOURTH).exists()
    before = len(stocked.server.asked(FOURTH))
    needed = len(stocked.ours["mtp.1.w"].data) * 3
    told = Told()
    assert held(fetched(told)) == stocked.ours
    assert stocked.server.asked(FOURTH)[before:] == [
        (len(stocked.server.files[FOURTH]) - needed + half, len(stocked.server.files[FOURTH]))
    ]
    assert told.done == told.totals[0] and FOURTH in {path.name for path in stocked.snapshot.iterdir()}


def test_what_was_not_synced_is_not_trusted(stocked: HubPlace) -> None:
    """After a power cut a file may have its length and zeros for bytes."""
    found = survey(ID, only_mtp, Told())
    shard = next(shard for shard in found.shards if shard.name == FOURTH)
    parts = stocked.cache / "parts" / COMMIT
    (parts / f"{FOURTH}.part").write_bytes(shard.header + bytes(shard.nbytes))
    assert held(fetched()) == stocked.ours
    (stocked.snapshot / FOURTH).unlink()
    (parts / f"{FOURTH}.part").write_bytes(shard.header + stocked.ours["mtp.1.w"].data[:1000] + bytes(5000))
    (parts / f"{FOURTH}.done").write_text('{"done": 1000}')
    assert held(fetched()) == stocked.ours
    for nonsense in ('{"done": -1}', '{"done": 1e99}', '{"done": 99999999999}', "[]", "{"):
        (stocked.snapshot / FOURTH).unlink()
        (parts / f"{FOURTH}.part").write_bytes(shard.header + bytes(5000))
        (parts / f"{FOURTH}.done").write_text(nonsense)
        assert held(fetched()) == stocked.ours


def test_ranges_refused(stocked: HubPlace) -> None:
    def whole(data: bytes) -> Callable[[Reply], Reply]:
        return lambda _reply: Reply(200, {}, data)

    stocked.server.bends = {name: [whole(data)] * 3 for name, data in stocked.server.files.items()}
    told = Told()
    assert held(fetched(told)) == stocked.ours
    assert sum("does not send ranges" in note for note in told.notes) == 2
    assert len(stocked.server.asked(THIRD)) == 2


def test_offline_from_the_cache(stocked: HubPlace) -> None:
    fetched()
    stocked.offline()
    stocked.server.log.clear()
    assert held(fetched()) == stocked.ours
    (stocked.snapshot / FOURTH).unlink()
    with pytest.raises(EnvironmentFault, match=f"{FOURTH} of {REPO} at commit {COMMIT} is not in the cache .*offline"):
        fetched()
    assert stocked.server.log == []


def test_offline_and_never_seen(hub: HubPlace) -> None:
    hub.offline()
    with pytest.raises(EnvironmentFault, match=f"nothing of {REPO} is in the cache"):
        fetched()


def test_hub_cache_is_used(stocked: HubPlace) -> None:
    """What `hf download` has fetched is not fetched again: links to blobs, as it lays them out."""
    cache = stocked.home / "hub" / f"models--{REPO.replace('/', '--')}"
    clone = cache / "snapshots" / COMMIT
    (cache / "blobs").mkdir(parents=True)
    clone.mkdir(parents=True)
    for number, name in enumerate(sorted(stocked.server.files)):
        if not name.startswith("model-00001"):  # nor is it needed
            (cache / "blobs" / str(number)).write_bytes(stocked.server.files[name])
            (clone / name).symlink_to(f"../../blobs/{number}")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    assert fetched() == clone
    assert {asked.name for asked in stocked.server.log} - {"?"} == {""}
    stocked.offline()
    assert fetched() == clone
    (clone / FOURTH).unlink()
    with pytest.raises(EnvironmentFault):
        fetched()


def test_token_stays_at_the_hub(stocked: HubPlace) -> None:
    stocked.monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with HubServer(REPO, stocked.server.files) as cdn:
        stocked.server.cdn = cdn.url
        assert held(fetched()) == stocked.ours
        assert {asked.authorization for asked in stocked.server.log if asked.name != "?"} == {"Bearer hf_secret"}
        assert {asked.authorization for asked in cdn.log} == {None}
        assert cdn.sent(THIRD, FOURTH) > 4 << 20


def test_revision_is_pinned(stocked: HubPlace) -> None:
    for revision in ("v1", "refs/pr/1", COMMIT):
        found = survey(HubId(REPO, revision), only_mtp, Told())
        assert found.repository.commit == stocked.server.commit
    with pytest.raises(UsageError, match=f"{REPO} has no revision v2"):
        survey(HubId(REPO, "v2"), only_mtp, Told())


def test_a_new_commit_is_another_directory(stocked: HubPlace) -> None:
    first = fetched()
    stocked.server.commit = "b" * 40
    assert fetched() != first


def test_stale_shards_leave(stocked: HubPlace) -> None:
    """Another version of this tool needed more of the checkpoint."""
    told = Told()
    materialise(survey(ID, lambda _config, names: list(names), told), told)
    assert len(list(stocked.snapshot.glob("*.safetensors"))) == 4
    assert held(fetched()) == stocked.ours
    assert open_checkpoint(stocked.snapshot).findings == ()


def test_disk_too_small(stocked: HubPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark_convert.source import hub_cache

    monkeypatch.setattr(hub_cache, "SPARE_BYTES", 1 << 62)
    with pytest.raises(EnvironmentFault, match=r"bytes of acme/Tiny-DSpark do not fit the disk .*HF_HOME"):
        fetched()
    assert stocked.server.sent(THIRD, FOURTH) <= 2 * (1 << 16)


def test_unsplit_repository(hub: HubPlace) -> None:
    tensors = {"mtp.0.w": Tensor("U8", (3,), b"abc"), "other": Tensor("U8", (2,), b"no")}
    hub.server.files = {"config.json": b"{}", "model.safetensors": shard_of(tensors)}
    root = fetched()
    assert held(root) == {"mtp.0.w": tensors["mtp.0.w"]}
    assert sorted(path.name for path in root.iterdir()) == ["config.json", "model.safetensors"]
