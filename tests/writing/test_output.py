from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault, UsageError
from dspark_convert.writing.output import check_output


@pytest.mark.parametrize("name", ["out.gguf", "{ftype} {}.gguf", " ", "-o", "ü\n.gguf", "%s$HOME;~", "\udcff.gguf"])
@pytest.mark.parametrize("force", [False, True])
def test_names_are_taken_literally(tmp_path: Path, name: str, force: bool) -> None:
    check_output(tmp_path / name, [], force)
    assert list(tmp_path.iterdir()) == []


def test_a_bare_name_is_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_output(Path("out.gguf"), [], False)


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match=r"out\.gguf exists already; add --force"):
        check_output(path, [], False)
    check_output(path, [], True)


def test_a_dangling_link_exists_too(tmp_path: Path) -> None:
    path = tmp_path / "out.gguf"
    path.symlink_to("nowhere")
    with pytest.raises(UsageError, match="exists already"):
        check_output(path, [], False)


@pytest.mark.parametrize("force", [False, True])
class TestNeverEvenWithForce:
    def test_missing_directory(self, tmp_path: Path, force: bool) -> None:
        with pytest.raises(UsageError, match=r"the directory .*sub does not exist; create it first"):
            check_output(tmp_path / "none" / "sub" / "o.gguf", [], force)

    def test_file_as_directory(self, tmp_path: Path, force: bool) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(UsageError, match="file is not a directory"):
            check_output(tmp_path / "file" / "o.gguf", [], force)

    def test_directory_and_a_link_to_one(self, tmp_path: Path, force: bool) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        for path in (tmp_path, tmp_path / "link"):
            with pytest.raises(UsageError, match="is a directory; give the name of a file"):
                check_output(path, [], force)

    def test_input_under_any_name(self, tmp_path: Path, force: bool) -> None:
        source = tmp_path / "model.safetensors"
        source.write_bytes(b"weights")
        (tmp_path / "soft.gguf").symlink_to(source)
        (tmp_path / "hard.gguf").hardlink_to(source)
        (tmp_path / "again").symlink_to(tmp_path)
        inputs = [tmp_path / "missing", source]
        for path in (source, tmp_path / "soft.gguf", tmp_path / "hard.gguf", tmp_path / "again" / source.name):
            with pytest.raises(UsageError, match=r"is the same file as the input .*model\.safetensors"):
                check_output(path, inputs, force)

    def test_input_that_is_a_link_to_the_output(self, tmp_path: Path, force: bool) -> None:
        (tmp_path / "blob").write_bytes(b"weights")
        (tmp_path / "model.safetensors").symlink_to("blob")
        with pytest.raises(UsageError, match="is the same file as the input"):
            check_output(tmp_path / "blob", [tmp_path / "model.safetensors"], force)

    def test_name_too_long(self, tmp_path: Path, force: bool) -> None:
        with pytest.raises(UsageError, match="the name is too long"):
            check_output(tmp_path / ("é" * 200), [], force)

    def test_device_and_pipe(self, tmp_path: Path, force: bool) -> None:
        os.mkfifo(tmp_path / "pipe")
        # as root an output named /dev/stdout would take the link's place for the whole machine
        (tmp_path / "stdout").symlink_to(os.devnull)
        (tmp_path / "again").symlink_to("pipe")
        for path in (tmp_path / "pipe", Path(os.devnull), tmp_path / "stdout", tmp_path / "again"):
            with pytest.raises(UsageError, match="is a device or a pipe"):
                check_output(path, [], force)

    def test_a_redirected_descriptor(self, tmp_path: Path, force: bool) -> None:
        # `-o /dev/stdout --force > file` as root: behind the link stands a regular file then
        with (tmp_path / "redirected").open("wb") as file:
            (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{file.fileno()}")
            with pytest.raises(UsageError, match="is a device or a pipe"):
                check_output(tmp_path / "stdout", [], force)

    def test_directory_without_permission(self, tmp_path: Path, force: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        # root may write everywhere, so the answer of the system is made up
        monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path or not mode & os.W_OK)
        with pytest.raises(EnvironmentFault, match="no permission to create files in"):
            check_output(tmp_path / "o.gguf", [], force)

    def test_directory_that_cannot_be_searched(
        self, tmp_path: Path, force: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lstat(path: Path) -> os.stat_result:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        monkeypatch.setattr(os, "lstat", lstat)
        with pytest.raises(EnvironmentFault, match="no permission to write there"):
            check_output(tmp_path / "o.gguf", [], force)
