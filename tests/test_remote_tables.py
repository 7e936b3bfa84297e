"""A draft's copies of the target's tables stay on the hub unless they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkpoints import Pair, Tensors, read_tensors, write_tensors
from tests.conftest import Convert, Ended
from tests.hub_place import REPO, HubPlace, repository_of
from tests.hub_server import COMMIT, Reply
from tests.test_shared import MASK

TABLES = ("embed_tokens.weight", "lm_head.weight")
INCLUDE = ("--shared-tensors", "include")


class Stock:
    """The tiny draft on a hub and as a clone; targets with their weights and without."""

    def __init__(self, hub: HubPlace, pair: Pair, convert: Convert, shards: int) -> None:
        self.hub, self.pair, self._convert = hub, pair, convert
        self.tensors = read_tensors(pair.shard)
        if shards > 1:
            pair.split(shards=shards)
        self.serve()
        self.bare = pair.root / "bare"
        self.bare.mkdir()
        for path in pair.target.iterdir():
            if path.suffix != ".safetensors":
                (self.bare / path.name).write_bytes(path.read_bytes())

    def serve(self) -> None:
        (self.pair.draft / "README.md").write_text("---\nbase_model: acme/Tiny\n---\n")
        self.hub.server.files = repository_of(self.pair.draft)
        self.clone = self.pair.root / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
        self.clone.mkdir(parents=True, exist_ok=True)
        for name, data in self.hub.server.files.items():
            (self.clone / name).write_bytes(data)

    @property
    def shards(self) -> list[str]:
        return [name for name in self.hub.server.files if name.endswith(".safetensors")]

    @property
    def heads(self) -> int:
        """Bytes of all headers, when they are asked for in two steps."""
        return sum(8 + int.from_bytes(self.hub.server.files[name][:8], "little") for name in self.shards)

    @property
    def row(self) -> int:
        """Bytes of a table's row."""
        table = self.tensors[TABLES[0]]
        return len(table.data) // table.shape[0]

    def size(self, *, tables: bool) -> int:
        return sum(len(tensor.data) for name, tensor in self.tensors.items() if (name in TABLES) == tables)

    def convert(self, *args: object, target: Path | None = None, model: object = REPO) -> Ended:
        self.hub.server.log.clear()
        return self._convert(model, "--target-model-dir", target or self.bare, "--force", *args)

    def same_as_local(self, *args: object, target: Path | None = None) -> Ended:
        assert self.convert(*args, "-o", "local.gguf", target=target, model=self.clone).code == 0
        ended = self.convert(*args, "-o", "hub.gguf", "--json", target=target)
        assert (ended.code, Path("hub.gguf").read_bytes()) == (0, Path("local.gguf").read_bytes())
        return ended

    @property
    def sent(self) -> int:
        return self.hub.server.sent(*self.shards)

    def told(self, ended: Ended, rule: str) -> list[dict[str, str]]:
        return [finding for finding in ended.document["findings"] if finding["rule"] == rule]


