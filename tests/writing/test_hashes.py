"""SHA-256 on the way and beside the file, held against sha256sum and hashlib over the finished file."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import gguf
import pytest

from dspark_convert.errors import InputError, UsageError
from dspark_convert.writing.hashes import encode_sidecar, parse_hash, read_sidecar, sidecar_of, verify
from dspark_convert.writing.writer import Hashing, write
from tests.writing.writing import METADATA, jobs, names

ALL = Hashing(files=True, tensors=True, sidecar=True)
SPLIT = 1_600


def sha256sum(sidecar: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", sidecar.name], cwd=sidecar.parent, capture_output=True, check=False
    )
    return done.returncode, os.fsdecode(done.stdout + done.stderr)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("split", [None, SPLIT])
def test_hashes_are_those_of_the_finished_files(tmp_path: Path, threads: int, split: int | None) -> None:
    made = jobs(tmp_path)
    written = write(tmp_path / "o.gguf", METADATA, made, threads=threads, hashing=ALL, split_max_size=split)
    found: dict[str, str] = {}
    for file in written.files:
        assert file.sha256 == hashlib.sha256(file.path.read_bytes()).hexdigest()
        tensors = {
            tensor.name: hashlib.sha256(tensor.data.tobytes()).hexdigest()
            for tensor in gguf.GGUFReader(file.path).tensors
        }
        assert file.tensors == tensors
        found |= tensors
        recorded = read_sidecar(file.path)
        assert (recorded.sha256, recorded.tensors) == (file.sha256, tensors)
        assert sha256sum(sidecar_of(file.path)) == (0, f"{file.path.name}: OK\n")
        assert verify(file.path).matches
    assert list(found) == [job.name for job in made]


def test_nothing_is_hashed_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashlib, "sha256", lambda *_: pytest.fail("it hashed"))
    (file,) = write(tmp_path / "o.gguf", METADATA, jobs(tmp_path)).files
    assert (file.sha256, file.tensors) == (None, {})
    assert names(tmp_path) == {"o.gguf"}


@pytest.mark.parametrize(
    "name", ["o.gguf", "a b.gguf", "a\\b.gguf", "a\nb.gguf", "a\rb.gguf", "*x.gguf", "é\udcff.gguf"]
)
def test_odd_names_as_sha256sum_writes_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path, METADATA, jobs(tmp_path), hashing=Hashing(sidecar=True))
    assert verify(path).matches
    by_sha256sum = subprocess.run(["sha256sum", "--", name], cwd=tmp_path, capture_output=True, check=True).stdout
    sidecar = sidecar_of(path)
    assert sidecar.read_bytes() == by_sha256sum
    assert sha256sum(sidecar)[0] == 0


@pytest.mark.parametrize("split", [None, SPLIT])
def test_the_hash_of_a_file_that_is_replaced_does_not_stay(tmp_path: Path, split: int | None) -> None:
    made = jobs(tmp_path)
    old = write(tmp_path / "o.gguf", METADATA, made, hashing=ALL, split_max_size=split)
    written = write(tmp_path / "o.gguf", METADATA[1:], made, force=True, split_max_size=split)
    assert names(tmp_path) == {file.path.name for file in written.files}
    assert [(finding.rule, finding.severity) for finding in written.findings] == [("stale-hash", "info")] * len(
        old.files
    )
    assert written.findings[0].message.startswith(f"{sidecar_of(old.path)} was removed")


def test_a_new_hash_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "o.gguf"
    write(path, METADATA, jobs(tmp_path), hashing=ALL)
    assert write(path, METADATA[1:], jobs(tmp_path), force=True, hashing=Hashing(sidecar=True)).findings == ()
    assert sha256sum(sidecar_of(path))[0] == 0
    assert read_sidecar(path).tensors == {}


@pytest.mark.parametrize("hashing", [Hashing(), ALL])
def test_a_hash_of_a_file_that_is_gone_needs_force(tmp_path: Path, hashing: Hashing) -> None:
    """Nothing that exists is touched without it."""
    sidecar = tmp_path / "o.gguf.sha256"
    sidecar.write_text("a hash")
    with pytest.raises(UsageError, match=r"o\.gguf\.sha256 exists already; add --force"):
        write(tmp_path / "o.gguf", METADATA, jobs(tmp_path), hashing=hashing)
    assert sidecar.read_text() == "a hash"
    assert names(tmp_path) == {sidecar.name}


def test_a_hash_whose_name_is_too_long_is_seen_before(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 245 + ".gguf")
    with pytest.raises(UsageError, match="the name is too long"):
        write(path, METADATA, jobs(tmp_path), hashing=ALL)
    assert names(tmp_path) == set()
    write(path, METADATA, jobs(tmp_path))
    assert names(tmp_path) == {path.name}


class TestVerify:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return write(tmp_path / "o.gguf", METADATA, jobs(tmp_path), hashing=ALL).path

    def test_one_bit_of_a_tensor(self, path: Path) -> None:
        """The tensor is named, for its hash is recorded too."""
        reader = gguf.GGUFReader(path)
        tensor = reader.tensors[2]
        data = bytearray(path.read_bytes())
        data[tensor.data_offset + 5] ^= 1
        path.write_bytes(data)
        assert sha256sum(sidecar_of(path))[0] == 1
        verdict = verify(path)
        assert not verdict.matches
        assert verdict.different == (tensor.name,)
        assert verdict.found == hashlib.sha256(data).hexdigest()
        assert verdict.finding.rule == "hash-mismatch"
        assert verdict.finding.message == (
            f"{path}: the SHA-256 is {verdict.found}, expected {verdict.expected}."
            f" 1 tensors are not as recorded: {tensor.name}."
        )

    @pytest.mark.parametrize("at", [0, 30])
    def test_one_bit_of_the_header(self, path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        verdict = verify(path)
        assert not verdict.matches
        assert verdict.different == ()

    def test_a_given_hash(self, path: Path) -> None:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sidecar_of(path).unlink()
        assert verify(path, parse_hash(digest.upper())).matches
        assert not verify(path, "0" * 64).matches

    def test_without_a_hash(self, path: Path) -> None:
        sidecar_of(path).unlink()
        with pytest.raises(InputError, match=r"there is no .*o\.gguf\.sha256 to compare .*; give the hash .* --sha256"):
            verify(path)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"nonsense",
            b"0" * 64,
            b"0" * 64 + b"  other.gguf\n",
            b"0" * 63 + b"  o.gguf\n",
            b"# " + b"0" * 64 + b"  o.gguf\n",
            b"\xff" * 100,
        ],
    )
    def test_what_is_no_sidecar(self, path: Path, data: bytes) -> None:
        sidecar_of(path).write_bytes(data)
        with pytest.raises(InputError, match=r"holds no SHA-256 for o\.gguf; a line of 64"):
            verify(path)

    def test_others_sidecars_are_read_too(self, path: Path) -> None:
        """Several files, binary mode, upper case, Windows' line ends."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sidecar_of(path).write_bytes(b"0" * 64 + b" *x\r\n" + digest.upper().encode() + b" *o.gguf\r\n")
        assert verify(path).matches

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="there is no file"):
            verify(tmp_path / "none.gguf")

    @pytest.mark.parametrize("text", ["", "abc", "g" * 64, "0" * 65])
    def test_what_is_no_hash(self, text: str) -> None:
        with pytest.raises(UsageError, match="is no SHA-256; give 64 hexadecimal digits"):
            parse_hash(text)


def test_names_of_tensors_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "o.gguf"
    tensors = {"a\nb": "1" * 64, "c\\nd": "2" * 64, "\udcff": "3" * 64}
    sidecar_of(path).write_bytes(encode_sidecar(path, "0" * 64, tensors))
    assert read_sidecar(path).tensors == tensors
