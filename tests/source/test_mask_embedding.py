"""mask_embedding.pt beside torch.load, and files that mean harm, none of which may run anything or take long."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dspark_convert.errors import InputError
from dspark_convert.source.mask_embedding import read_mask_embedding
from dspark_convert.source.safetensors_header import read_bytes

DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float64: "F64"}


def vector(dtype: torch.dtype = torch.bfloat16, size: int = 96) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(dtype)


def saved(path: Path, value: object, **more: object) -> Path:
    torch.save(value, path, **more)  # type: ignore[arg-type]
    return path


def read(path: Path) -> tuple[int | None, torch.Tensor]:
    found = read_mask_embedding(path)
    dtype = {name: kind for kind, name in DTYPES.items()}[found.row.dtype]
    data = torch.frombuffer(bytearray(read_bytes(found.row)), dtype=dtype)
    assert (found.row.name, found.row.path, found.row.shape) == (path.name, path, tuple(data.shape))
    return found.token_id, data


def refused(path: Path) -> str:
    """Why, in the one sentence that is told."""
    with pytest.raises(InputError) as fault:
        read_mask_embedding(path)
    told = re.fullmatch(
        rf"{re.escape(str(path))} cannot be read: (.*); expected the mask token's .* writes it\.", str(fault.value)
    )
    assert told, str(fault.value)
    return told[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_published_forms(tmp_path: Path, dtype: torch.dtype, protocol: int) -> None:
    row = vector(dtype)
    forms: list[tuple[object, int | None]] = [
        ({"mask_token_id": 151669, "embedding": row}, 151669),
        (row, None),
        ({"mask_embedding": row}, None),
        (OrderedDict(mask_embedding=torch.nn.Parameter(row), mask_token_id=3), 3),
        ({"mask_token_id": 2**40, "embedding": row, "note": ["by", 1.5, None, True], "step": -7}, 2**40),
        (row[None], None),
        (torch.randn(4, 96).to(dtype)[2], None),  # a view: the whole table is stored
    ]
    for number, (value, token_id) in enumerate(forms):
        path = saved(tmp_path / f"{number}.pt", value, pickle_protocol=protocol)
        loaded = torch.load(path, weights_only=protocol == 2)
        expected = (
            loaded
            if isinstance(loaded, torch.Tensor)
            else next(v for v in loaded.values() if isinstance(v, torch.Tensor))
        )
        found, data = read(path)
        assert found == token_id
        assert torch.equal(data, expected.detach().reshape(-1))


def test_a_state_of_a_module(tmp_path: Path) -> None:
    """Its pickle has an attribute of the dictionary in it, which torch ignores too."""
    module = torch.nn.Module()
    module.embedding = torch.nn.Parameter(vector())
    state = module.state_dict()
    assert hasattr(state, "_metadata")
    assert torch.equal(read(saved(tmp_path / "m.pt", state))[1], vector())


def test_a_gpu_is_no_matter(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.pt", vector())
    rewritten(path, lambda _, data: data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
    assert torch.equal(read(path)[1], vector())


def rewritten(path: Path, change: Callable[[str, bytes], bytes | None], compression: int = zipfile.ZIP_STORED) -> Path:
    """The same zip file with other contents; None leaves an entry out."""
    with zipfile.ZipFile(path) as old:
        entries = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w", compression) as new:
        for name, data in entries:
            if (changed := change(name, data)) is not None:
                new.writestr(name, changed)
    return path


def with_pickle(path: Path, data: bytes) -> Path:
    saved(path, vector())
    return rewritten(path, lambda name, old: data if name.endswith("data.pkl") else old)


class Attack:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {os.environ['ATTACKED']}",)


def test_a_pickle_that_runs_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTACKED", str(tmp_path / "attacked"))
    for value in (Attack(), {"embedding": vector(), "note": Attack()}):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        path = tmp_path / "m.pt"
        path.write_bytes(buffer.getvalue())
        why = refused(path)
        assert why == "its data.pkl wants to load 'posix.system', which no tensor needs"
        assert not (tmp_path / "attacked").exists()
    torch.load(path, weights_only=False)  # it would have
    assert (tmp_path / "attacked").exists()


GLOBALS = [
    "os system",
    "builtins eval",
    "builtins getattr",
    "torch._utils _rebuild_tensor",
    "torch load",
    "x" * 500 + " y",
]


@pytest.mark.parametrize("name", GLOBALS)
@pytest.mark.parametrize("stacked", [False, True])
def test_names_of_functions(tmp_path: Path, name: str, stacked: bool) -> None:
    module, function = name.split(" ")
    data = f"c{module}\n{function}\n.".encode()
    if stacked:
        texts = [b"X" + struct.pack("<I", len(text)) + text.encode() for text in (module, function)]
        data = b"".join(texts) + b"\x93."
    why = refused(with_pickle(tmp_path / "m.pt", b"\x80\x04" + data))
    assert why.startswith("its data.pkl wants to load '")
    assert len(why) < 150


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x60tQ"
HUGE = b"\x8a\xff" + b"\x7f" * 255
LARGE = b"\x8a\x08" + b"\xff" * 7 + b"\x3f"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "its data.pkl is damaged"),
        (b".", "its data.pkl is damaged"),
        (b"\x80\x02}", "its data.pkl is damaged"),
        (b"\x80\x02\xfe.", "its data.pkl is damaged"),
        (b"X\xff\xff\xff\x7f.", "its data.pkl is damaged"),  # a text of 2 GB
        (b"\x8b\xff\xff\xff\x7f.", "its data.pkl is damaged"),  # a number of 2 GB
        (b"\x8d" + b"\xff" * 7 + b"\x7f.", "its data.pkl is damaged"),
        (b"h\x07.", "its data.pkl is damaged"),  # nothing was put there
        (b"K\x01r\xff\xff\xff\xff.", "it holds a int"),  # put at 2**32 - 1, which costs nothing
        (b"t.", "its data.pkl is damaged"),  # no mark
        (b"}K\x01K\x02s.", "its data.pkl is damaged"),  # a key that is no text
        (b")\x85" + b"\x85" * 40000 + b"}\x86.", "it holds a tuple"),
        (b"}" + b")" + b"\x85" * 40000 + b"K\x01s.", "its data.pkl is damaged"),  # to hash it would overflow C's stack
        (b")" * 20000 + b"(t" * 20000 + b".", "it holds a tuple"),
        (b"I" + b"9" * 5000 + b"\n.", "its data.pkl is damaged"),
        (b"K\x01K\x02R.", "its data.pkl is damaged"),
        (TENSOR + b"K\x01R.", "its data.pkl is damaged"),
        (TENSOR + b")R.", "its data.pkl is damaged"),
        (b"c__main__\nx\n" + TENSOR, "its data.pkl wants to load '__main__.x', which no tensor needs"),
        (TENSOR + b"(" + STORAGE + b"K\x00K\x60\x85J\xff\xff\xff\xff\x85\x89)tR.", "its data.pkl is damaged"),
        (TENSOR + b"(" + STORAGE + HUGE + b"K\x60\x85K\x01\x85\x89)tR.", "its data.pkl is damaged"),
        (TENSOR + b"(" + STORAGE + b"K\x00(" + HUGE + b"q\x00" + b"h\x00" * 9000 + b"t", "its data.pkl is damaged"),
        (b"(lp0\n.", "its data.pkl does what no tensor needs (opcode LIST)"),
        (b"cos\nsystem\n", "its data.pkl wants to load 'os.system', which no tensor needs"),
        (b"(X\x02\x00\x00\x00idios\nsystem\n.", "its data.pkl does what no tensor needs (opcode INST)"),
        (b"\x82\x01.", "its data.pkl does what no tensor needs (opcode EXT1)"),
        (b"P0\n.", "its data.pkl does what no tensor needs (opcode PERSID)"),
        (b"}.", "it needs one tensor named embedding or mask_embedding, and holds nothing"),
    ],
)
def test_pickles_that_mean_harm_or_nothing(tmp_path: Path, data: bytes, why: str) -> None:
    assert refused(with_pickle(tmp_path / "m.pt", data)) == why


def test_a_pickle_of_megabytes(tmp_path: Path) -> None:
    path = with_pickle(tmp_path / "m.pt", b"\x80\x02" + b"K\x01" * 2**20 + b".")
    assert refused(path) == "its data.pkl has 2097155 bytes, too many for one vector"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"weight": vector(), "x" * 100: 1}, "named embedding or mask_embedding, and holds 'weight', 'xxx"),
        ({"embedding": vector(), "mask_embedding": vector()}, "needs one tensor named embedding or mask_embedding"),
        ({"embedding": [1.0, 2.0]}, "needs one tensor named"),
        ({"embedding": vector(), "mask_token_id": 1.5}, "its mask_token_id is no whole number but a float"),
        ({"embedding": vector(), "mask_token_id": True}, "its mask_token_id is no whole number but a bool"),
        ([vector()], "it holds a list"),
        (None, "it holds a NoneType"),
        (torch.zeros(2, 3), "shape [2, 3] and strides [3, 1], which is no vector in one piece"),
        (torch.zeros(4, 4)[:, 1], "shape [4] and strides [4], which is no vector in one piece"),
        (torch.zeros(1).expand(8), "shape [8] and strides [0], which is no vector in one piece"),
        (torch.tensor(3.0), "shape [] and strides [], which is no vector in one piece"),
        (torch.zeros(8, dtype=torch.int64), "wants to load 'torch.LongStorage', which no tensor needs"),
        (torch.zeros(8).to(torch.float8_e4m3fn), "which no tensor needs"),
        (torch.zeros(8, dtype=torch.bfloat16).to_sparse(), "which no tensor needs"),
    ],
)
def test_other_contents(tmp_path: Path, value: object, why: str) -> None:
    assert why in refused(saved(tmp_path / "m.pt", value))


def test_numbers_that_are_not_all_there(tmp_path: Path) -> None:
    def tensor(first: int, count: int, held: int = 0x60) -> bytes:
        storage = STORAGE.replace(b"K\x60", b"J" + struct.pack("<i", held))
        size = b"J" + struct.pack("<i", count) + b"\x85K\x01\x85\x89)tR."
        return TENSOR + b"(" + storage + b"J" + struct.pack("<i", first) + size

    saved(tmp_path / "m.pt", vector(torch.float32))

    def why(data: bytes) -> str:
        return refused(rewritten(tmp_path / "m.pt", lambda name, old: data if name.endswith("data.pkl") else old))

    assert why(tensor(1, 96)).endswith("96 numbers from 1 on of 96 (F32), but there are 384 bytes")
    assert why(tensor(0, 97)).endswith("97 numbers from 0 on of 96 (F32), but there are 384 bytes")
    assert why(tensor(0, 2**31 - 1, 2**31 - 1)).endswith("of 2147483647 (F32), but there are 384 bytes")
    assert why(tensor(0, 96).replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x007")).endswith(
        "numbers (data/'7') are missing"
    )
    rewritten(tmp_path / "m.pt", lambda name, old: tensor(90, 6) if name.endswith("data.pkl") else old)
    assert torch.equal(read(tmp_path / "m.pt")[1], vector(torch.float32)[90:])


def test_zip_files_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    assert "is compressed" in refused(rewritten(saved(path, vector()), lambda _, data: data, zipfile.ZIP_DEFLATED))
    assert refused(rewritten(path, lambda name, data: None if name.endswith(".pkl") else data)).endswith(
        "no data.pkl in it"
    )
    rewritten(saved(path, vector()), lambda name, data: b"big" if name.endswith("byteorder") else data)
    assert refused(path) == "its numbers are big-endian"
    rewritten(saved(path, vector()), lambda name, data: None if name.endswith("byteorder") else data)
    assert torch.equal(read(path)[1], vector())  # before PyTorch 2.1 there was none
    with zipfile.ZipFile(saved(path, vector()), "a") as more, pytest.warns(UserWarning, match="Duplicate name"):
        more.writestr("m/data.pkl", b".")
    assert refused(path) == "its zip directory names 'm/data.pkl' twice"
    with zipfile.ZipFile(saved(path, vector()), "a") as more:
        for number in range(64):
            more.writestr(f"m/data/x{number}", b"")
    assert "too many for one vector" in refused(path)
    encrypted = bytearray(saved(path, vector()).read_bytes())
    encrypted[encrypted.find(b"PK\1\2") + 8] |= 1
    path.write_bytes(encrypted)
    assert refused(path) == "its entry 'm/data.pkl' is encrypted"


def test_files_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    saved(path, vector(), _use_new_zipfile_serialization=False)
    assert refused(path) == "it is of the format that PyTorch had before 1.6"
    path.write_bytes(pickle.dumps({"embedding": [1.0]}))
    assert refused(path) == "it does not end as a zip file does: it is another file, or cut short"
    path.write_bytes(b"")
    assert refused(path) == "it does not end as a zip file does: it is another file, or cut short"
    path.unlink()
    os.mkfifo(path)
    assert refused(path) == "it is no regular file"
    path.unlink()
    with pytest.raises(InputError, match=r"m\.pt cannot be read: No such file or directory\.$"):
        read_mask_embedding(path)


def test_every_cut_and_every_damaged_byte_of_the_structure(tmp_path: Path) -> None:
    """Each is refused in a sentence, or changes nothing that is read; nothing else is raised."""
    path = saved(tmp_path / "m.pt", {"mask_token_id": 7, "embedding": vector()})
    whole = path.read_bytes()
    row = read_mask_embedding(path).row
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        refused(path)
    told = 0
    for at in [*range(row.offset), *range(row.offset + row.nbytes, len(whole))]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (0x01, 0x80, 0xFF)[at % 3]]) + whole[at + 1 :])
        try:
            found = read_mask_embedding(path).row
        except InputError:
            told += 1
        else:
            assert found.nbytes > 0
            assert found.offset + found.nbytes <= len(whole)
    assert told > 200
