"""Values side by side: the figures against numpy, and what counts as rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.diff.pairs import deep, encoded, held, judged, put, value, write_pair
from tests.draft_file import HIDDEN, RANK, VOCAB, DraftFile
from tests.stage_file import SMALL, StageFile

NAME = "blk.1.ffn_up.weight"
W1 = "markov_w1.weight"
EXPERTS = "blk.1.ffn_up_exps.weight"


def weights(seed: int = 5, rows: int = 96, columns: int = HIDDEN) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def rounded_pair(root: Path, kinds: tuple[str, str], change=lambda values: values) -> tuple[Path, Path]:
    """One matrix of 96 x 64 in two types, the second after ``change``."""
    paths = []
    for name, kind, values in (("a", kinds[0], weights()), ("b", kinds[1], change(weights()))):
        file = DraftFile()
        put(file, NAME, values, kind)
        paths.append(file.write(root / f"{name}.gguf"))
    return paths[0], paths[1]


def test_equal_files_are_identical_byte_for_byte(tmp_path: Path) -> None:
    diff = deep(*write_pair(tmp_path, lambda _file: None))
    assert diff.is_same
    assert judged(diff) == {}
    assert value(diff, NAME).to_json() == {
        "name": NAME,
        "types": ["F32", "F32"],
        "judgement": "identical",
        "max_abs": 0.0,
        "rms": 0.0,
        "relative": 0.0,
        "cosine": 1.0,
        "expected": 0.0,
        "note": "",
    }


def test_one_weight_changed_by_a_known_amount(tmp_path: Path) -> None:
    was: list[np.ndarray] = []

    def change(file: DraftFile) -> None:
        values = held(file, NAME)
        was.append(values.copy())
        values[7, 3] += 0.25
        put(file, NAME, values)

    diff = deep(*write_pair(tmp_path, change))
    assert judged(diff) == {NAME: "different"}
    assert not diff.is_same
    found = value(diff, NAME)
    moved = abs(float(np.float32(was[0][7, 3] + np.float32(0.25)) - was[0][7, 3]))
    size = float(np.sqrt(np.mean(was[0].astype(np.float64) ** 2)))
    assert found.max_abs == moved
    assert found.rms == pytest.approx(moved / np.sqrt(was[0].size), rel=1e-12)
    assert found.relative == pytest.approx(moved / np.sqrt(was[0].size) / size, rel=1e-12)
    assert found.note == "1 of 6,144 numbers is different, the largest difference at row 7, column 3"


def test_the_figures_are_numpys(tmp_path: Path) -> None:
    """Over more numbers than are taken at once, so that blocks are added up."""
    shape = (1500, 96)
    a, b = weights(1, *shape), weights(2, *shape)
    b += 3 * a

    def change(file: DraftFile) -> None:
        put(file, "output.weight", b)

    def make() -> DraftFile:
        file = DraftFile()
        put(file, "output.weight", a)
        return file

    first, second = make(), make()
    change(second)
    found = value(deep(first.write(tmp_path / "a.gguf"), second.write(tmp_path / "b.gguf")), "output.weight")
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert found.max_abs == np.abs(x - y).max()
    assert found.rms == pytest.approx(np.sqrt(np.mean((x - y) ** 2)), rel=1e-12)
    assert found.relative == pytest.approx(np.linalg.norm(x - y) / np.linalg.norm(x), rel=1e-12)
    cosine = float((x * y).sum() / np.linalg.norm(x) / np.linalg.norm(y))
    assert found.cosine == pytest.approx(cosine, rel=1e-12)
    row, column = np.unravel_index(np.abs(x - y).argmax(), shape)
    assert found.note.endswith(f"the largest difference at row {row}, column {column}")


@pytest.mark.parametrize(
    ("kinds", "judgement"),
    [
        (("F32", "F16"), "rounding"),
        (("F32", "BF16"), "rounding"),
        (("F16", "BF16"), "rounding"),
        (("BF16", "Q8_0"), "rounding"),
        (("Q8_0", "F16"), "rounding"),
        (("F32", "Q4_0"), "rounding"),
        (("Q8_0", "Q4_0"), "rounding"),
        (("Q4_0", "MXFP4"), "rounding"),
    ],
)
def test_roundings_of_the_same_numbers(tmp_path: Path, kinds: tuple[str, str], judgement: str) -> None:
    diff = deep(*rounded_pair(tmp_path, kinds))
    assert value(diff, NAME).judgement == judgement
    assert diff.is_same  # with the values compared the types do not count


def test_numbers_that_a_narrower_type_holds_are_equal(tmp_path: Path) -> None:
    exact = lambda values: np.round(values * 8) / 8  # noqa: E731
    paths = []
    for name, kind in (("a", "F32"), ("b", "BF16")):
        file = DraftFile()
        put(file, NAME, exact(weights()).astype(np.float32), kind)
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    assert value(deep(paths[0], paths[1]), NAME).judgement == "equal"


def one_weight(values: np.ndarray) -> np.ndarray:
    """One number a hundredth of the largest of its block further away: nothing of 6,144 as a whole."""
    changed = values.copy()
    changed[40, 10] += 0.04 * np.abs(values[40, :32]).max()
    return changed


def wrong_row(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed[40] = -values[40]
    return changed


@pytest.mark.parametrize("kinds", [("F32", "F16"), ("F32", "BF16"), ("BF16", "F16"), ("F32", "Q8_0"), ("Q8_0", "BF16")])
@pytest.mark.parametrize("change", [one_weight, wrong_row, lambda values: values * np.float32(1.05)])
def test_what_rounding_is_not_where_each_number_has_a_bound(tmp_path: Path, kinds: tuple[str, str], change) -> None:
    diff = deep(*rounded_pair(tmp_path, kinds, change))
    found = value(diff, NAME)
    assert found.judgement == "different"
    assert "beyond rounding" in found.note
    assert found.relative is not None and found.expected is not None
    if change is one_weight and "F16" not in kinds:
        assert found.relative < found.expected  # the whole does not show it


@pytest.mark.parametrize("kind", ["Q4_0", "MXFP4"])
@pytest.mark.parametrize(
    ("change", "note"),
    [
        (wrong_row, "row 40 is 2 of its size away"),
        (lambda values: values * np.float32(1.2), "B is A times 1."),
        (lambda values: values[::-1].copy(), "further apart than rounding explains"),
    ],
)
def test_what_rounding_is_not_where_a_quantiser_chooses(tmp_path: Path, kind: str, change, note: str) -> None:
    found = value(deep(*rounded_pair(tmp_path, ("F32", kind), change)), NAME)
    assert found.judgement == "different"
    assert found.note.startswith(note)


def test_two_files_of_one_exact_type_have_to_be_equal(tmp_path: Path) -> None:
    """A number of Q8_0 a step further: rounding to Q8_0 explains it from F32, not from Q8_0."""
    file = DraftFile()
    put(file, NAME, weights(), "Q8_0")
    first = file.write(tmp_path / "a.gguf")
    data = bytearray(file.data[NAME])
    data[2] = (data[2] + 1) % 256
    file.data[NAME] = bytes(data)
    found = value(deep(first, file.write(tmp_path / "b.gguf")), NAME)
    assert found.judgement == "different"
    assert found.expected == 0
    assert found.note == "1 of 6,144 numbers is different, the largest difference at row 0, column 0"


def test_two_quantisers_of_one_type_may_choose_otherwise(tmp_path: Path) -> None:
    """The same numbers with another scale, as an importance matrix would have it."""
    paths = []
    for name, factor in (("a", 1.0), ("b", 0.97)):
        file = DraftFile()
        scaled = (weights() * np.float32(factor)).astype(np.float32)
        blocks = np.frombuffer(encoded(scaled, "Q4_0"), np.uint8).reshape(-1, 18).copy()
        blocks[:, :2] = (blocks[:, :2].copy().view("<f2") / np.float16(factor)).view(np.uint8)
        file.tensors[NAME], file.data[NAME] = ("Q4_0", (HIDDEN, 96)), blocks.tobytes()
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    found = value(deep(paths[0], paths[1]), NAME)
    assert found.judgement in ("rounding", "equal")
    assert found.expected == 0.27


def test_swapped_experts_are_named(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        data = file.data[EXPERTS]
        size = len(data) // SMALL.experts
        parts = [data[i * size : (i + 1) * size] for i in range(SMALL.experts)]
        parts[0], parts[2] = parts[2], parts[0]
        file.data[EXPERTS] = b"".join(parts)

    diff = deep(*write_pair(tmp_path, change, StageFile))
    assert judged(diff) == {EXPERTS: "different"}
    assert value(diff, EXPERTS).note.endswith(", in 2 of its 4 matrices: 0, 2")


def test_one_swapped_pair_of_many_experts_is_found_by_its_rows(tmp_path: Path) -> None:
    """Two of 32 that change places move the whole by less than rounding to MXFP4 does."""
    values = np.random.default_rng(8).normal(size=(32, 32, 64)).astype(np.float32)
    swapped = values.copy()
    swapped[[3, 17]] = values[[17, 3]]
    paths = []
    for name, kind, numbers in (("a", "F32", values), ("b", "MXFP4", swapped)):
        file = StageFile()
        put(file, EXPERTS, numbers, kind)
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    found = value(deep(paths[0], paths[1]), EXPERTS)
    assert found.relative is not None and found.expected is not None
    assert found.relative < 1.1 * found.expected
    assert found.judgement == "different"
    assert found.note.endswith(", in 2 of its 32 matrices: 3, 17")


def test_nan_on_one_side_only(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        values = held(file, NAME)
        values[2, 5] = np.nan
        put(file, NAME, values)

    a, b = write_pair(tmp_path, change)
    found = value(deep(a, b), NAME)
    assert found.judgement == "different"
    assert found.max_abs == float("inf")
    assert found.note == "1 place is NaN or infinite on one side only, the first at row 2, column 5"
    assert judged(deep(b, a)) == {NAME: "different"}


def test_nan_on_both_sides_is_the_same(tmp_path: Path) -> None:
    """NaN with another payload is NaN all the same."""
    file = DraftFile()
    values = weights()
    values[1, 1] = np.nan
    put(file, NAME, values)
    first = file.write(tmp_path / "a.gguf")
    bits = values.view(np.uint32).copy()
    bits[1, 1] |= 1
    file.data[NAME] = bits.tobytes()
    assert value(deep(first, file.write(tmp_path / "b.gguf")), NAME).judgement == "equal"


def test_zeros_on_one_side(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        put(file, NAME, np.zeros((96, HIDDEN), np.float32))

    a, b = write_pair(tmp_path, change)
    found, back = value(deep(a, b), NAME), value(deep(b, a), NAME)
    assert (found.relative, found.cosine) == (1.0, 0.0)
    assert (back.relative, back.cosine) == (float("inf"), 0.0)


def test_types_that_are_not_read(tmp_path: Path) -> None:
    paths = []
    for name, byte in (("a", 1), ("b", 2)):
        file = DraftFile()
        file.tensors["fc.weight"] = ("IQ2_XXS", (256, 8))
        file.data["fc.weight"] = bytes([byte]) * 66 * 8
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    diff = deep(paths[0], paths[1])
    found = value(diff, "fc.weight")
    assert (found.judgement, found.rms) == ("unread", None)
    assert found.note == "numbers of IQ2_XXS are not read (a.gguf)"
    assert not diff.is_same
    assert value(deep(paths[0], _copied(paths[0])), "fc.weight").judgement == "identical"


def _copied(path: Path) -> Path:
    other = path.with_name("copy.gguf")
    other.write_bytes(path.read_bytes())
    return other


def test_big_endian_numbers_are_not_read(tmp_path: Path) -> None:
    little = DraftFile().write(tmp_path / "a.gguf")
    big = DraftFile().write(tmp_path / "b.gguf", order=">")
    diff = deep(little, big)
    assert value(diff, NAME).note == "big-endian numbers are not read (b.gguf)"
    assert diff.meaning == () and not diff.metadata


def test_the_same_bytes_in_another_order_are_not_the_same_numbers(tmp_path: Path) -> None:
    file = DraftFile()
    put(file, NAME, weights())
    little, big = file.write(tmp_path / "a.gguf"), file.write(tmp_path / "b.gguf", order=">")
    assert value(deep(little, big), NAME).judgement == "unread"


def test_the_scale_beside_nvfp4_counts(tmp_path: Path) -> None:
    """NVFP4 and the same numbers in F32, with the tensor's own scale in one and multiplied in the other."""
    kind = "NVFP4"
    block = bytes([0x38, 0x40, 0x30, 0x38]) + bytes(range(32))  # scales 1, 2, 0.5, 1
    codes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    row = []
    for part, scale in enumerate((1, 2, 0.5, 1)):
        packed = np.arange(32, dtype=np.uint8)[8 * part : 8 * part + 8]
        row += [*(codes[packed & 15] * scale), *(codes[packed >> 4] * scale)]
    numbers = np.tile(np.array(row, np.float32), (96, 1))
    paths = []
    for name, factor in (("a", None), ("b", 3.0)):
        file = DraftFile()
        if factor is None:
            put(file, NAME, numbers * np.float32(3))
        else:
            file.tensors[NAME], file.data[NAME] = (kind, (HIDDEN, 96)), block * 96
            put(file, "blk.1.ffn_up.scale", np.array([factor], np.float32))
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    diff = deep(paths[0], paths[1])
    assert value(diff, NAME).judgement == "equal"
    assert [tensor.change for tensor in diff.tensors] == ["type"]  # the scale belongs to it
    assert diff.is_same


