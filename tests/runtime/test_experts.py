"""The experts that llama.cpp takes are read as they lie in its memory, and reading them changes nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.runtime.experts import ExpertWatch
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.precheck import precheck
from tests.runtime.pairs import PairFiles
from tests.runtime.stage_pairs import make_stage_pair

SCRIPT = str(Path(__file__).with_name("watch_job.py"))


class Graph:
    """ggml's functions over nodes 1, 2, …: a name and rows of int32, ``step`` words from one to the next."""

    def __init__(self, nodes: Sequence[tuple[bytes | None, Sequence[Sequence[int]], int]]) -> None:
        self.nodes = dict(enumerate(nodes, 1))
        self.reads = 0

    def ggml_get_name(self, node: int) -> bytes | None:
        return self.nodes[node][0]

    def ggml_nelements(self, node: int) -> int:
        return sum(map(len, self.nodes[node][1]))

    def ggml_nbytes(self, node: int) -> int:
        _, rows, step = self.nodes[node]
        return 4 * ((len(rows) - 1) * step + len(rows[-1]))

    def ggml_backend_tensor_get(self, node: int, address: int, offset: int, size: int) -> None:
        assert (offset, size) == (0, self.ggml_nbytes(node))
        _, rows, step = self.nodes[node]
        data = np.full(len(rows) * step, 99, np.int32)
        for index, row in enumerate(rows):
            data[index * step : index * step + len(row)] = row
        ctypes.memmove(address, data.ctypes.data, size)
        self.reads += 1


def run(graph: Any, watch: ExpertWatch) -> None:
    """As ggml's scheduler asks and shows."""
    for node in graph.nodes:
        if watch.callback(node, True, None):
            assert watch.callback(node, False, None), "the computation would stop here"


def watched(graph: Graph, n_tokens: int) -> Any:
    library: Any = graph
    watch = ExpertWatch(library)
    watch.begin(n_tokens)
    run(graph, watch)
    return watch.end()


ROWS = [[7, 2, 4], [0, 6, 5]]


@pytest.mark.parametrize("step", [3, 8])
def test_rows_are_read_by_their_distance(step: int) -> None:
    graph = Graph([(b"ffn_moe_topk-1", ROWS[::-1], step), (b"norm-0", ROWS, 3), (b"ffn_moe_topk-0", ROWS, step)])
    assert watched(graph, 2).tolist() == [ROWS, ROWS[::-1]]
    assert graph.reads == 2


def test_one_token() -> None:
    assert watched(Graph([(b"ffn_moe_topk-0", [[5, 1]], 8)]), 1).tolist() == [[[5, 1]]]


def test_nodes_without_a_name_or_of_another_one_are_not_wanted() -> None:
    graph = Graph([(None, ROWS, 3), (b"ffn_moe_topk", ROWS, 3), (b"ffn_moe_topk-0 (copy)", ROWS, 3)])
    assert watched(graph, 2) is None
    assert graph.reads == 0


@pytest.mark.parametrize("n_tokens", [3, 4, 5, 7])
def test_another_number_of_tokens_is_not_guessed_at(n_tokens: int) -> None:
    assert watched(Graph([(b"ffn_moe_topk-0", ROWS, 8)]), n_tokens) is None


def test_layers_that_differ_make_no_sense() -> None:
    assert watched(Graph([(b"ffn_moe_topk-0", ROWS, 8), (b"ffn_moe_topk-1", [[1], [2]], 8)]), 2) is None


def test_nothing_is_wanted_of_other_batches() -> None:
    graph: Any = Graph([(b"ffn_moe_topk-0", ROWS, 8)])
    watch = ExpertWatch(graph)
    run(graph, watch)
    watch.begin(2)
    run(graph, watch)
    assert watch.end() is not None
    run(graph, watch)
    assert graph.reads == 1
    watch.begin(2)
    assert watch.end() is None


def look(target: Path, draft: Path) -> Any:
    _, shape = precheck(draft, target)
    assert shape is not None
    paths = {"library": str(find_library().path), "target": str(target), "draft": str(draft)}
    outcome = run_job(paths | {"shape": asdict(shape)}, timeout=60, arguments=(SCRIPT,))
    assert outcome.result is not None, (outcome.fault, outcome.log[-5:])
    return outcome.result


def test_looking_changes_no_bit(tmp_path: Path) -> None:
    pair = make_stage_pair(tmp_path)
    found = look(pair.target, pair.draft)
    for plain, idle, seen in zip(found["plain"], found["idle"], found["seen"], strict=True):
        assert plain["logits"] == idle["logits"] == seen["logits"]
        assert plain["confidences"] == idle["confidences"] == seen["confidences"]
        assert plain["experts"] is None
        assert idle["experts"] is None
        experts = np.array(seen["experts"])
        assert experts.shape == (3, 5, 3)  # stages, slots, used
        assert experts.min() >= 0
        assert experts.max() < 8
        assert np.diff(np.sort(experts)).all()


def test_a_draft_without_experts_shows_none(random_pair: PairFiles) -> None:
    found = look(random_pair.target, random_pair.draft)
    assert [block["experts"] for block in found["seen"]] == [None] * 3
    assert [block["logits"] for block in found["seen"]] == [block["logits"] for block in found["plain"]]
