"""No wrong conversion of a DeepSeek-V4 draft can pass: every mutant is caught, and every good file passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFValueType as Type

from dspark_convert.convert import Request, prepare, write
from dspark_convert.options import Experts, Options, Outtype
from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from tests.mutations.copies import Copy, Mutant
from tests.mutations.harmless import reversed_order
from tests.mutations.harness import REFUSED, Bench, Verdict, in_parallel, table
from tests.mutations.metadata import add, without
from tests.mutations.stage_metadata import stage_metadata
from tests.mutations.stage_packing import stage_packing
from tests.mutations.stage_weights import stage_weights

pytestmark = pytest.mark.usefixtures("one_thread")

#: 16 target positions, of which the window of 8 holds half
PROMPT = "once upon a time there was a little cat that sat on the mat"
COMPUTED = {"features", "parity", "confidence"}


def convert(directory: Path, path: Path, outtype: Outtype, experts: Experts) -> Path:
    request = Request(directory, None, directory.parent / "target.gguf", path, Options(outtype, experts))
    write(prepare(request), request)
    return path


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("stages")
    directory = make_deepseek4(root / "v4")
    write_deepseek4_gguf(directory, root / "target.gguf")
    good = {
        "omit": convert(directory, root / "dspark-f32.gguf", "f32", "f32"),
        "published": convert(directory, root / "dspark-auto.gguf", "auto", "keep"),
    }
    return Bench(root, directory, None, good, {"right": root / "target.gguf"}, [PROMPT], max_tokens=6)


@pytest.fixture(scope="module")
def verdicts(bench: Bench) -> dict[str, Verdict]:
    mutants = [*stage_weights(), *stage_packing(), *stage_metadata()]
    found = {verdict.name: verdict for verdict in bench.judge_all(mutants)}
    assert len(found) == len(mutants), "two mutants have one name"
    return found


def caught(verdict: Verdict) -> bool:
    """The pair is random: what is accepted is so by chance."""
    return bool(verdict.inspect or set(verdict.failed) - {"acceptance"})


def computed(verdict: Verdict) -> bool:
    return bool(COMPUTED & set(verdict.failed))


def refused(verdict: Verdict) -> bool:
    """Before anything was computed."""
    return bool({REFUSED, "draft", "pair", "load"} & set(verdict.failed))


def test_every_mutant_is_caught(verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{table(list(verdicts.values()))}")
    assert [name for name, verdict in verdicts.items() if not caught(verdict)] == []


def test_wrong_weights_are_seen_in_what_is_computed(verdicts: dict[str, Verdict]) -> None:
    """All of them, beside the comparison of values, which sees them all too."""
    runnable = [verdicts[mutant.name] for mutant in [*stage_weights(), *stage_packing()]]
    runnable = [verdict for verdict in runnable if not refused(verdict)]
    assert [verdict.name for verdict in runnable if not computed(verdict)] == []
    assert [verdict.name for verdict in runnable if "values" not in verdict.failed] == []


HARMLESS = [
    # What only compressed layers read: a converter may copy it from the target.
    Mutant("YaRN of the target", add(
        rope__scaling__type=(Type.STRING, "yarn"), rope__scaling__factor=(Type.FLOAT32, 4.0),
        rope__scaling__original_context_length=(Type.UINT32, 256), rope__scaling__yarn_beta_fast=(Type.FLOAT32, 32.0))),
    Mutant("base of compressed layers", add(attention__compress_rope_freq_base=(Type.FLOAT32, 160000.0))),
    Mutant("indexer", add(attention__indexer__key_length=(Type.UINT32, 128), hash_layer_count=(Type.UINT32, 0))),
    Mutant("no compress ratios", without("dflash.attention.compress_ratios")),
    Mutant("tensors in another order", reversed_order),
]  # fmt: skip


def test_harmless_changes_compute_the_same_and_pass(bench: Bench) -> None:
    good = bench.record(bench.good["omit"])

    def same(item: tuple[Mutant, Copy]) -> tuple[str, bool, str]:
        mutant, copy = item
        path = copy.write(bench.root / f"dspark-{mutant.name}.gguf")
        pairs = zip(good, bench.record(path), strict=True)
        equal = all(np.array_equal(array, vars(b)[name]) for a, b in pairs for name, array in vars(a).items())
        verdict = bench.judge(mutant.name, path)
        return mutant.name, equal, verdict.line(0) if caught(verdict) else ""

    assert in_parallel(same, bench.copies(HARMLESS)) == [(mutant.name, True, "") for mutant in HARMLESS]


TYPES: list[tuple[Outtype, Experts]] = [
    ("auto", "keep"), ("bf16", "keep"), ("f16", "keep"), ("q8_0", "keep"), ("f32", "keep"),
    ("f32", "f32"), ("f16", "f16"), ("auto", "bf16"), ("auto", "q8_0"), ("auto", "q4_0"),
]  # fmt: skip


@pytest.mark.parametrize(("outtype", "experts"), TYPES)
def test_good_files_pass(bench: Bench, outtype: Outtype, experts: Experts) -> None:
    path = convert(bench.reference, bench.root / f"dspark-{outtype}-{experts}.gguf", outtype, experts)
    verdict = bench.judge("good", path)
    assert not caught(verdict), verdict.line(0)
