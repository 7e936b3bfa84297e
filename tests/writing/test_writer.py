"""What the writer writes, and that it never touches a file that is not its own."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import UsageError
from dspark_convert.ggufio.types import GGMLType, u32
from dspark_convert.writing.writer import Hashing, Written, WrittenFile, write
from tests.tensors.jobs import job, numbers, source
from tests.writing.writing import METADATA, jobs, names


@pytest.mark.parametrize("replacing", [False, True])
def test_gguf_py_reads_the_same_values(tmp_path: Path, replacing: bool) -> None:
    made = jobs(tmp_path)
    out = tmp_path / "out.gguf"
    if replacing:
        out.write_bytes(b"previous")
    written = write(out, METADATA, made, force=replacing, hashing=Hashing(files=True))
    data = out.read_bytes()
    assert written == Written((WrittenFile(out, len(data), hashlib.sha256(data).hexdigest()),))
    assert (written.path, written.nbytes) == (out, len(data))
    assert names(tmp_path) == {"out.gguf"}

    reader = gguf.GGUFReader(out)
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(fields) == [kv.key for kv in METADATA]
    for kv in METADATA:
        field = fields[kv.key]
        assert field.types == [int(kv.type)] + ([int(kv.item_type)] if kv.item_type is not None else [])
        assert field.contents() == kv.value

    assert [tensor.name for tensor in reader.tensors] == [each.name for each in made]
    for tensor, each in zip(reader.tensors, made, strict=True):
        assert tensor.tensor_type == each.type
        assert tuple(tensor.shape) == each.shape
        assert tensor.data_offset % 32 == 0
        if each.source is None:
            expected = np.zeros((1, 3), np.float32)
        elif each.source.dtype == "BF16":
            expected = (numbers("BF16", (5, 64), int(each.type)).astype(np.uint32) << 16).view(np.float32)
        else:
            expected = np.pad(numbers("F32", (3, 33)), ((0, 0), (0, 2)))
        stored = gguf.quants.quantize(expected, gguf.GGMLQuantizationType(each.type))
        assert tensor.data.tobytes() == stored.tobytes()
    last = reader.tensors[-1]
    assert len(data) == last.data_offset + 32  # 6 bytes of data, and padding as ggml writes it


def test_a_minimal_file_by_hand(tmp_path: Path) -> None:
    ref = source(tmp_path / "w", np.array([1.0, -2.0], np.float32), "F32")
    written = write(tmp_path / "out.gguf", [], [job(ref, GGMLType.F32, name="t")])
    expected = bytes.fromhex(
        "47475546 03000000 0100000000000000 0000000000000000"
        "0100000000000000 74 01000000 0200000000000000 00000000 0000000000000000 00000000000000"
    )
    expected += b"\x00\x00\x80\x3f\x00\x00\x00\xc0" + bytes(24)
    assert (tmp_path / "out.gguf").read_bytes() == expected
    assert written.nbytes == 96


def test_alignment_is_honoured(tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    write(out, [*METADATA, u32("general.alignment", 256)], jobs(tmp_path))
    reader = gguf.GGUFReader(out)
    assert [tensor.data_offset % 256 for tensor in reader.tensors] == [0] * 6
    assert out.stat().st_size % 256 == 0


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    written = write(tmp_path / "o.gguf", METADATA, jobs(tmp_path), progress=lambda *call: calls.append(call))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert {total for _, total in calls} == {written.nbytes}
    assert calls[-1][0] == written.nbytes


@pytest.mark.parametrize("name", ["{ftype} {}.gguf", "ü\n.gguf", "%s;~", "é" * 127])
def test_odd_names(tmp_path: Path, name: str) -> None:
    assert write(tmp_path / name, METADATA, jobs(tmp_path)).path == tmp_path / name
    assert names(tmp_path) == {name}


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_mode_is_what_umask_says(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "o.gguf", METADATA, jobs(tmp_path))
    finally:
        os.umask(before)
    assert (tmp_path / "o.gguf").stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_existing_file_is_safe_without_force(tmp_path: Path) -> None:
    (tmp_path / "o.gguf").write_bytes(b"previous")
    with pytest.raises(UsageError, match="--force"):
        write(tmp_path / "o.gguf", METADATA, jobs(tmp_path))
    assert (tmp_path / "o.gguf").read_bytes() == b"previous"
    assert names(tmp_path) == {"o.gguf"}


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_file_that_appears_meanwhile_is_safe(
    tmp_path: Path, hard_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o.gguf"
    if not hard_links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UsageError, match="exists already"):
        write(out, METADATA, jobs(tmp_path), progress=lambda *_: void(out.write_bytes(b"another's")))
    assert out.read_bytes() == b"another's"
    assert names(tmp_path) == {"o.gguf"}


def no_links(*_: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def void(_: object) -> None:
    return


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    written = write(tmp_path / "o.gguf", METADATA, jobs(tmp_path))
    assert (tmp_path / "o.gguf").stat().st_size == written.nbytes
    assert names(tmp_path) == {"o.gguf"}


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"real")
    (tmp_path / "o.gguf").symlink_to("real")
    write(tmp_path / "o.gguf", METADATA, jobs(tmp_path), force=True)
    assert not (tmp_path / "o.gguf").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"real"


def test_an_input_is_never_the_output(tmp_path: Path) -> None:
    made = jobs(tmp_path)
    assert made[0].source
    kept = made[0].source.path.read_bytes()
    with pytest.raises(UsageError, match="is the same file as the input"):
        write(made[0].source.path, METADATA, made, force=True)
    assert made[0].source.path.read_bytes() == kept


def test_short_writes_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = jobs(tmp_path)
    write(tmp_path / "whole", METADATA, made)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: real(descriptor, data[:77], at))
    write(tmp_path / "short", METADATA, made)
    assert (tmp_path / "short").read_bytes() == (tmp_path / "whole").read_bytes()


def test_an_unknown_amount_of_space_is_no_reason_to_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 0))
    write(tmp_path / "o.gguf", METADATA, jobs(tmp_path))