@pytest.mark.parametrize(
    ("scale", "judgement", "note"),
    [
        (3.0, "identical", ""),
        (2.0, "different", "B is A times 0.667, which rounding is not"),
        (None, "different", "further apart than rounding explains"),
        ([3.0] * 5, "unread", "blk.1.ffn_up.scale is neither one F32 scale nor one for each matrix (b.gguf)"),
    ],
)
def test_another_scale_beside_the_same_nvfp4(tmp_path: Path, scale: object, judgement: str, note: str) -> None:
    paths = []
    for name, factor in (("a", 3.0), ("b", scale)):
        file = DraftFile()
        file.tensors[NAME] = ("NVFP4", (HIDDEN, 96))
        file.data[NAME] = (bytes([0x38] * 4) + bytes(range(32))) * 96
        if factor is not None:
            put(file, "blk.1.ffn_up.scale", np.array(factor, np.float32).reshape(-1))
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    diff = deep(paths[0], paths[1])
    found = value(diff, NAME)
    assert found.judgement == judgement
    assert found.note == note
    lost = [("blk.1.ffn_up.scale", "only-a")] if scale is None else []
    assert [(tensor.name, tensor.change) for tensor in diff.tensors if tensor.change != "shape"] == lost


def test_whole_numbers(tmp_path: Path) -> None:
    paths = []
    for name, extra in (("a", 0), ("b", 5)):
        file = DraftFile()
        file.tensors["d2t"] = ("I64", (VOCAB,))
        offsets = np.arange(VOCAB, dtype="<i8")
        offsets[3] += extra
        file.data["d2t"] = offsets.tobytes()
        paths.append(file.write(tmp_path / f"{name}.gguf"))
    found = value(deep(paths[0], paths[1]), "d2t")
    assert (found.judgement, found.max_abs) == ("different", 5.0)


