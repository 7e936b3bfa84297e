"""The cache under runs that are killed, run side by side, and links that someone laid there."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.source import hub_files, hub_part
from dspark_convert.source.hub import materialise
from dspark_convert.source.hub_id import HubId
from tests.checkpoints import Tensor, read_tensors
from tests.hub_place import REPO, HubPlace, Told, inside_a_target, only_mtp, survey
from tests.hub_server import Reply

FOURTH = "model-00004-of-00004.safetensors"

#: a run of its own, as the command line makes it
SCRIPT = """
import sys
from tests.hub_place import Told, only_mtp, survey
from dspark_convert.source import hub_part
from dspark_convert.source.hub import materialise
from dspark_convert.source.hub_id import HubId
hub_part.SYNC_BYTES = 1 << 18
print(materialise(survey(HubId(sys.argv[1]), only_mtp, Told()), Told()))
"""


@pytest.fixture
def stocked(hub: HubPlace) -> HubPlace:
    hub.ours, hub.server.files = inside_a_target()
    return hub


def start(hub: HubPlace) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.server.url,
        "HF_HOME": str(hub.home),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.Popen([sys.executable, "-c", SCRIPT, REPO], env=environment, stdout=subprocess.PIPE, text=True)


def fetched() -> dict[str, Tensor]:
    root = materialise(survey(HubId(REPO), only_mtp, Told()), Told())
    return {name: tensor for path in root.glob("*.safetensors") for name, tensor in read_tensors(path).items()}


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGINT])
def test_killed(deadly: signal.Signals, stocked: HubPlace) -> None:
    """What was synced before the kill is not fetched again."""
    half = 2 << 20
    reached, release = threading.Event(), threading.Event()

    def stall(reply: Reply) -> Reply:
        reply.stall = (half, reached, release)
        return reply

    stocked.server.bends = {FOURTH: [lambda reply: reply, stall]}
    process = start(stocked)
    assert reached.wait(30)
    done = stocked.cache / "parts" / stocked.server.commit / f"{FOURTH}.done"
    while not done.is_file() or hub_part.load_json(done)["done"] < half - (1 << 18):
        assert process.poll() is None
    process.send_signal(deadly)
    assert process.wait(10) != 0  # although the server says nothing
    release.set()
    assert not (stocked.snapshot / FOURTH).exists()
    before = stocked.server.sent(FOURTH)
    assert fetched() == stocked.ours
    assert stocked.server.sent(FOURTH) - before <= (3 << 20) - half + (1 << 18)


def test_side_by_side(stocked: HubPlace) -> None:
    """Three runs at once fetch each byte once, and all of them end with the same directory."""
    runs = [start(stocked) for _ in range(3)]
    assert {run.communicate(timeout=60)[0].strip() for run in runs} == {str(stocked.snapshot)}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert fetched() == stocked.ours
    assert stocked.server.sent(FOURTH) <= 3 * (1 << 16) + (3 << 20) + (1 << 10)


def test_waiting_is_told(stocked: HubPlace) -> None:
    found = survey(HubId(REPO), only_mtp, Told())
    told = Told()
    with (stocked.cache / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        runner = threading.Thread(target=materialise, args=(found, told))
        runner.start()
        while not told.notes:
            assert runner.is_alive()
        assert told.notes == [f"another run is fetching {REPO}: waiting for it"]
        assert stocked.server.sent(FOURTH) <= 1 << 16
    runner.join(30)
    assert (stocked.snapshot / FOURTH).is_file()


@pytest.mark.parametrize("directory", ["snapshot", "parts", "heads", "repository"])
def test_linked_directories_are_refused(directory: str, stocked: HubPlace, tmp_path: Path) -> None:
    found = survey(HubId(REPO), only_mtp, Told())
    place: Path = getattr(found.repository.cache, directory)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    with pytest.raises(EnvironmentFault, match="is a symbolic link"):
        fetched()
    assert stocked.server.sent(FOURTH) <= 1 << 16
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


def test_linked_files_are_replaced_not_followed(stocked: HubPlace, tmp_path: Path) -> None:
    found = survey(HubId(REPO), only_mtp, Told())
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    cache = found.repository.cache
    places = [
        cache.snapshot / FOURTH,
        cache.snapshot / "config.json",
        cache.parts / f"{FOURTH}.part",
        cache.parts / f"{FOURTH}.done",
        cache.heads / FOURTH,
        cache.parts / "model.safetensors.index.json",
        cache.parts / "files.json",
        cache.repository / "refs.json",
    ]
    for place in places:
        place.unlink(missing_ok=True)
        place.symlink_to(victim)
    assert fetched() == stocked.ours
    assert victim.read_bytes() == b"precious"


def test_what_a_link_leads_to_is_not_taken(stocked: HubPlace, tmp_path: Path) -> None:
    found = survey(HubId(REPO), only_mtp, Told())
    real = stocked.server.files["config.json"]
    (tmp_path / "planted").write_bytes(real.replace(b"Some", b"Evil"))
    (found.repository.cache.snapshot / "config.json").unlink()
    (found.repository.cache.snapshot / "config.json").symlink_to(tmp_path / "planted")
    fetched()
    assert (stocked.snapshot / "config.json").read_bytes() == real


def test_part_of_another_shape_is_begun_anew(stocked: HubPlace) -> None:
    """A version of this tool that needed other tensors was interrupted."""
    found = survey(HubId(REPO), only_mtp, Told())
    shard = next(shard for shard in found.shards if shard.name == FOURTH)
    other = shard.header.replace(b"mtp.1.w", b"mtp.7.w")
    parts = found.repository.cache.parts
    (parts / f"{FOURTH}.part").write_bytes(other + bytes(5000))
    (parts / f"{FOURTH}.done").write_text('{"done": 5000}')
    assert fetched() == stocked.ours


def test_damaged_cache_files_are_made_again(stocked: HubPlace) -> None:
    found = survey(HubId(REPO), only_mtp, Told())
    cache = found.repository.cache
    for place in (cache.heads / FOURTH, cache.parts / "files.json", cache.repository / "refs.json"):
        place.write_bytes(place.read_bytes()[:-3])
    assert fetched() == stocked.ours


@pytest.mark.parametrize("name", ["../../evil.safetensors", "/etc/evil.safetensors", "a/b.safetensors", "..", "a\\b"])
def test_index_with_paths(name: str, stocked: HubPlace) -> None:
    index = f'{{"weight_map": {{"mtp.0.w": "{name}"}}}}'.replace("\\", "\\\\")
    stocked.server.files["model.safetensors.index.json"] = index.encode()
    stocked.server.files[name] = b"evil"
    with pytest.raises(InputError, match="cannot be trusted") as fault:
        fetched()
    assert "bare file name" in fault.value.findings[0].message


def test_index_with_a_missing_shard(stocked: HubPlace) -> None:
    del stocked.server.files[FOURTH]
    with pytest.raises(InputError, match=f"lacks 1 of the shards that its index names: {FOURTH}"):
        fetched()


def test_index_that_lacks_a_tensor(stocked: HubPlace) -> None:
    name = "model.safetensors.index.json"
    stocked.server.files[name] = stocked.server.files[name].replace(b'"mtp.1.w"', b'"layers.9.w"')
    with pytest.raises(InputError, match=r"tensor 'mtp\.1\.w' stands in .* does not list it there"):
        fetched()


def test_tensor_twice_without_an_index(stocked: HubPlace) -> None:
    del stocked.server.files["model.safetensors.index.json"]
    stocked.server.files["other.safetensors"] = stocked.server.files[FOURTH]
    with pytest.raises(InputError, match="tensors of one name twice"):
        fetched()


def test_index_that_is_wrong_about_a_tensor(stocked: HubPlace) -> None:
    name = "model.safetensors.index.json"
    stocked.server.files[name] = stocked.server.files[name].replace(b'"mtp.1.w"', b'"mtp.9.w"')
    with pytest.raises(InputError, match=r"tensor 'mtp\.9\.w' stands in .* not so"):
        fetched()


@pytest.mark.parametrize(
    "head",
    [
        (1 << 62).to_bytes(8, "little") + b"x" * 100,
        (90_000_000).to_bytes(8, "little") + b"x" * 100,
        b"version https://git-lfs.github.com/spec/v1\n",
        b"<!DOCTYPE html><html></html>",
        (2).to_bytes(8, "little") + b"{]",
        b"abc",
        b"",
    ],
)
def test_bad_shards(head: bytes, stocked: HubPlace) -> None:
    stocked.server.files[FOURTH] = head
    with pytest.raises(InputError, match="is damaged") as fault:
        fetched()
    assert fault.value.findings


def test_a_header_of_spaces_is_not_fetched(stocked: HubPlace) -> None:
    stocked.server.files[FOURTH] = (4_000_000).to_bytes(8, "little") + b" " * 3_999_998 + b"{}"
    with pytest.raises(InputError, match="is damaged") as fault:
        fetched()
    assert "begins with b' '" in fault.value.findings[0].message
    assert stocked.server.sent(FOURTH) <= 1 << 16


def test_a_long_header_is_held_twice_at_most(stocked: HubPlace) -> None:
    """Beside what the server, which is in this process, holds of it."""
    size = 8_000_000
    stocked.server.files[FOURTH] = size.to_bytes(8, "little") + b"{}" + b" " * (size - 2)
    found = survey(HubId(REPO), lambda _config, _names: [], Told()).repository
    data = stocked.server.files[FOURTH]
    stocked.monkeypatch.setattr(hub_files, "read_range", lambda _file, begin, end, _note: data[begin:end])
    tracemalloc.start()
    try:
        assert hub_files.read_head(found, FOURTH, print) == ([], None)
        assert tracemalloc.get_traced_memory()[1] < 2.2 * size
    finally:
        tracemalloc.stop()


def test_cache_that_cannot_be_written(stocked: HubPlace) -> None:
    stocked.home.mkdir(exist_ok=True)
    (stocked.home / "dspark-convert").write_text("a file")
    with pytest.raises(EnvironmentFault, match="set HF_HOME"):
        fetched()