def set_row(tensors: Tensors, name: str, row: int) -> None:
    tensor = tensors[name]
    size = len(tensor.data) // tensor.shape[0]
    data = tensor.data[: row * size] + b"\x80\x3f" * (size // 2) + tensor.data[(row + 1) * size :]
    tensors[name] = tensor._replace(data=data)


@pytest.fixture(params=[1, 2, 40], ids=["one file", "two shards", "tables alone in shards"])
def stock(
    request: pytest.FixtureRequest, hub: HubPlace, pair: Pair, convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> Stock:
    monkeypatch.setattr("dspark_convert.source.hub_files.FIRST_BYTES", 8)  # so that every byte can be told
    return Stock(hub, pair, convert, min(request.param, len(read_tensors(pair.shard))))


def test_omitted_tables_are_not_fetched(stock: Stock) -> None:
    ended = stock.same_as_local()
    assert stock.size(tables=True) > 10_000
    assert 0 <= stock.sent - stock.heads - stock.size(tables=False) <= stock.size(tables=False) / 100
    (omitted,) = stock.told(ended, "shared-omitted")
    assert omitted["where"] == " and ".join(TABLES)
    held = {name for path in stock.hub.snapshot.glob("*.safetensors") for name in read_tensors(path)}
    assert held == set(stock.tensors) - set(TABLES)
    stock.same_as_local()
    assert stock.sent == 0


def test_the_dry_run_counts_without_them(stock: Stock) -> None:
    ended = stock.convert("--dry-run", "--json")
    assert stock.sent == stock.heads
    (told,) = stock.told(ended, "hub-fetch")
    assert f"{stock.size(tables=False):,} bytes to fetch for" in told["message"]
    local = stock.convert("--dry-run", "--json", model=stock.clone).document
    assert ended.document["plan"] == local["plan"]
    both = stock.size(tables=False) + stock.size(tables=True)
    (told,) = stock.told(stock.convert("--dry-run", "--json", *INCLUDE), "hub-fetch")
    assert f"{both:,} bytes to fetch for {len(stock.shards)} of {len(stock.shards)} shards" in told["message"]
    assert not list(stock.hub.snapshot.glob("*.safetensors"))


def test_included_tables_are_fetched_once(stock: Stock) -> None:
    stock.same_as_local()
    stock.same_as_local(*INCLUDE)
    assert stock.sent == stock.size(tables=True)
    stock.same_as_local()
    stock.same_as_local(*INCLUDE)
    assert stock.sent == 0


def test_all_at_once_and_then_without(stock: Stock) -> None:
    stock.same_as_local(*INCLUDE)
    assert 0 <= stock.sent - stock.heads - sum(len(t.data) for t in stock.tensors.values()) < 3000
    stock.same_as_local()
    assert stock.sent == 0


def test_rows_are_compared_with_a_target_at_hand(stock: Stock) -> None:
    stock.same_as_local()
    ended = stock.same_as_local(target=stock.pair.target)
    assert stock.sent == 129 * stock.row  # 64 of either table, and the mask token's embedding
    assert stock.told(ended, "shared-not-compared") == []
    stock.same_as_local(target=stock.pair.target)
    assert stock.sent == 0


@pytest.mark.parametrize(("name", "row"), [(TABLES[0], MASK), (TABLES[1], 511)])
def test_other_tables_are_told_before_anything_is_fetched(stock: Stock, name: str, row: int) -> None:
    for path in stock.pair.draft.glob("*.safetensors"):
        tensors = read_tensors(path)
        if name in tensors:
            set_row(tensors, name, row)
            write_tensors(path, tensors)
    stock.serve()
    ended = stock.convert("--json", target=stock.pair.target)
    assert (ended.code, ended.findings("error")) == (3, [("shared-differs", name)])
    assert stock.sent - stock.heads == 129 * stock.row
    assert not list(stock.hub.snapshot.glob("*.safetensors"))
    local = stock.convert("--json", target=stock.pair.target, model=stock.clone)
    assert local.findings("error") == ended.findings("error")
    assert stock.convert(*INCLUDE, "-o", "own.gguf", target=stock.pair.target).code == 0


def test_a_dry_run_says_that_it_does_not_compare(stock: Stock) -> None:
    ended = stock.convert("--dry-run", "--json", target=stock.pair.target)
    assert [finding["where"] for finding in stock.told(ended, "shared-not-compared")] == list(TABLES)
    assert stock.sent == stock.heads
    assert stock.told(stock.convert("--dry-run", "--json"), "shared-not-compared") == []


def test_without_a_network_they_are_not_compared(stock: Stock) -> None:
    assert stock.convert("-o", "hub.gguf").code == 0
    stock.hub.offline()
    ended = stock.convert("-o", "hub.gguf", "--json", target=stock.pair.target)
    assert (ended.code, ended.findings("error")) == (0, [])
    told = stock.told(ended, "shared-not-compared")
    assert [finding["where"] for finding in told] == list(TABLES)
    assert "the hub is set offline" in told[0]["message"]


def test_a_server_without_ranges_is_not_read_through_for_rows(stock: Stock) -> None:
    assert stock.convert("-o", "hub.gguf").code == 0
    whole = {
        name: [lambda _reply, data=data: Reply(200, {}, data)] * 200 for name, data in stock.hub.server.files.items()
    }
    stock.hub.server.bends = {name: whole[name] for name in stock.shards}
    ended = stock.convert("-o", "hub.gguf", "--json", target=stock.pair.target)
    assert ended.code == 0
    told = stock.told(ended, "shared-not-compared")
    assert [finding["where"] for finding in told] == list(TABLES)
    assert "does not send byte ranges" in told[0]["message"]
    asked = [asked.name for asked in stock.hub.server.log if asked.name in stock.shards]
    assert len(asked) == 4  # the first row of either table, before and after fetching


def test_rows_that_were_spoilt_are_fetched_anew(stock: Stock) -> None:
    stock.same_as_local(target=stock.pair.target)
    for path in (stock.hub.cache / "parts" / COMMIT).glob("*.rows"):
        kept = json.loads(path.read_text())
        path.write_text(json.dumps({name: {"x": "00", "0": "zz", "1": 5} for name in kept}))
    stock.same_as_local(target=stock.pair.target)
    assert stock.sent > 0
