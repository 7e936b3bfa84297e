"""GGUFs on the hub, inspected and held against each other by their first megabytes."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from tests.checkpoints import Pair
from tests.conftest import Convert
from tests.draft_file import I32, VOCAB, DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.hub_place import REPO, HubPlace, repository_of
from tests.hub_server import COMMIT
from tests.refusals.test_target import edit_gguf
from tests.stage_file import write_header
from tests.target_file import TargetFile, fitting_draft

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "inspect-1.json").read_text())
MIB = 1 << 20


def with_weights(file: DraftFile, path: Path, size: int = 8 * MIB) -> bytes:
    """The file, behind whose header lies one more tensor of ``size`` bytes."""
    file.tensors["token_embd.weight" if "qwen3.block_count" in file.kv else "blk.9.filler"] = ("F32", (64, size // 256))
    data = write_header(file, path).read_bytes()
    path.unlink()
    return data


def test_a_draft_is_read_by_its_first_megabyte(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    data = with_weights(fitting_draft(), tmp_path / "x.gguf")
    hub.server.files = {"dspark-tiny.gguf": data, "README.md": b"x"}
    (tmp_path / "cwd" / "dspark-tiny.gguf").write_bytes(data)
    local = inspect("dspark-tiny.gguf", "--json").document
    remote = inspect(REPO, "--json")
    document = remote.document
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert remote.code == 0
    assert document["file"] == {
        **local["file"],
        "path": f"{REPO}:dspark-tiny.gguf",
        "read": MIB,
    }
    for key in ("dialect", "draft", "metadata", "tensors", "findings"):
        assert document[key] == local[key]
    assert hub.server.asked("dspark-tiny.gguf") == [(0, MIB)]
    # again, of a revision, and by name: the cache has it
    for spelled in (f"{REPO}:dspark-tiny.gguf", f"{REPO}:dspark-tiny.gguf@v1", f"{REPO}@{COMMIT}"):
        shown = inspect(spelled)
        assert shown.code == 0
        assert shown.out.startswith(f"{REPO}:dspark-tiny.gguf  ")
        assert "8.7 MB, of which 1.05 MB were read" in shown.out.splitlines()[0]
    assert hub.server.sent() == MIB


def test_a_long_header_is_fetched_as_far_as_it_goes(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    draft = fitting_draft()
    words = [f"<{i}>" for i in range(150_000)]
    draft.kv["tokenizer.ggml.tokens"] = (ARRAY, words, STRING)
    draft.kv["tokenizer.ggml.token_type"] = (ARRAY, [1] * 150_000, I32)
    draft.kv["tokenizer.ggml.merges"] = (ARRAY, [f"{word} {word}" for word in words], STRING)
    for name in ("markov_w1.weight", "markov_w2.weight"):
        draft.tensors[name] = ("BF16", (32, 150_000))
    data = with_weights(draft, tmp_path / "x.gguf", 20 * MIB)
    hub.server.files = {"a/dspark-big.gguf": data}
    assert inspect(REPO).code == 0
    assert hub.server.asked("a/dspark-big.gguf") == [(0, MIB), (MIB, 2 * MIB), (2 * MIB, 4 * MIB), (4 * MIB, 8 * MIB)]
    assert hub.server.sent() < len(data) / 4


def test_which_of_several_is_asked_back(hub: HubPlace, inspect: Convert) -> None:
    names = [
        "Tiny-Q8_0.gguf",
        "Tiny-00001-of-00002.gguf",
        "Tiny-00002-of-00002.gguf",
        "dspark-Tiny.gguf",
        "mmproj.gguf",
    ]
    hub.server.files = dict.fromkeys(names, b"GGUF")
    ended = inspect(REPO)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: {REPO} has 4 GGUF files (dspark-Tiny.gguf, Tiny-00001-of-00002.gguf, Tiny-Q8_0.gguf, mmproj.gguf);"
        f" name one of them, as in {REPO}:dspark-Tiny.gguf.\n"
    )
    ended = inspect(f"{REPO}:other.gguf")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "has no file other.gguf; its GGUF files are dspark-Tiny.gguf, " in ended.err
    assert hub.server.sent() == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--deep",), "read by its header alone"),
        (("--verify-hash",), "download it"),
    ],
)
def test_what_needs_the_data_says_so(args: tuple[str, ...], words: str, hub: HubPlace, inspect: Convert) -> None:
    ended = inspect(f"{REPO}:x.gguf", *args)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert words in ended.err
    assert hub.server.log == []


def test_faults_of_the_hub_are_one_sentence(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    good = with_weights(fitting_draft(), tmp_path / "x.gguf")
    pages = {
        "page.gguf": (b"<!DOCTYPE html>" + bytes(100), 3, "is an HTML page"),
        "pointer.gguf": (b"version https://git-lfs.github.com/spec/v1\n", 3, "Git LFS pointer"),
        "cut.gguf": (good[:900], 3, "cut short or damaged"),
        "empty.gguf": (b"", 3, "empty.gguf"),
        "model.gguf": (with_weights(TargetFile(), tmp_path / "y.gguf"), 3, "is a complete qwen3 model"),
        "evil.gguf": (b"GGUF" + (3).to_bytes(4, "little") + (2**40).to_bytes(8, "little") * 2 + bytes(3 * MIB), 3, ""),
    }
    hub.server.files = {name: data for name, (data, _, _) in pages.items()}
    for name, (_, code, words) in pages.items():
        ended = inspect(f"{REPO}:{name}")
        assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), ended.err
        assert words in ended.err
        assert f"{REPO}:{name}" in ended.err or "empty" in name
        assert "ggufs/" not in ended.err
    assert inspect("acme/Nothing:x.gguf").code == 2
    hub.offline()
    assert inspect("acme/Never:x.gguf").code == 4


def test_a_draft_and_a_target_on_the_hub(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    hub.server.files = {
        "dspark-tiny.gguf": fitting_draft().write(tmp_path / "x.gguf").read_bytes(),
        "Tiny-Q8_0.gguf": TargetFile().write(tmp_path / "y.gguf").read_bytes(),
    }
    ended = inspect(f"{REPO}:dspark-tiny.gguf", "--target", f"{REPO}:Tiny-Q8_0.gguf", "--json")
    assert ended.code == 0
    pair = ended.document["pair"]
    assert (pair["target"], pair["verdict"]) == (f"{REPO}:Tiny-Q8_0.gguf", "fits")
    assert hub.server.sent() == sum(min(MIB, len(data)) for data in hub.server.files.values())


def test_a_checkpoint_on_the_hub_with_a_target(hub: HubPlace, pair: Pair, inspect: Convert) -> None:
    hub.server.files = repository_of(pair.draft)
    local = inspect(pair.draft, "--target", pair.gguf, "--json").document
    remote = inspect(REPO, "--target", pair.gguf, "--json").document
    assert remote["pair"] == local["pair"]
    hub.server.files = {**repository_of(pair.target), "model.safetensors": bytes(1000)}
    hub.server.commit = "2" * 40
    seen = inspect(pair.draft, "--target", REPO, "--json")
    assert (seen.code, seen.document["pair"]["target"]) == (0, REPO)
    assert hub.server.asked("model.safetensors")[1:] == []
    edit_gguf(pair.gguf, **{"qwen3.embedding_length": 64})
    assert inspect(REPO.replace("Tiny", "None"), "--target", pair.gguf).code == 2


def test_a_split_target_is_read_by_all_its_headers(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    u16 = 2
    parts = [TargetFile(), TargetFile()]
    del parts[0].tensors["output.weight"], parts[1].tensors["token_embd.weight"]
    parts[1].kv = {}
    for number, part in enumerate(parts):
        part.kv["split.no"] = (u16, number, None)
        part.kv["split.count"] = (u16, 2, None)
        part.kv["split.tensors.count"] = (I32, 2, None)
        data = part.write(tmp_path / "part.gguf").read_bytes()
        hub.server.files[f"q/Tiny-{number + 1:05d}-of-00002.gguf"] = data
    draft = fitting_draft().write(tmp_path / "cwd" / "draft.gguf")
    later = inspect(f"{REPO}:q/Tiny-00002-of-00002.gguf")
    assert (later.code, later.err.count("\n")) == (3, 1)
    assert f"{REPO}:q/Tiny-00002-of-00002.gguf is one of 2 parts" in later.err
    ended = inspect(draft, "--target", REPO, "--json")
    assert (ended.code, ended.document["pair"]["verdict"]) == (0, "fits")
    assert [f["target"] for f in ended.document["pair"]["fields"] if f["field"] == "head"] == ["F16, head apart"]
    del hub.server.files["q/Tiny-00002-of-00002.gguf"]
    hub.server.commit = "3" * 40
    ended = inspect(draft, "--target", REPO)
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert "one of 2 parts" in ended.err


def test_a_download_cut_short_still_shows_its_meaning(inspect: Convert, tmp_path: Path) -> None:
    path = write_header(fitting_draft(), tmp_path / "cwd" / "dspark-cut.gguf")
    size = path.stat().st_size
    os.truncate(path, size // 2)
    ended = inspect(path)
    assert ended.out.splitlines()[0].endswith(f"  {size // 2:,} of {size:,} bytes are here")
    assert "7 slots, 7 drafts a round" in ended.out
    assert "[truncated]" in ended.out
    assert (ended.code, inspect(path, "--strict").code) == (0, 1)
    assert inspect(path, "--json").document["file"]["whole"] == size


def test_two_vocabularies_of_150_000_tokens_are_compared_quickly(tmp_path: Path) -> None:
    """Stored bytes first; where one token differs every one is looked at, one after the other."""
    from dspark_convert.inspection import inspect_file
    from dspark_convert.pairing import pair_file
    from dspark_convert.remote import Silent, open_target

    count = 150_000
    words = [f"token{i}" for i in range(count)]
    draft, target = fitting_draft(), TargetFile()
    for file, last in ((draft, "same"), (target, "other")):
        file.kv["tokenizer.ggml.tokens"] = (ARRAY, [*words[:-1], last], STRING)
        file.kv["tokenizer.ggml.token_type"] = (ARRAY, [1] * count, I32)
        file.kv["tokenizer.ggml.merges"] = (ARRAY, [f"{word} {word}" for word in words], STRING)
    for name in ("markov_w1.weight", "markov_w2.weight"):
        draft.tensors[name] = ("BF16", (32, count))
    target.tensors = dict.fromkeys(target.tensors, ("F16", (64, count)))
    ours, theirs = write_header(draft, tmp_path / "d.gguf"), write_header(target, tmp_path / "t.gguf")
    began = time.process_time()
    _, fit = pair_file(inspect_file(ours), open_target(theirs, Silent()))
    assert time.process_time() - began < 1
    assert fit is not None and [finding.rule for finding in fit.findings][:1] == ["target-tokens"]
    inspection, opened = inspect_file(ours), open_target(theirs, Silent())
    tracemalloc.start()
    pair_file(inspection, opened)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_the_verdict_on_a_screen_of_80_columns(inspect: Convert, tmp_path: Path) -> None:
    draft = fitting_draft().write(tmp_path / "cwd" / "draft.gguf")
    target = TargetFile()
    target.kv["tokenizer.ggml.tokens"] = (ARRAY, [f"<{i + (i == 3)}>" for i in range(VOCAB)], STRING)
    ended = inspect(draft, "--target", target.write(tmp_path / "cwd" / "target.gguf"))
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert f"The draft does not fit {tmp_path}/cwd/target.gguf." in lines
    (line,) = (line for line in lines if line.startswith("tokens "))
    assert line.endswith("misfit")
    table = lines[lines.index(line) - 6 : lines.index(line) + 14]
    assert table[0].split() == ["field", "draft", "target", "verdict"]
    assert max(map(len, table)) <= 80
    assert "1 token differs, the first is 3: '<3>' in the draft, '<4>' in the target [target-tokens]" in ended.out
    assert inspect(draft, "--target", tmp_path / "none.gguf").code == 2
    assert inspect(draft, "--target", draft).code == 3


def test_a_file_in_the_hubs_own_cache_is_read_there(hub: HubPlace, inspect: Convert) -> None:
    place = hub.home / "hub" / f"models--{REPO.replace('/', '--')}"
    (place / "snapshots" / COMMIT).mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    fitting_draft().write(place / "snapshots" / COMMIT / "dspark-tiny.gguf")
    hub.offline()
    ended = inspect(f"{REPO}:dspark-tiny.gguf", "--json")
    assert (ended.code, ended.document["draft"]["block_size"]) == (0, 7)
    assert hub.server.log == []


def test_a_header_that_came_damaged_is_fetched_anew(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    good = with_weights(fitting_draft(), tmp_path / "x.gguf")
    hub.server.files = {"dspark-tiny.gguf": good[:30] + b"\xff" * 40 + good[70:]}
    assert inspect(REPO).code == 3
    hub.server.files = {"dspark-tiny.gguf": good}
    assert inspect(REPO).code == 0


def test_a_draft_in_place_of_a_target_on_the_hub(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    data = fitting_draft().write(tmp_path / "cwd" / "dspark-tiny.gguf").read_bytes()
    hub.server.files = {"dspark-tiny.gguf": data}
    ended = inspect("dspark-tiny.gguf", "--target", REPO)
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
    assert f"the target {REPO} is itself a draft (dflash)" in ended.err


def test_a_layout_that_leaves_its_sizes_to_the_target(hub: HubPlace, inspect: Convert, tmp_path: Path) -> None:
    from tests.ggufio.layout_files import ds4, ds4_target

    hub.server.files = {
        "old.gguf": ds4().write(tmp_path / "old.gguf").read_bytes(),
        "target.gguf": ds4_target(tmp_path / "target.gguf").read_bytes(),
    }
    alone = inspect(f"{REPO}:old.gguf", "--target", tmp_path / "target.gguf", "--json").document
    assert (alone["dialect"], alone["draft"] is None) == ("ds4", False)
    remote = inspect(f"{REPO}:old.gguf", "--target", f"{REPO}:target.gguf", "--json").document
    assert remote["pair"]["fields"] == alone["pair"]["fields"]
