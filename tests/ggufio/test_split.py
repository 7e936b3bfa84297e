"""Split sets: which tensor goes where, what the files say, and what the reader makes of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import pytest

from dspark_convert.errors import InputError, UsageError
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.split import lay_out, parse_size
from dspark_convert.ggufio.types import KV, GGMLType, ValueType, u32
from dspark_convert.jobs import TensorJob
from dspark_convert.target import open_target_gguf
from dspark_convert.writing.writer import Hashing, write
from tests.writing.writing import METADATA, jobs, names

#: bytes: a file for the metadata, then files of one, two and three tensors
SIZE = 1_600
COUNT = 4


def small(name: str = "t", elements: int = 256) -> TensorJob:
    return TensorJob(name, GGMLType.F32, (elements,), (), "zeros")


@pytest.mark.parametrize(
    ("text", "nbytes"), [("1", 1), ("500M", 500 * 10**6), ("2G", 2 * 10**9), ("3k", 3000), (" 7m ", 7 * 10**6)]
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "0", "0G", "-1G", "1.5G", "G", "2GB", "2 G", "1e9", "٣G", "9" * 19])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is no size; give a number with K, M or G behind it"):
        parse_size(text)


def test_names_and_keys_are_those_of_llama_cpp(tmp_path: Path) -> None:
    made = jobs(tmp_path)
    written = write(tmp_path / "out.gguf", METADATA, made, split_max_size=SIZE)
    assert [file.path.name for file in written.files] == [f"out-{n:05d}-of-00004.gguf" for n in range(1, 5)]
    assert names(tmp_path) == {file.path.name for file in written.files}
    assert written.path == written.files[0].path
    found = []
    for index, file in enumerate(written.files):
        assert file.nbytes == file.path.stat().st_size <= SIZE
        reader = gguf.GGUFReader(file.path)
        fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        keys = ["split.no", "split.count", "split.tensors.count"]
        assert list(fields) == [*([] if index else [kv.key for kv in METADATA]), *keys]
        kinds = [gguf.GGUFValueType.UINT16, gguf.GGUFValueType.UINT16, gguf.GGUFValueType.INT32]
        assert [fields[key].types for key in keys] == [[kind] for kind in kinds]
        assert [fields[key].contents() for key in keys] == [index, COUNT, len(made)]
        found += [(tensor.name, tensor.data.tobytes()) for tensor in reader.tensors]
    whole = gguf.GGUFReader(write(tmp_path / "whole.gguf", METADATA, made).path)
    assert found == [(tensor.name, tensor.data.tobytes()) for tensor in whole.tensors]


def test_what_fits_is_not_split(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.gguf", METADATA, jobs(tmp_path))
    written = write(tmp_path / "out.gguf", METADATA, jobs(tmp_path), split_max_size=whole.nbytes)
    assert names(tmp_path) == {"whole.gguf", "out.gguf"}
    assert written.path.read_bytes() == whole.path.read_bytes()
    assert len(write(tmp_path / "two.gguf", METADATA, jobs(tmp_path), split_max_size=whole.nbytes - 1).files) == 2


def test_the_first_part_may_hold_metadata_alone(tmp_path: Path) -> None:
    parts = lay_out(tmp_path / "o.gguf", [KV("text", ValueType.STRING, "x" * 2000)], [small(elements=512)], 2_250)
    assert [len(part.jobs) for part in parts] == [0, 1]
    assert all(part.nbytes <= 2_250 for part in parts)


@pytest.mark.parametrize("alignment", [32, 4096])
def test_no_part_is_larger_than_allowed(tmp_path: Path, alignment: int) -> None:
    made = [small(f"blk.{index}.weight", 32 * (1 + index % 7)) for index in range(100)]
    metadata = [*METADATA, u32("general.alignment", alignment)]
    for most in range(3 * alignment + 2_000, 40_000, 1_777):
        parts = lay_out(tmp_path / "o.gguf", metadata, made, most)
        assert max(part.nbytes for part in parts) <= most
        assert [job for part in parts for job in part.jobs] == made
        assert all(offset % alignment == 0 for part in parts for offset in part.offsets)


@pytest.mark.parametrize(
    ("metadata", "job", "most", "what"),
    [
        ([], small("blk.0.large", 10**6), 10**6, r"blk\.0\.large alone takes 40002\d\d bytes; give at least 5M"),
        (
            [KV("k", ValueType.STRING, "x" * 3000)],
            small(),
            3000,
            r"the metadata alone takes 31\d\d bytes; give at l.* 1M",
        ),
    ],
)
def test_a_size_that_is_too_small(tmp_path: Path, metadata: list[KV], job: TensorJob, most: int, what: str) -> None:
    with pytest.raises(UsageError, match=f"--split-max-size {most} is too small: {what}"):
        write(tmp_path / "o.gguf", metadata, [job], split_max_size=most)
    assert names(tmp_path) == set()


def test_too_many_parts(tmp_path: Path) -> None:
    made = [small(str(index), 1) for index in range(70_000)]
    with pytest.raises(UsageError, match=r"would make 70000 files, and llama\.cpp takes 65535 at most"):
        lay_out(tmp_path / "o.gguf", [], made, 250)


def test_no_part_may_exist_without_force(tmp_path: Path) -> None:
    (tmp_path / "out-00003-of-00004.gguf").write_bytes(b"previous")
    with pytest.raises(UsageError, match=r"out-00003-of-00004\.gguf exists already"):
        write(tmp_path / "out.gguf", METADATA, jobs(tmp_path), split_max_size=SIZE)
    assert names(tmp_path) == {"out-00003-of-00004.gguf"}


def test_a_part_that_appears_meanwhile_undoes_all(tmp_path: Path) -> None:
    first = tmp_path / "out-00001-of-00004.gguf"
    with pytest.raises(UsageError, match=r"out-00001-of-00004\.gguf exists already"):
        write(
            tmp_path / "out.gguf",
            METADATA,
            jobs(tmp_path),
            split_max_size=SIZE,
            progress=lambda *_: void(first.write_bytes(b"another's")),
        )
    assert names(tmp_path) == {first.name}
    assert first.read_bytes() == b"another's"


def void(_: object) -> None:
    return


def test_other_sets_of_the_name_are_told(tmp_path: Path) -> None:
    for name in (
        "out-00002-of-00009.gguf",
        "out-00009-of-00009.gguf",
        "out-00001-of-00002.gguf",
        "outer-00001-of-00003.gguf",
    ):
        (tmp_path / name).write_bytes(b"old")
    written = write(tmp_path / "out.gguf", METADATA, jobs(tmp_path), split_max_size=SIZE)
    assert [(finding.rule, finding.severity) for finding in written.findings] == [("other-split", "warning")] * 2
    assert [finding.message.split(" of an")[0] for finding in written.findings] == [
        "1 files out-*-of-00002.gguf",
        "2 files out-*-of-00009.gguf",
    ]
    assert write(tmp_path / "one.gguf", METADATA, jobs(tmp_path)).findings == ()


class TestReading:
    @pytest.fixture
    def files(self, tmp_path: Path) -> list[Path]:
        written = write(tmp_path / "out.gguf", METADATA, jobs(tmp_path), split_max_size=SIZE)
        return [file.path for file in written.files]

    def test_it_is_one_file(self, tmp_path: Path, files: list[Path]) -> None:
        write(tmp_path / "whole.gguf", METADATA, jobs(tmp_path))
        with open_gguf(files[0]) as split, open_gguf(tmp_path / "whole.gguf") as whole:
            assert split.findings == whole.findings == ()
            split.require_sound()
            assert [tensor.name for tensor in split.tensors] == [tensor.name for tensor in whole.tensors]
            for name in [tensor.name for tensor in whole.tensors]:
                a, b = split.tensor(name), whole.tensor(name)
                assert a
                assert b
                assert (a.shape, a.type, a.nbytes) == (b.shape, b.type, b.nbytes)
                assert split.holds(a)
                assert bytes(split.data(a)) == bytes(whole.data(b))
            assert split.size == sum(path.stat().st_size for path in files)
            assert [split.path_of(tensor) for tensor in split.tensors] == [files[n] for n in (1, 2, 2, 3, 3, 3)]
            assert all(split.metadata[kv.key] == whole.metadata[kv.key] for kv in METADATA)

    @pytest.mark.parametrize("index", [1, 2, 3])
    def test_another_part_is_refused(self, files: list[Path], index: int) -> None:
        with pytest.raises(InputError) as caught:
            open_gguf(files[index])
        assert str(caught.value) == (
            f"{files[index]} is one of 4 parts of a split file, but not the first; give that, out-00001-of-00004.gguf."
        )

    def findings(self, path: Path) -> list[tuple[str, str, str]]:
        with open_gguf(path) as file:
            if any(finding.severity == "error" for finding in file.findings):
                with pytest.raises(InputError, match="is damaged"):
                    file.require_sound()
            return [(finding.rule, finding.severity, finding.message) for finding in file.findings]

    def test_missing_parts(self, files: list[Path]) -> None:
        files[1].unlink()
        files[3].unlink()
        message = "2 of its 4 parts are missing: out-00002-of-00004.gguf, out-00004-of-00004.gguf."
        assert self.findings(files[0]) == [("split-file", "error", message)]

    def test_a_name_that_llama_cpp_does_not_understand(self, files: list[Path]) -> None:
        renamed = files[0].rename(files[0].with_name("draft.gguf"))
        message = "llama.cpp finds the other parts by the name, which has to end with -00001-of-00004.gguf."
        assert self.findings(renamed) == [("split-file", "error", message)]

    def test_parts_in_another_order(self, files: list[Path]) -> None:
        swapped = files[1].read_bytes()
        files[1].write_bytes(files[2].read_bytes())
        files[2].write_bytes(swapped)
        assert [message[:70] for _, _, message in self.findings(files[0])] == [
            "out-00002-of-00004.gguf says that it is number 2 of 4, expected 1 of 4",
            "out-00003-of-00004.gguf says that it is number 1 of 4, expected 2 of 4",
        ]

    def test_a_part_of_another_set(self, tmp_path: Path, files: list[Path]) -> None:
        other = write(tmp_path / "other.gguf", METADATA, jobs(tmp_path)[:3], split_max_size=SIZE)
        assert len(other.files) == COUNT - 1
        files[3].write_bytes(other.files[2].path.read_bytes())
        rules = [(rule, message.split(",")[0]) for rule, _, message in self.findings(files[0])]
        assert ("split-file", "out-00004-of-00004.gguf says that it is number 2 of 3") in rules
        assert "tensor-duplicate" in [rule for rule, _ in rules]

    def test_a_wrong_count(self, files: list[Path]) -> None:
        data = bytearray(files[0].read_bytes())
        key = b"split.tensors.count"
        struct.pack_into("<i", data, data.index(key) + len(key) + 4, 7)
        files[0].write_bytes(data)
        message = "the set should have 7 tensors, and its parts hold 6."
        assert self.findings(files[0]) == [("split-file", "error", message)]

    def test_wrong_types_of_the_keys(self, tmp_path: Path) -> None:
        path = tmp_path / "a-00001-of-00002.gguf"
        write(path, [u32("split.no", 0), u32("split.count", 2)], jobs(tmp_path)[:1])
        write(tmp_path / "a-00002-of-00002.gguf", [u32("split.no", 1), u32("split.count", 2)], jobs(tmp_path)[1:2])
        assert [message for _, _, message in self.findings(path)] == [
            "split.no is UINT32; llama.cpp needs UINT16.",
            "split.count is UINT32; llama.cpp needs UINT16.",
            "split.tensors.count is missing; llama.cpp needs INT32.",
        ]

    def test_a_part_that_is_cut(self, files: list[Path]) -> None:
        files[2].write_bytes(files[2].read_bytes()[:-64])
        assert [rule for rule, _, _ in self.findings(files[0])] == ["truncated"]

    def test_a_part_that_is_no_gguf(self, files: list[Path]) -> None:
        files[2].write_bytes(b"<html>")
        with pytest.raises(InputError, match=r"out-00003-of-00004\.gguf is an HTML page"):
            open_gguf(files[0])

    def test_a_count_of_one_is_a_whole_file(self, tmp_path: Path) -> None:
        write(tmp_path / "o.gguf", [KV("split.count", ValueType.UINT16, 1)], jobs(tmp_path)[:1])
        assert self.findings(tmp_path / "o.gguf") == []

    def test_hashes_of_every_part(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"split_max_size": SIZE, "hashing": Hashing(sidecar=True)}
        written = write(tmp_path / "h.gguf", METADATA, jobs(tmp_path), **options)
        assert names(tmp_path) == {
            name for file in written.files for name in (file.path.name, f"{file.path.name}.sha256")
        }

    def test_a_split_target_is_seen_whole(self, tmp_path: Path) -> None:
        """Its head lies in another part than its metadata: it is not tied."""
        made = [small("token_embd.weight"), small("output.weight")]
        metadata = [KV("general.architecture", ValueType.STRING, "qwen3")]
        written = write(tmp_path / "target.gguf", metadata, made, split_max_size=1_500)
        assert len(written.files) == 2
        assert open_target_gguf(written.path).tied is False
        assert open_target_gguf(written.path).damage == ()
        written.files[1].path.unlink()
        assert [finding.rule for finding in open_target_gguf(written.path).damage] == ["split-file"]
