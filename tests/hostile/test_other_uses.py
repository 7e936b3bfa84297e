"""Bent files where the other commands read them: ported, compared, and as the target of a draft."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_convert.diff.compare import compare
from dspark_convert.errors import DsparkError
from dspark_convert.inspection import inspect_file
from dspark_convert.pairing import pair_file
from dspark_convert.port.planning import plan_for_gguf
from dspark_convert.target import open_target_gguf
from tests.hostile.fuzz import Fuzz
from tests.hostile.raw import Raw
from tests.hostile.samples import sample
from tests.target_file import TargetFile, fitting_draft

CASES = 400


def port(bent: Path, _good: Path) -> None:
    plan_for_gguf(bent)


def diff(bent: Path, good: Path) -> None:
    compare(bent, good).to_json()
    compare(good, bent).to_json()


def port_with(bent: Path, good: Path) -> None:
    plan_for_gguf(good, open_target_gguf(bent))


def pair(bent: Path, good: Path) -> None:
    _, fit = pair_file(inspect_file(good), open_target_gguf(bent))
    assert fit is not None
    fit.to_json()


@pytest.mark.parametrize(("use", "of_target"), [(port, False), (diff, False), (port_with, True), (pair, True)])
def test_an_answer_always_comes(tmp_path: Path, use: Callable[[Path, Path], None], of_target: bool) -> None:
    (tmp_path / "bent").mkdir()
    good = tmp_path / "dspark-good.gguf"
    good.write_bytes(Raw(fitting_draft()).encode())
    fuzz = Fuzz(0, tmp_path / "bent", None, None)
    if of_target:
        fuzz.samples, fuzz.weights = [(sample("target", Raw(TargetFile())),)], [1]
    ended: Counter[str] = Counter()
    for number in range(CASES):
        first, *_ = fuzz.make(random.Random(number))
        try:
            use(tmp_path / "bent" / first, good)
            ended["done"] += 1
        except DsparkError:
            ended["refused"] += 1
    assert all(ended[kind] > CASES / 20 for kind in ("done", "refused")), ended
