"""Pairs made once, the tiny one copied for each test, and the command run inside this process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.checkpoints import Pair, copy_pair

if TYPE_CHECKING:
    from tests.hub_place import HubPlace
    from tests.runtime.pairs import PairFiles

# No test asks a real hub for anything; the fixture ``hub`` has one of its own.
os.environ["HF_HUB_OFFLINE"] = "1"


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    def findings(self, severity: str) -> list[tuple[str, str]]:
        """(rule, where) of the findings in the document."""
        return [(f["rule"], f["where"]) for f in self.document["findings"] if f["severity"] == severity]

    @property
    def told(self) -> str:
        """Everything that was said about what is wrong."""
        document = self.document
        said = [f["message"] + " " + f["fix"] for f in document["findings"]]
        return "\n".join([document.get("error", {}).get("message", ""), *said])


Convert = Callable[..., Ended]


@pytest.fixture(scope="session")
def tiny_master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fixtures.target_gguf import write_target_gguf
    from fixtures.tiny import make_tiny_pair

    root = tmp_path_factory.mktemp("tiny")
    pair = make_tiny_pair(root)
    write_target_gguf(pair.target_dir, root / "target.gguf")
    return root


@pytest.fixture
def pair(tiny_master: Path, tmp_path: Path) -> Pair:
    return copy_pair(tiny_master, tmp_path / "pair")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubPlace]:
    """A hub on loopback, and nothing in the caches yet."""
    from tests.hub_place import hub_place

    with hub_place(tmp_path / "hf", monkeypatch) as place:
        yield place


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    """A pair that runs; its draft knows nothing of its target."""
    from tests.runtime.pairs import make_random_pair

    return make_random_pair(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def bigram_pair(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    """A pair whose draft foresees everything."""
    from tests.runtime.pairs import make_bigram_pair

    return make_bigram_pair(tmp_path_factory.mktemp("bigram"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other, and for children beside them, cost small models more than they gain."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Convert]:
    """``dspark-convert ARGS`` as the console script runs it, in an empty working directory."""
    from dspark_convert.cli.convert import convert as command

    yield from _in_process(command, "dspark-convert", tmp_path, monkeypatch, capsys)


@pytest.fixture
def inspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Convert]:
    """``dspark-inspect ARGS``, likewise."""
    from dspark_convert.cli.inspect import inspect as command

    yield from _in_process(command, "dspark-inspect", tmp_path, monkeypatch, capsys)


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Convert]:
    """``dspark-validate ARGS``, likewise; llama.cpp runs in its child process."""
    from dspark_convert.cli.validate import validate_command as command

    yield from _in_process(command, "dspark-validate", tmp_path, monkeypatch, capsys)


def _in_process(
    command: Callable[..., int],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Convert]:
    from dspark_convert.cli.runner import run

    (tmp_path / "cwd").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "cwd")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def call(*args: str | Path) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            run(command, name, [str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, out, err)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)