def test_a_trailing_dimension_of_one_is_none(tmp_path: Path) -> None:
    def change(file: DraftFile) -> None:
        kind, shape = file.tensors["conf_proj.weight"]
        assert shape == (HIDDEN + RANK, 1)
        file.tensors["conf_proj.weight"] = (kind, shape[:1])

    diff = deep(*write_pair(tmp_path, change))
    assert diff.is_same and not diff.tensors


def test_progress_adds_up_to_the_bytes_of_both(tmp_path: Path) -> None:
    from dspark_convert.diff.compare import compare, compare_deep

    def change(file: DraftFile) -> None:
        values = held(file, NAME)
        values[95, 63] = 9
        put(file, NAME, values)

    diff = compare(*write_pair(tmp_path, change))
    told: list[int] = []
    compare_deep(diff, told.append)
    assert min(told) >= 0
    assert max(told) <= max(tensor.nbytes for tensor in diff.a.tensors)  # block by block, not a tensor at its end
    assert sum(told) == sum(tensor.nbytes for side in (diff.a, diff.b) for tensor in side.tensors)


def test_float64_and_whole_numbers_are_rounded_by_nothing(tmp_path: Path) -> None:
    numbers = weights()
    for kind, dtype, values in (("F64", "<f8", numbers), ("I32", "<i4", np.round(numbers * 9))):
        wide, narrow = DraftFile(), DraftFile()
        wide.tensors[NAME], wide.data[NAME] = (kind, (HIDDEN, 96)), values.astype(dtype).tobytes()
        put(narrow, NAME, values.astype(np.float32))
        a, b = wide.write(tmp_path / "a.gguf"), narrow.write(tmp_path / "b.gguf")
        assert value(deep(a, b), NAME).judgement == "equal"
        put(narrow, NAME, one_weight(values.astype(np.float32)))
        found = value(deep(a, narrow.write(tmp_path / "b.gguf")), NAME)
        assert (found.judgement, found.expected) == ("different", 1e-6)


