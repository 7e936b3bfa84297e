"""The first bytes of a GGUF: too few are told apart from damaged ones, enough are read like the whole file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.errors import InputError
from dspark_convert.ggufio.cursor import Incomplete
from dspark_convert.ggufio.reader import GGUFFile, open_gguf
from tests.draft_file import DraftFile
from tests.gguf_bytes import ARRAY, STRING, Builder


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_any_too_few_bytes_ask_for_more(order: str, version: int, tmp_path: Path) -> None:
    whole = DraftFile().write(tmp_path / "whole.gguf", order, version)
    data = whole.read_bytes()
    last = data.rfind(b"blk.1.ffn_down.weight")
    end = last + len(b"blk.1.ffn_down.weight") + 4 + 2 * 8 + 4 + 8  # dimension count, shape, type, offset
    head = tmp_path / "head.gguf"
    for count in [*range(24, end, 37), end - 1]:
        head.write_bytes(data[:count])
        with pytest.raises(Incomplete):
            GGUFFile(head, len(data))
        with pytest.raises(InputError, match=r"cut short|cannot hold|past the file's end"):
            open_gguf(head)
    head.write_bytes(data[:end])
    with open_gguf(head, {"head.gguf": len(data)}) as file, open_gguf(whole) as full:
        assert (file.findings, file.size, file.tensors) == (full.findings, len(data), full.tensors)
        assert dict(file.metadata) == dict(full.metadata)
        assert not any(file.holds(tensor) for tensor in file.tensors)
        with pytest.raises(InputError, match="not within the file's"):
            file.data(file.tensors[0])


def test_what_no_further_byte_can_mend_is_damage(tmp_path: Path) -> None:
    build = Builder()
    head = tmp_path / "head.gguf"
    size = 10_000
    for entry in (
        build.string("a") + build.pack("I", 99),
        build.string("a", 2**40),
        build.string("a") + build.pack("IIQ", ARRAY, STRING, 2**40),
        build.string("a") + build.pack("I", STRING) + build.pack("Q", size),
    ):
        head.write_bytes(b"GGUF" + build.pack("IQQ", 3, 0, 1) + entry + bytes(200))
        with pytest.raises(InputError) as fault:
            GGUFFile(head, size)
        assert not isinstance(fault.value, Incomplete)


def test_a_size_smaller_than_the_file_is_no_limit(tmp_path: Path) -> None:
    path = DraftFile().write(tmp_path / "whole.gguf")
    with open_gguf(path, {"whole.gguf": 5}) as file:
        assert (file.size, file.findings) == (path.stat().st_size, ())
