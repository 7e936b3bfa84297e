"""Drafts and targets on the hub, converted and inspected as if they lay on the disk."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_convert.source.hub_repo import MAX_LIST_BYTES
from dspark_convert.tokenizer import from_gguf
from tests.checkpoints import Pair, read_tensors, write_tensors
from tests.conftest import Convert
from tests.hub_place import REPO, HubPlace, repository_of
from tests.hub_server import COMMIT, Reply
from tests.tokenizer.pieces_making import llama_model, normalizer, save_model, trainer


@pytest.fixture
def stocked(hub: HubPlace, pair: Pair) -> HubPlace:
    """A hub with the tiny draft, in two shards."""
    pair.split()
    (pair.draft / "README.md").write_text("---\nbase_model: acme/Tiny\n---\n")
    hub.server.files = repository_of(pair.draft)
    return hub


@pytest.fixture
def clone(stocked: HubPlace, tmp_path: Path) -> Path:
    """The whole repository as `hf download` would leave it."""
    root = tmp_path / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    for name, data in stocked.server.files.items():
        root.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_same_file_as_from_a_clone(stocked: HubPlace, clone: Path, pair: Pair, convert: Convert) -> None:
    target = ("--target-model-dir", pair.target)
    assert convert(clone, *target, "-o", "local.gguf").code == 0
    ended = convert(REPO, *target, "-o", "hub.gguf")
    assert (ended.code, Path("hub.gguf").read_bytes()) == (0, Path("local.gguf").read_bytes())
    assert f"{REPO} at commit {COMMIT}: " in ended.err and "bytes to fetch for 2 of 2 shards" in ended.err
    assert COMMIT.encode() in Path("hub.gguf").read_bytes()
    stocked.server.log.clear()
    again = convert(f"{REPO}@main", *target, "-o", "again.gguf")
    assert (again.code, Path("again.gguf").read_bytes()) == (0, Path("local.gguf").read_bytes())
    assert stocked.server.sent() == 0


def test_dry_run_fetches_headers_only(stocked: HubPlace, clone: Path, pair: Pair, convert: Convert) -> None:
    big = {name: len(data) for name, data in stocked.server.files.items() if name.endswith(".safetensors")}
    ended = convert(REPO, "--target-model-dir", pair.target, "--dry-run")
    assert ended.code == 0
    assert stocked.server.sent(*big) <= len(big) << 16
    for name, size in big.items():
        line = next(line for line in ended.out.splitlines() if line.startswith(name))
        assert f"{size:,}" in line and line.endswith(" 0")
    plan = convert(REPO, "--target-model-dir", pair.target, "--dry-run", "--json").document["plan"]
    assert plan == convert(clone, "--target-model-dir", pair.target, "--dry-run", "--json").document["plan"]
    (found,) = [f for f in ended_findings(convert, pair) if f["rule"] == "hub-fetch"]
    assert "bytes to fetch" in found["message"]
    assert not list(stocked.snapshot.glob("*.safetensors"))


@pytest.fixture(scope="module")
def deepseek4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with its draft inside, in five shards, as `hf download` would leave it."""
    from fixtures.deepseek4 import make_deepseek4

    root = tmp_path_factory.mktemp("v4") / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    return make_deepseek4(root)


def test_a_draft_inside_its_target(deepseek4: Path, hub: HubPlace, convert: Convert) -> None:
    """Only its own bytes are fetched, and the tokenizer that lies there too."""
    hub.server.files = repository_of(deepseek4)
    assert convert(deepseek4, "-o", "local.gguf").code == 0
    ended = convert(REPO, "-o", "hub.gguf")
    assert (ended.code, Path("hub.gguf").read_bytes()) == (0, Path("local.gguf").read_bytes())
    shards = {name: data for name, data in hub.server.files.items() if name.endswith(".safetensors")}
    needed = sum(
        len(tensor.data)
        for path in deepseek4.glob("*.safetensors")
        for name, tensor in read_tensors(path).items()
        if name.startswith("mtp.")
    )
    heads = 3 * (1 << 16)  # as much is asked for before a header's length is known
    assert needed < hub.server.sent(*shards) <= needed * 1.01 + heads
    assert {asked.name for asked in hub.server.log} & set(shards) == set(sorted(shards)[2:])