def test_differences_far_into_a_tensor_are_told_by_their_place(tmp_path: Path) -> None:
    """In the third block that is read, of one row and of the rows of a coarse type."""
    values = weights(3, 2048, 96)
    for kind, change, note in (
        (
            "F32",
            lambda row: row + 1,
            "96 of 196,608 numbers are different, the largest difference at row 2000, column ",
        ),
        ("Q4_0", lambda row: -row, "row 2000 is 2 of its size away, rounding explains 0.81"),
    ):
        other = values.copy()
        other[2000] = change(other[2000])
        first, second = DraftFile(), DraftFile()
        put(first, NAME, values)
        put(second, NAME, other, kind)
        a, b = first.write(tmp_path / "a.gguf"), second.write(tmp_path / "b.gguf")
        assert value(deep(a, b), NAME).note.startswith(note)


def test_numbers_of_any_blocks_are_taken_in_others() -> None:
    """Each block is gone when the next one comes."""
    from collections.abc import Iterator

    from dspark_convert.diff.values import _Stream

    def blocks() -> Iterator[np.ndarray]:
        buffer = np.empty(7, np.float32)
        for start in range(0, 70, 7):
            buffer[:] = np.arange(start, start + 7)
            yield buffer

    stream = _Stream(blocks())
    taken = [stream.take(count).tolist() for count in (3, 20, 1, 14, 32)]
    assert [number for part in taken for number in part] == list(range(70))


