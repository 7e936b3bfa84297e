"""The longest block that llama.cpp's graph holds: as counted, it drafts, and one token longer ends the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_convert.block_limit import FLASH, PLAIN, longest_block
from dspark_convert.findings import Finding
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from dspark_convert.plan import plan_for_directory
from fixtures.tiny import make_tiny_pair
from tests.draft_file import BOOL, U32, DraftFile
from tests.family_file import FAMILIES, put, reduce
from tests.gguf_bytes import ARRAY
from tests.lint.breaking import both, drop
from tests.lint.llama_child import FLASH as WITH_FLASH
from tests.lint.test_in_llama_cpp import run
from tests.lint.test_in_llama_cpp import target as target

pytestmark = pytest.mark.usefixtures("one_thread")


def unsure(file: DraftFile) -> None:
    put(file, has_confidence_head=(BOOL, False))
    drop("conf_proj.weight", "conf_proj.bias")(file)


def late(file: DraftFile) -> None:
    put(file, sample_from_anchor=(BOOL, False))


def with_layers(family: str, count: int, *changes: Callable[[DraftFile], None]) -> DraftFile:
    """The family's good file with ``count`` layers, all like its first."""
    file = FAMILIES[family]()
    first = {name: entry for name, entry in file.tensors.items() if name.startswith("blk.0.")}
    data = {name: entry for name, entry in file.data.items() if name.startswith("blk.0.")}
    for layer in range(count):
        file.tensors |= {name.replace(".0.", f".{layer}.", 1): entry for name, entry in first.items()}
        file.data |= {name.replace(".0.", f".{layer}.", 1): entry for name, entry in data.items()}
    put(file, block_count=(U32, count))
    if "dflash.attention.sliding_window_pattern" in file.kv:
        put(file, attention__sliding_window_pattern=(ARRAY, [True] * count, BOOL))
    for change in changes:
        change(file)
    return file


Case = tuple[DraftFile, int, int]

#: file, the longest block as tried out in llama.cpp b11549 without flash attention and with it (bisection, CPU)
CASES: dict[str, Case] = {
    "2 layers": (with_layers("dspark", 2), 69, 70),
    "3 layers": (with_layers("dspark", 3), 65, 66),
    "5 layers": (with_layers("dspark", 5), 57, 59),
    "12 layers": (with_layers("dspark", 12), 47, 51),
    "16 layers": (with_layers("dspark", 16), 62, 68),
    "no bias": (with_layers("dspark", 3, drop("conf_proj.bias")), 70, 72),
    "no confidences": (with_layers("dspark", 3, unsure), 142, 144),
    "reduced": (with_layers("dspark", 3, reduce), 44, 45),
    "12 layers, reduced": (with_layers("dspark", 12, reduce), 32, 36),
    "bonus anchor": (with_layers("dspark", 3, late), 65, 66),
    "bonus anchor, no confidences": (with_layers("dspark", 3, late, unsure), 142, 145),
    "window, bonus, reduced": (with_layers("speculators-dspark", 3), 44, 45),
    "NVFP4": (with_layers("nemotron", 5), 114, 118),
    "Gemma4": (with_layers("gemma4", 3), 63, 64),
}
#: those that are run
RUN = ("2 layers", "5 layers", "12 layers", "no bias", "no confidences", "window, bonus, reduced", "NVFP4", "Gemma4")


def with_block(file: DraftFile, size: int, path: Path) -> Path:
    both("block_size", (U32, size))(file)
    return file.write(path)


def judged(path: Path) -> tuple[Finding, ...]:
    with open_gguf(path) as gguf:
        return tuple(finding for finding in lint(gguf, read_draft(gguf)) if finding.rule == "block-graph")


@pytest.mark.parametrize("case", CASES)
def test_the_longest_block_is_as_tried(tmp_path: Path, case: str) -> None:
    file, plain, flash = CASES[case]
    with open_gguf(with_block(file, 8, tmp_path / "x.gguf")) as gguf:
        draft = read_draft(gguf).draft
        assert draft is not None
        counted = [longest_block(draft, set(file.tensors), operations) for operations in (PLAIN, FLASH)]
    assert counted == [plain, flash]


@pytest.mark.parametrize("case", CASES)
def test_longer_blocks_are_told(tmp_path: Path, case: str) -> None:
    file, plain, flash = CASES[case]
    found = {size: judged(with_block(file, size, tmp_path / "x.gguf")) for size in (plain, plain + 1, flash, flash + 1)}
    assert [len(findings) for findings in found.values()] == [0, *[1] * (len(found) - 1)]
    assert [found[size][0].severity for size in sorted(found)[1:]] == [*["warning"] * (len(found) - 2), "error"]
    assert f"block_size to {flash} " in str(found[flash + 1][0].fix)


@pytest.mark.parametrize("flash", [False, True])
def test_the_longest_blocks_draft(tmp_path: Path, target: Path, flash: bool) -> None:
    cases = [CASES[name] for name in RUN]
    paths = [
        with_block(file, fast if flash else plain, tmp_path / f"{at}.gguf")
        for at, (file, plain, fast) in enumerate(cases)
    ]
    code, said = run(target, *paths, *[WITH_FLASH] * flash)
    assert (code, [line.split()[0] for line in said]) == (0, ["loaded", "drafted"] * len(RUN))


@pytest.mark.parametrize("case", RUN)
def test_one_token_more_ends_the_process(tmp_path: Path, target: Path, case: str) -> None:
    file, plain, fast = CASES[case]
    for flash in (False, True) if case == "2 layers" else (True,):
        path = with_block(file, (fast if flash else plain) + 1, tmp_path / "x.gguf")
        code, said = run(target, path, *[WITH_FLASH] * flash)
        assert (code < 0, said) == (True, ["loaded"])


def test_a_plan_says_so_before_anything_is_written(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path, block_size=96)
    found = [finding for finding in plan_for_directory(pair.draft_dir).findings if finding.rule == "block-graph"]
    assert [finding.severity for finding in found] == ["error"]


@pytest.mark.parametrize("family", ["dflash", "dflash2"])
def test_without_a_markov_head_blocks_may_be_long(tmp_path: Path, target: Path, family: str) -> None:
    file = FAMILIES[family]()
    put(file, sample_from_anchor=(BOOL, False))
    path = with_block(file, 240, tmp_path / "x.gguf")
    assert judged(path) == ()
    code, said = run(target, path)
    assert (code, [line.split()[0] for line in said]) == (0, ["loaded", "drafted"])