def test_a_draft_inside_its_target_over_connections_that_break(
    deepseek4: Path, hub: HubPlace, convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shard is cut twice: within one hundredth of the draft's bytes all the same, and the same file."""
    monkeypatch.setattr("dspark_convert.source.hub_files.FIRST_BYTES", 8)
    hub.server.files = repository_of(deepseek4)
    shards = sorted(name for name in hub.server.files if name.endswith(".safetensors"))[2:]
    heads = sum(8 + int.from_bytes(hub.server.files[name][:8], "little") for name in shards)

    def cut(reply: Reply) -> Reply:
        return Reply(reply.status, reply.headers, reply.body, cut=len(reply.body) // 3)

    whole: list[Callable[[Reply], Reply]] = [lambda reply: reply] * 2  # the header comes in two answers
    hub.server.bends = {name: [*whole, cut, cut] for name in shards}
    assert convert(deepseek4, "-o", "local.gguf").code == 0
    ended = convert(REPO, "-o", "hub.gguf")
    assert (ended.code, Path("hub.gguf").read_bytes()) == (0, Path("local.gguf").read_bytes())
    assert len(hub.waits) == 2 * len(shards)
    needed = sum(
        len(tensor.data)
        for path in deepseek4.glob("*.safetensors")
        for name, tensor in read_tensors(path).items()
        if name.startswith("mtp.")
    )
    assert 0 <= hub.server.sent(*shards) - heads - needed <= needed / 100


def test_tables_of_the_stages_own_stay_on_the_hub(
    deepseek4: Path, hub: HubPlace, convert: Convert, tmp_path: Path
) -> None:
    root = tmp_path / "clone" / deepseek4.parent.parent.name / "snapshots" / COMMIT
    shutil.copytree(deepseek4, root)
    index = json.loads((root / "model.safetensors.index.json").read_text())
    target = {name: t for path in root.glob("*.safetensors") for name, t in read_tensors(path).items()}
    tables = {"mtp.0.embed.weight": target["embed.weight"], "mtp.2.head.weight": target["head.weight"]}
    for (name, table), beside in zip(tables.items(), ("mtp.0.main_norm.weight", "mtp.2.norm.weight"), strict=True):
        file = root / index["weight_map"][beside]
        write_tensors(file, read_tensors(file) | {name: table})
        index["weight_map"][name] = file.name
    (root / "model.safetensors.index.json").write_text(json.dumps(index))
    hub.server.files = repository_of(root)
    for choice in ("omit", "include"):
        assert convert(root, "-o", f"{choice}.gguf", "--shared-tensors", choice).code == 0
        hub.server.log.clear()
        ended = convert(REPO, "-o", f"hub-{choice}.gguf", "--shared-tensors", choice, "--json")
        assert ended.code == 0
        assert Path(f"hub-{choice}.gguf").read_bytes() == Path(f"{choice}.gguf").read_bytes()
        if choice == "omit":
            assert ("shared-omitted", "mtp.0.embed.weight and mtp.2.head.weight") in ended.findings("warning")
    assert hub.server.sent() == sum(len(table.data) for table in tables.values())


def ended_findings(convert: Convert, pair: Pair) -> list[dict[str, str]]:
    findings: list[dict[str, str]] = convert(REPO, "--target-model-dir", pair.target, "--dry-run", "--json").document[
        "findings"
    ]
    return findings


def test_target_on_the_hub(hub: HubPlace, pair: Pair, convert: Convert) -> None:
    """Config and tokenizer alone: its weights are not asked for."""
    hub.server.files = {**repository_of(pair.target), "model.safetensors": bytes(1000)}
    (pair.root / "clone").mkdir()
    place = pair.root / "clone" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    shutil.copytree(pair.target, place, ignore=shutil.ignore_patterns("*.safetensors"))
    assert convert(pair.draft, "--target-model-dir", place, "-o", "local.gguf").code == 0
    ended = convert(pair.draft, "--target-model-dir", REPO, "-o", "hub.gguf")
    assert (ended.code, ended.err.count("error")) == (0, 0)
    assert Path("hub.gguf").read_bytes() == Path("local.gguf").read_bytes()
    assert hub.server.asked("model.safetensors") == []
    assert hub.server.asked("tokenizer.json") != []


def test_target_with_sentencepieces_file_on_the_hub(hub: HubPlace, pair: Pair, convert: Convert) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (pair.target / name).unlink()
    data = llama_model([f"x{i}" for i in range(200)], trainer(), normalizer())
    save_model(pair.target, data, added_tokens={"<extra>": 500})
    assert convert(pair.draft, "--target-model-dir", pair.target, "-o", "local.gguf").code == 0
    hub.server.files = repository_of(pair.target)
    ended = convert(pair.draft, "--target-model-dir", REPO, "-o", "hub.gguf")
    assert (ended.code, ended.err.count("error")) == (0, 0)
    kvs = from_gguf(Path("hub.gguf")).kvs
    assert kvs == from_gguf(Path("local.gguf")).kvs
    keys = {kv.key: kv.value for kv in kvs}
    assert keys["tokenizer.ggml.model"] == "llama"
    assert keys["tokenizer.ggml.tokens"][500] == "<extra>"


def test_faults_are_told_before_anything_is_fetched(hub: HubPlace, pair: Pair, convert: Convert) -> None:
    pair.config({"mask_token_id": 10**6})
    hub.server.files = repository_of(pair.draft)
    ended = convert(REPO, "--target-model-dir", pair.target)
    assert (ended.code, ended.out) == (3, "")
    assert not list(hub.snapshot.glob("*.safetensors"))


def status(code: int, error: str = "") -> Callable[[Reply], Reply]:
    return lambda _reply: Reply(code, {"x-error-code": error} if error else {})


def squeezed(reply: Reply) -> Reply:
    """Packed without having been asked for: a few kilobytes may unpack to any size."""
    return Reply(200, {"content-encoding": "gzip"}, gzip.compress(reply.body))


@pytest.mark.parametrize(
    ("answer", "token", "code", "says"),
    [
        (status(404, "RepoNotFound"), "", 2, "check the name; if it is private, set HF_TOKEN"),
        (status(404, "RepoNotFound"), "hf_x", 2, "if it is private, the token in use"),
        (status(404), "", 2, "there is no directory acme/Tiny-DSpark here and no repository http://"),
        (status(401), "", 4, "check the name, then set HF_TOKEN or run `hf auth login`"),
        (status(401), "hf_x", 4, "refuses the token in use (HF_TOKEN or `hf auth login`): renew it"),
        (status(403, "GatedRepo"), "", 4, "is gated: accept its terms at http://"),
        (status(403), "hf_x", 4, "with the account of the token in use"),
        (status(418), "", 4, "answers with status 418"),
        (lambda _reply: Reply(200, {}, b"<html>"), "", 4, "see whether HF_ENDPOINT is right"),
        (lambda _reply: Reply(200, {}, b'{"id": "a", "siblings": []}'), "", 4, "without its commit"),
        (lambda _reply: Reply(200, {}, b'{"id": "a", "sha": "../../x", "siblings": []}'), "", 4, "without its commit"),
        (lambda _reply: Reply(200, {}, b'{"id": "a", "sha": 5, "siblings": []}'), "", 4, "without its commit"),
        (
            lambda _reply: Reply(
                200, {}, f'{{"id": "a", "sha": "{COMMIT}", "siblings": [{{"rfilename": 5}}]}}'.encode()
            ),
            "",
            4,
            "without its commit or its files' sizes",
        ),
        (lambda _reply: Reply(200, {}, b"[]"), "", 4, "see whether HF_ENDPOINT is right"),
        (lambda _reply: Reply(200, {}, b'{"siblings": [5]}'), "", 4, "see whether HF_ENDPOINT is right"),
        (lambda _reply: Reply(200, {}, b"[" * 100_000), "", 4, "see whether HF_ENDPOINT is right"),
        (lambda _reply: Reply(200, {}, b" " * (MAX_LIST_BYTES + 1)), "", 4, f"in more than {MAX_LIST_BYTES} bytes"),
        (squeezed, "", 4, "see whether HF_ENDPOINT is right"),
    ],
)
def test_the_hub_refuses(
    answer: Callable[[Reply], Reply],
    token: str,
    code: int,
    says: str,
    hub: HubPlace,
    pair: Pair,
    convert: Convert,
) -> None:
    if token:
        hub.monkeypatch.setenv("HF_TOKEN", token)
    hub.server.bends = {"": [answer]}
    ended = convert(REPO, "--target-model-dir", pair.target)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err and len(ended.err.splitlines()) == 1
    assert "hf_x" not in ended.err


def test_a_socks_proxy_without_its_package(hub: HubPlace, pair: Pair, convert: Convert) -> None:
    hub.monkeypatch.setitem(sys.modules, "socksio", None)
    hub.monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    ended = convert(REPO, "--target-model-dir", pair.target)
    assert (ended.code, ended.out) == (4, "")
    assert "run `pip install socksio`" in ended.err and len(ended.err.splitlines()) == 1


def test_rate_limit_is_waited_for(stocked: HubPlace, pair: Pair, convert: Convert) -> None:
    stocked.server.bends = {
        "": [lambda _reply: Reply(429, {"retry-after": "17"})],
        "config.json": [lambda _reply: Reply(503, {})],
    }
    assert convert(REPO, "--target-model-dir", pair.target, "-o", "out.gguf").code == 0
    assert stocked.waits == [17, 0.5]
    stocked.server.bends = {"": [lambda _reply: Reply(429, {"retry-after": "100000"})]}
    ended = convert(REPO, "--target-model-dir", pair.target, "--dry-run")
    assert ended.code == 4 and "it asks to wait 100000 s" in ended.err


def test_no_network(stocked: HubPlace, pair: Pair, convert: Convert) -> None:
    stocked.endpoint("http://127.0.0.1:9")  # the discard port: nothing listens
    ended = convert(REPO, "--target-model-dir", pair.target)
    assert ended.code == 4 and "cannot be reached" in ended.err and "HF_HUB_OFFLINE=1" in ended.err
    assert stocked.waits == []


def test_nothing_that_converts(hub: HubPlace, pair: Pair, convert: Convert) -> None:
    hub.server.files = {"config.json": b"{}", "draft.gguf": b"GGUF"}
    ended = convert(REPO, "--target-model-dir", pair.target)
    assert ended.code == 3 and "has no *.safetensors file (it has draft.gguf)" in ended.err
    hub.server.files, hub.server.commit = {"model.safetensors": b""}, "c" * 40
    ended = convert(REPO, "--target-model-dir", pair.target)
    assert ended.code == 3 and "has no config.json" in ended.err


def test_inspect(stocked: HubPlace, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dspark_convert.cli.inspect import inspect
    from dspark_convert.cli.runner import run

    documents = []
    for model in (f"{REPO}@{COMMIT}", str(clone)):
        with pytest.raises(SystemExit) as end:
            run(inspect, "dspark-inspect", [model, "--json"])
        assert end.value.code == 0
        documents.append(json.loads(capsys.readouterr().out))
    ours, local = documents
    assert ours["file"]["path"] == f"{REPO}@{COMMIT}"
    assert [f["rule"] for f in ours["findings"]].count("hub-fetch") == 1
    for key in ("draft", "metadata", "tensors", "dialect"):
        assert ours[key] == local[key]
    assert stocked.server.sent() < sum(map(len, stocked.server.files.values()))
    assert not list(stocked.snapshot.glob("*.safetensors"))