@pytest.mark.parametrize("most", [4, 7, 96, 1000])
def test_rows_that_are_told_apart_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Neighbours count as one row then; what is added up stays what it is."""
    from dspark_convert.diff import sums

    def change(file: DraftFile) -> None:
        values = held(file, NAME)
        values[40] *= -1
        put(file, NAME, values)

    a, b = write_pair(tmp_path, change)
    whole = value(deep(a, b), NAME)
    monkeypatch.setattr(sums, "MAX_ROWS", most)
    assert value(deep(a, b), NAME) == whole
    paths = rounded_pair(tmp_path, ("F32", "Q4_0"))
    assert value(deep(*paths), NAME).judgement == "rounding"


def test_matrices_are_named_where_rows_are_taken_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark_convert.diff import sums

    def change(file: DraftFile) -> None:
        size = len(file.data[EXPERTS]) // SMALL.experts
        data = bytearray(file.data[EXPERTS])
        data[3 * size + 5] ^= 1
        file.data[EXPERTS] = bytes(data)

    a, b = write_pair(tmp_path, change, StageFile)
    monkeypatch.setattr(sums, "MAX_ROWS", SMALL.experts * SMALL.width // 2)
    assert value(deep(a, b), EXPERTS).note.endswith(", in 1 of its 4 matrices: 3")
    monkeypatch.setattr(sums, "MAX_ROWS", 3)
    assert ", the largest difference at row " in value(deep(a, b), EXPERTS).note


def test_data_that_is_cut_off_is_not_compared(tmp_path: Path) -> None:
    a, b = write_pair(tmp_path, lambda _file: None)
    whole = b.read_bytes()
    b.write_bytes(whole[:-5000])
    found = judged(deep(a, b))
    assert found
    assert set(found.values()) == {"unread"}
    first = next(iter(found))
    assert value(deep(a, b), first).note == "its data is not all in the file (b.gguf)"
