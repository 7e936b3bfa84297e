"""Checkpoints in a folder of their repository, as MiMo's draft lies in ``dflash/``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.remote import local_reference
from fixtures.families import make_pair
from tests.checkpoints import Pair, read_tensors, zeros
from tests.conftest import Convert
from tests.draft_file import DraftFile
from tests.hub_place import REPO, HubPlace, Told, repository_of
from tests.hub_server import COMMIT
from tests.stage_file import write_header

FOLDER = f"{REPO}/dflash"
SHARD = "dflash_draft_model.safetensors"
ROW = "mask_embedding.pt"


def under(folder: str, root: Path) -> dict[str, bytes]:
    return {f"{folder}/{name}": data for name, data in repository_of(root).items()}


@pytest.fixture
def target(hub: HubPlace, tmp_path: Path) -> Path:
    """Of a MiMo draft that lies in ``dflash/`` on the hub: the directory, on the disk."""
    pair = make_pair("mimo", tmp_path / "mimo")
    hub.server.files = {**under("dflash", pair.draft_dir), "README.md": b"---\nbase_model: acme/Base\n---\n"}
    return pair.target_dir


def clone(place: HubPlace, root: Path) -> Path:
    """All files as `hf download` lays them out under ``root``; gives the snapshot."""
    snapshot = root / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    for name, data in place.server.files.items():
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_bytes(data)
    return snapshot


def test_same_file_as_from_a_clone(hub: HubPlace, target: Path, convert: Convert, tmp_path: Path) -> None:
    local = clone(hub, tmp_path / "clone") / "dflash"
    assert convert(local, "--target-model-dir", target, "-o", "local.gguf").code == 0
    ended = convert(FOLDER, "--target-model-dir", target)
    assert ended.code == 0, ended.err
    (made,) = Path().glob("dflash-target-*.gguf")
    assert made.read_bytes() == Path("local.gguf").read_bytes()
    assert f"{FOLDER} at commit {COMMIT}: " in ended.err and "bytes to fetch for 1 of 1 shards" in ended.err
    assert hub.server.asked(f"dflash/{ROW}") != [] and hub.server.asked("README.md") == []
    with open_gguf(made) as file:
        assert file.metadata["general.name"] == "Tiny-DSpark"
        assert file.metadata["general.source.huggingface.repository"] == REPO
        assert file.metadata["dspark.revision"] == COMMIT


def test_the_row_of_the_folder_is_what_is_written(
    hub: HubPlace, target: Path, convert: Convert, tmp_path: Path
) -> None:
    """Another row makes another file: the one that came from the hub."""
    import torch

    files = []
    for value in (0.5, 0.25):
        hub.server.commit = str(int(value * 100)) * 20
        torch.save({"mask_token_id": 511, "embedding": torch.full((128,), value)}, tmp_path / ROW)
        config = json.loads(hub.server.files["dflash/config.json"])
        config["dflash_config"]["mask_token_id"] = 511
        hub.server.files |= {"dflash/config.json": json.dumps(config).encode()}
        hub.server.files |= {f"dflash/{ROW}": (tmp_path / ROW).read_bytes()}
        ended = convert(FOLDER, "--target-model-dir", target, "--outtype", "f32", "-o", f"{value}.gguf")
        assert ended.code == 0, ended.err
        with open_gguf(Path(f"{value}.gguf")) as file:
            table = file.tensor("token_embd.weight")
            assert table is not None
            begin = table.offset + 511 * 128 * 4
        files.append(Path(f"{value}.gguf").read_bytes()[begin : begin + 512])
    assert files == [torch.full((128,), value).numpy().tobytes() for value in (0.5, 0.25)]


def test_the_cache_has_it_the_next_time(hub: HubPlace, target: Path, convert: Convert) -> None:
    assert convert(FOLDER, "--target-model-dir", target, "-o", "first.gguf").code == 0
    hub.server.log.clear()
    for number, spelled in enumerate((f"{FOLDER}@v1", f"{FOLDER}@{COMMIT}", f"{FOLDER}/")):
        assert convert(spelled, "--target-model-dir", target, "-o", f"{number}.gguf").code == 0
        assert Path(f"{number}.gguf").read_bytes() == Path("first.gguf").read_bytes()
    assert hub.server.sent() == 0
    hub.offline()
    assert convert(FOLDER, "--target-model-dir", target, "-o", "offline.gguf").code == 0
    assert Path("offline.gguf").read_bytes() == Path("first.gguf").read_bytes()
    ended = convert(f"{REPO}/other", "--target-model-dir", target)
    assert (ended.code, f"{REPO} has no folder other; a config.json lies in: dflash." in ended.err) == (2, True)


def test_what_hf_download_fetched_is_used(hub: HubPlace, target: Path, convert: Convert) -> None:
    local = clone(hub, hub.home / "hub") / "dflash"
    (refs := local.parents[2] / "refs").mkdir()
    (refs / "main").write_text(COMMIT)
    assert convert(local, "--target-model-dir", target, "-o", "local.gguf").code == 0
    assert convert(FOLDER, "--target-model-dir", target, "-o", "hub.gguf").code == 0
    hub.offline()
    (hub.cache / "parts" / COMMIT / "files.json").unlink()
    assert convert(FOLDER, "--target-model-dir", target, "-o", "offline.gguf").code == 0
    assert Path("hub.gguf").read_bytes() == Path("local.gguf").read_bytes() == Path("offline.gguf").read_bytes()
    assert hub.server.sent() == 0
    ended = convert(f"{REPO}/other", "--target-model-dir", target)
    assert (ended.code, f"nothing of {REPO}/other is in the cache" in ended.err) == (4, True)


def test_a_folder_is_inspected_by_its_headers(hub: HubPlace, target: Path, inspect: Convert, tmp_path: Path) -> None:
    weights = len(hub.server.files[f"dflash/{SHARD}"])
    ended = inspect(FOLDER, "--target", target, "--json")
    local = inspect(clone(hub, tmp_path / "clone") / "dflash", "--target", target, "--json").document
    assert ended.document["file"]["path"] == FOLDER
    for key in ("draft", "metadata", "tensors", "pair"):
        assert ended.document[key] == local[key]
    assert ("hub-fetch", FOLDER) in ended.findings("info")
    assert hub.server.sent(f"dflash/{SHARD}") <= 1 << 16 < weights


def test_a_target_in_a_folder(hub: HubPlace, pair: Pair, convert: Convert, inspect: Convert) -> None:
    hub.server.files = {**under("models/base", pair.target), "config.json": b"{}"}
    assert convert(pair.draft, "--target-model-dir", pair.target, "-o", "local.gguf").code == 0
    ended = convert(pair.draft, "--target-model-dir", f"{REPO}/models/base@main")
    assert ended.code == 0, ended.err
    (made,) = Path().glob("dspark-Tiny-DSpark-*.gguf")
    with open_gguf(made) as ours, open_gguf(Path("local.gguf")) as local:
        assert list(ours.metadata["tokenizer.ggml.tokens"]) == list(local.metadata["tokenizer.ggml.tokens"])
        assert ours.metadata["dspark.target.name"] == REPO
    assert {asked.name.rpartition("/")[0] for asked in hub.server.log} == {"", "models/base"}
    assert hub.server.asked("models/base/model.safetensors") == []
    assert inspect(pair.draft, "--target", f"{REPO}/models/base").code == 0


def test_drafts_of_one_repository_stay_apart(hub: HubPlace, pair: Pair, convert: Convert, tmp_path: Path) -> None:
    """The same names of files in two folders, and a folder in one of them."""
    hub.server.files = under("a", pair.draft)
    empty = {"fc.weight": zeros("BF16", 128, 384)}
    pair.tensors(lambda tensors: tensors.update(empty))
    hub.server.files |= under("a/heads", pair.draft)
    snapshot = clone(hub, tmp_path / "clone")
    for folder, name in (("a", "a"), ("a/heads", "b")):
        assert convert(snapshot / folder, "--target-model-dir", pair.target, "-o", f"{name}.gguf").code == 0
        ended = convert(f"{REPO}/{folder}", "--target-model-dir", pair.target, "-o", f"hub-{name}.gguf")
        assert ended.code == 0, ended.err
        assert Path(f"hub-{name}.gguf").read_bytes() == Path(f"{name}.gguf").read_bytes()
    assert Path("a.gguf").read_bytes() != Path("b.gguf").read_bytes()


@pytest.mark.parametrize(
    ("named", "folders", "code", "says"),
    [
        (f"{REPO}/dflsh", ["dflash"], 2, f"{REPO} has no folder dflsh; a config.json lies in: dflash."),
        (f"{REPO}/x@v1", ["a/b", "c", ""], 2, f"{REPO}@v1 has no folder x; a config.json lies in: its root, a/b, c."),
        (f"{REPO}/x", ["a b", ".git", "x\x1b[2J", "y" * 256], 2, "has no folder x; a config.json lies in: nowhere."),
        (REPO, ["dflash"], 3, f"{REPO} has no config.json; one lies in its folder dflash: give {FOLDER}."),
        (f"{REPO}@v1", ["x/y"], 3, f"one lies in its folder x/y: give {REPO}/x/y@v1."),
        (f"{REPO}/x", ["x/y"], 3, f"{REPO}/x has no config.json; one lies in its folder y: give {REPO}/x/y."),
        (REPO, ["b", "a"], 3, f"one lies in each of its folders a, b: give one of them, as in {REPO}/a."),
        (REPO, ["x\x1b[2J"], 3, f"{REPO} has no config.json; give the repository of a checkpoint."),
    ],
)
def test_where_a_config_is_told(
    named: str, folders: list[str], code: int, says: str, hub: HubPlace, pair: Pair, convert: Convert
) -> None:
    hub.server.files = {f"{folder}/config.json".lstrip("/"): b"{}" for folder in folders} | {"README.md": b"x"}
    ended = convert(named, "--target-model-dir", pair.target)
    assert (ended.code, ended.out, says in ended.err) == (code, "", True), ended.err
    if code == 3:
        ended = convert(pair.draft, "--target-model-dir", named)
        assert (ended.code, says in ended.err) == (code, True), ended.err


def test_a_target_with_its_draft_in_a_folder(hub: HubPlace, target: Path, convert: Convert) -> None:
    hub.server.files |= repository_of(target)
    ended = convert(REPO, "--target-model-dir", target)
    assert (ended.code, f"; another config.json lies in its folder dflash: give {FOLDER}." in ended.err) == (3, True)
    hub.server.files = {**repository_of(target), "README.md": b"x"}
    hub.server.commit = "b" * 40
    ended = convert(REPO, "--target-model-dir", target)
    assert (ended.code, "folder" in ended.err) == (3, False)


def test_a_link_in_the_cache_is_not_followed(hub: HubPlace, target: Path, convert: Convert, tmp_path: Path) -> None:
    hub.snapshot.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (hub.snapshot / "dflash").symlink_to(tmp_path / "elsewhere")
    ended = convert(FOLDER, "--target-model-dir", target)
    assert (ended.code, "is a symbolic link, which no run of this tool made" in ended.err) == (4, True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_is_missing_here_is_not_asked_for(hub: HubPlace, target: Path, convert: Convert) -> None:
    Path(REPO).mkdir(parents=True)
    ended = convert(FOLDER, "--target-model-dir", target)
    assert (ended.code, f"the draft {FOLDER} does not exist." in ended.err) == (2, True)
    assert hub.server.log == []


def test_the_only_gguf_of_a_folder(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    data = write_header(DraftFile(), tmp_path / "x.gguf").read_bytes()
    hub.server.files = {"gguf/x.gguf": data, "other/y.gguf": data, "z.gguf": data, "dflash/model.safetensors": b""}
    ended = inspect(f"{REPO}/gguf", "--json")
    assert (ended.code, ended.document["file"]["path"]) == (0, f"{REPO}:gguf/x.gguf")
    ended = inspect(REPO)
    assert (ended.code, f"name one of them, as in {REPO}:gguf/x.gguf." in ended.err) == (2, True)
    hub.server.files |= {"gguf/w.gguf": data}
    hub.server.commit = "b" * 40
    ended = inspect(f"{REPO}/gguf")
    assert (ended.code, f"name one of them, as in {REPO}:gguf/w.gguf." in ended.err) == (2, True)


def test_a_reference_in_a_folder(hub: HubPlace, target: Path, convert: Convert) -> None:
    assert convert(FOLDER, "--target-model-dir", target, "-o", "x.gguf").code == 0
    local = local_reference(Path(FOLDER), Path("x.gguf"), Told())
    assert local == hub.snapshot / "dflash"
    assert {path.name: path.read_bytes() for path in local.iterdir() if path.suffix == ".pt"} == {
        ROW: hub.server.files[f"dflash/{ROW}"]
    }
    (shard,) = local.glob("*.safetensors")
    made = {name: tensor.data for name, tensor in read_tensors(shard).items()}
    shard.write_bytes(hub.server.files[f"dflash/{SHARD}"])
    assert made == {name: tensor.data for name, tensor in read_tensors(shard).items()}
