"""No wrong conversion of any family can pass: every mutant is caught, and every good file passes.

All mutants are judged by their files; each kind of mistake also runs in llama.cpp, in the first family that has it.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from fixtures.target_gguf import write_target_gguf
from tests.families.proofs import MAKERS, convert
from tests.mutations.copies import Copy, Mutant
from tests.mutations.families import EITHER, FAMILIES, SAME_NUMBERS, TOLD
from tests.mutations.family_harmless import HARMLESS
from tests.mutations.family_layers import together
from tests.mutations.harness import REFUSED, Bench, Verdict, in_parallel
from tests.mutations.metadata import only
from tests.mutations.targets import nothing

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "once upon a time there was a little cat that sat on the mat"
#: tokens that leave a window of 12 behind, and for DFlash2 one of 24
PROMPT, LONG_PROMPT = f"{TEXT} and the boat", f"{TEXT} and {TEXT}"
AT_LEAST = 680
ROUNDED = ("bf16", "q8_0", "f16", "q4_0")

COMPUTED = {"drafting", "features", "parity", "confidence"}
#: before anything was computed
EARLY = {REFUSED, "draft", "pair", "load"}


def run_once() -> dict[str, set[str]]:
    """The mutants of each family that no family before it has."""
    seen: set[str] = set()
    fresh: dict[str, set[str]] = {}
    for family, mutants in FAMILIES.items():
        names = {mutant.name for mutant in mutants}
        fresh[family] = names - seen
        seen |= names
    return fresh


RUN = run_once()


def bench_of(family: str, root: Path, outtype: str = "f32") -> Bench:
    pair = MAKERS[family](root)
    good, target = root / "dspark-good.gguf", root / "target.gguf"
    convert(pair, good, outtype=outtype)
    write_target_gguf(pair.target_dir, target)
    prompt = LONG_PROMPT if family.startswith("dflash2") else PROMPT
    return Bench(root, pair.draft_dir, pair.target_dir, {"omit": good}, {"right": target}, [prompt], max_tokens=6)


def problems(verdict: Verdict, family: str) -> set[str]:
    """What is told of a mutant and not of a good file; of a random pair nothing is accepted but by chance."""
    return (set(verdict.inspect) - TOLD.get(family, set())) | (set(verdict.failed) - {"acceptance"})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mutant_is_caught(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench, mutants = bench_of(family, tmp_path), FAMILIES[family]
    good = bench.judge("good", bench.good["omit"])
    assert not problems(good, family), good.line(0)
    assert set(good.inspect) == TOLD.get(family, set())
    verdicts = bench.judge_all(mutants, run=RUN[family])
    assert len({verdict.name for verdict in verdicts}) == len(verdicts), "two mutants have one name"
    caught = [verdict for verdict in verdicts if problems(verdict, family)]
    ran = [verdict for verdict in verdicts if verdict.name in RUN[family] and not EARLY & set(verdict.failed)]
    seen = [verdict for verdict in ran if COMPUTED & set(verdict.failed)]
    score = f"{len(caught)} of {len(verdicts)} mutants caught, {len(seen)} of {len(ran)} that ran by what is computed"
    with capsys.disabled():
        print(f"\n{family}: {score}")
    assert {v.name for v in verdicts} - {v.name for v in caught} == EITHER.get(family, set())
    unseen = {verdict.name for verdict in ran} - {verdict.name for verdict in seen}
    assert unseen == (set(SAME_NUMBERS) | EITHER.get(family, set())) & {verdict.name for verdict in ran}


@pytest.mark.parametrize("family", ["speculators_dspark_bonus", "gemma4", "dflash2"])
def test_mutants_of_rounded_files_are_caught_by_the_files(family: str, tmp_path: Path) -> None:
    """The coarsest type's own noise hides none; the good file rounded like that passes."""
    bench = bench_of(family, tmp_path)

    def rounded(mutant: Mutant) -> Mutant:
        return mutant._replace(change=together(only("general.file_type", 2), mutant.change))

    mutants = [rounded(mutant) for mutant in (Mutant("good", nothing), *FAMILIES[family])]
    verdicts = bench.judge_all(mutants, "Q4_0", run=())
    assert [verdict.name for verdict in verdicts if not problems(verdict, family)] == ["good"]


@pytest.mark.parametrize("family", HARMLESS)
def test_harmless_changes_compute_the_same_and_pass(family: str, tmp_path: Path) -> None:
    bench = bench_of(family, tmp_path)
    good = bench.record(bench.good["omit"])

    def same(item: tuple[Mutant, Copy]) -> tuple[str, bool, set[str]]:
        mutant, copy = item
        path = copy.write(tmp_path / f"dspark-{mutant.name}.gguf")
        pairs = zip(good, bench.record(path), strict=True)
        equal = all(np.array_equal(array, vars(b)[name]) for a, b in pairs for name, array in vars(a).items())
        return mutant.name, equal, problems(bench.judge(mutant.name, path), family)

    found = in_parallel(same, bench.copies(HARMLESS[family]))
    assert found == [(mutant.name, True, set()) for mutant in HARMLESS[family]]


@pytest.mark.parametrize(("family", "outtype"), list(zip(FAMILIES, cycle(ROUNDED), strict=False)))
def test_good_files_of_other_types_pass(family: str, outtype: str, tmp_path: Path) -> None:
    bench = bench_of(family, tmp_path, outtype)
    verdict = bench.judge("good", bench.good["omit"])
    assert not problems(verdict, family), verdict.line(0)


@pytest.mark.parametrize("outtype", ROUNDED)
def test_rounding_moves_a_selector_s_scores_alike(outtype: str, tmp_path: Path) -> None:
    bench = bench_of("dflash2", tmp_path, outtype)
    verdict = bench.judge("good", bench.good["omit"])
    assert not problems(verdict, "dflash2"), verdict.line(0)


def test_there_are_as_many_as_told() -> None:
    assert sum(map(len, FAMILIES.values())) >= AT_LEAST
