"""huggingface_hub pointed at a server on loopback and at empty caches; no wait takes time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.source.hub import Needed, Survey, survey_at
from dspark_convert.source.hub_id import HubId
from dspark_convert.source.hub_repo import resolve
from tests.checkpoints import Tensor, header_of
from tests.hub_server import HubServer

REPO = "acme/Tiny-DSpark"


@dataclass
class Told:
    """A sink that keeps what it is told: notes, and totals and sum of the progress."""

    notes: list[str] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    done: int = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    @contextmanager
    def progress(self, _label: str, total: int) -> Iterator[Callable[[int], None]]:
        self.totals.append(total)
        yield self._advance

    def _advance(self, count: int) -> None:
        self.done += count


@dataclass
class HubPlace:
    """``server`` and what a client of it sees; ``waits``: seconds that were not waited; ``ours``: what
    a test looks for in the server's files."""

    server: HubServer
    home: Path
    waits: list[float]
    monkeypatch: pytest.MonkeyPatch
    ours: dict[str, Tensor] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.home / "dspark-convert" / f"models--{self.server.repo.replace('/', '--')}"

    @property
    def snapshot(self) -> Path:
        return self.cache / "snapshots" / self.server.commit

    def offline(self) -> None:
        self.monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def endpoint(self, url: str) -> None:
        """Every way in which huggingface_hub remembers HF_ENDPOINT since it was imported."""
        self.monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        self.monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


@contextmanager
def hub_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubPlace]:
    from huggingface_hub.utils import close_session

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, path in (("HF_HOME", home), ("HF_HUB_CACHE", home / "hub"), ("HF_TOKEN_PATH", home / "token")):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", str(path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    waits: list[float] = []
    monkeypatch.setattr("dspark_convert.source.hub_http.pause", lambda seconds, _stop: waits.append(seconds))
    close_session()
    with HubServer(REPO, {}) as server:
        place = HubPlace(server, home, waits, monkeypatch)
        place.endpoint(server.url)
        yield place
        close_session()


def repository_of(root: Path) -> dict[str, bytes]:
    """The files of a directory, as a repository has them."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@cache
def noise(seed: int, count: int) -> Tensor:
    return Tensor("U8", (count,), random.Random(seed).randbytes(count))


def shard_of(tensors: Mapping[str, Tensor]) -> bytes:
    header = header_of({name: (t.dtype, t.shape, len(t.data)) for name, t in tensors.items()})
    return header + b"".join(t.data for t in tensors.values())


def inside_a_target(size: int = 1 << 20) -> tuple[dict[str, Tensor], dict[str, bytes]]:
    """A checkpoint like DeepSeek-V4's: ``mtp.*`` in the last two of four shards, with others in the third.

    Gives the ``mtp.*`` tensors, of 4 x ``size`` bytes and a little, and the repository's files.
    """
    import json

    other = {f"layers.{i}.w": noise(i, size) for i in range(5)}
    ours = {f"mtp.{i}.w": noise(10 + i, size) for i in range(4)} | {"mtp.0.norm": noise(20, 31)}
    parts = [
        {name: other[name] for name in ("layers.0.w", "layers.1.w")},
        {name: other[name] for name in ("layers.2.w", "layers.3.w")},
        {"mtp.0.norm": ours["mtp.0.norm"], "layers.4.w": other["layers.4.w"], "mtp.0.w": ours["mtp.0.w"]},
        {name: ours[name] for name in ("mtp.1.w", "mtp.2.w", "mtp.3.w")},
    ]
    files = {f"model-{i + 1:05d}-of-00004.safetensors": shard_of(part) for i, part in enumerate(parts)}
    weight_map = {name: file for file, part in zip(files, parts, strict=True) for name in part}
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    files["config.json"] = b'{"architectures": ["Some"]}'
    files["README.md"] = b"---\nbase_model: acme/Base\n---\n"
    return ours, files


def only_mtp(_config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("mtp.")]


def survey(hub_id: HubId, needed: Needed, told: Told) -> Survey:
    """Of the commit that ``hub_id`` stands for."""
    return survey_at(resolve(hub_id, told.note), needed, told)
