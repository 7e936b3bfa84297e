"""Damaged, foreign and hostile files of a checkpoint (failures.md 2a)."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.checkpoints import Pair, header_bytes, read_tensors, write_tensors, zeros
from tests.conftest import Convert
from tests.refusals.case import Case, both, check_refused, config

SHARD = "model.safetensors"
SECOND = "model-00002-of-00002.safetensors"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1048576\n"


def content(data: bytes) -> Callable[[Pair], object]:
    return lambda pair: pair.shard.write_bytes(data)


def cut(count: int) -> Callable[[Pair], object]:
    return lambda pair: os.truncate(pair.shard, pair.shard.stat().st_size - count)


def cut_to(size: int) -> Callable[[Pair], object]:
    return lambda pair: os.truncate(pair.shard, size)


def unlink(pair: Pair) -> None:
    pair.shard.unlink()


def trailing(pair: Pair) -> None:
    with pair.shard.open("ab") as file:
        file.write(b"\0" * 5)


def duplicate_key(pair: Pair) -> None:
    data = pair.shard.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    text = data[8 : 8 + length].rstrip()
    start = text.index(b'"norm.weight"')
    entry = text[start : text.index(b"}", start) + 1]
    pair.shard.write_bytes(header_bytes(text[:-1] + b"," + entry + b"}") + data[8 + length :])


def reheader(change: Callable[[dict[str, Any]], object]) -> Callable[[Pair], object]:
    """Edit the header and leave the bytes behind it as they are."""

    def damage(pair: Pair) -> None:
        data = pair.shard.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        change(header)
        pair.shard.write_bytes(header_bytes(json.dumps(header)) + data[8 + length :])

    return damage


def overlap(header: dict[str, Any]) -> None:
    header["norm.weight"]["data_offsets"] = header["hidden_norm.weight"]["data_offsets"]


def indexed(change: Callable[[Pair, dict[str, str]], object]) -> Callable[[Pair], object]:
    """Split into two shards and edit the index's weight_map."""

    def damage(pair: Pair) -> None:
        document = pair.split()
        change(pair, document["weight_map"])
        pair.index(document)

    return damage


def second_file(pair: Pair) -> None:
    write_tensors(pair.draft / "more.safetensors", {"norm.weight": zeros("BF16", 128)})


def two_splits(pair: Pair) -> None:
    tensors = read_tensors(pair.shard)
    for total in (2, 3):
        for number in range(total):
            part = {name: tensors[name] for name in list(tensors)[number::total]}
            write_tensors(pair.draft / f"model-{number + 1:05d}-of-{total:05d}.safetensors", part)
    pair.shard.unlink()


def one_of_two(pair: Pair) -> None:
    pair.split(index=False)
    (pair.draft / SECOND).unlink()


def outside(pair: Pair) -> None:
    """A file beside the directory that holds exactly what the index asks for."""
    pair.shard.rename(pair.root / "evil.safetensors")
    names = read_tensors(pair.root / "evil.safetensors")
    pair.index({"weight_map": dict.fromkeys(names, "../evil.safetensors")})


def place(name: str, file: Any) -> Callable[[Pair], object]:
    return indexed(lambda _, weight_map: weight_map.update({name: file}))


def lost_shard(pair: Pair, _: dict[str, str]) -> None:
    (pair.draft / SECOND).unlink()


def lfs_shard(pair: Pair, _: dict[str, str]) -> None:
    (pair.draft / SECOND).write_bytes(LFS)


def moved(_: Pair, weight_map: dict[str, str]) -> None:
    weight_map["norm.weight"] = next(f for f in weight_map.values() if f != weight_map["norm.weight"])


def unlisted(_: Pair, weight_map: dict[str, str]) -> None:
    del weight_map["norm.weight"]


def phantom(_: Pair, weight_map: dict[str, str]) -> None:
    weight_map["phantom.weight"] = SECOND


UNREADABLE = (("shard-unreadable", SHARD),)
CUT = (("shard-truncated", SHARD),)

CASES = [
    Case("G01 cut by 1 KB", cut(1024), CUT, ("fetch it again",)),
    Case("G01 cut by a byte", cut(1), CUT),
    # where the tables that are compared with the target's lie
    Case("G01 cut by half", lambda pair: os.truncate(pair.shard, pair.shard.stat().st_size // 2), CUT),
    Case("G01 cut in the first tensor", cut_to(8192), CUT),
    Case("G01 cut in the header", cut_to(100), CUT, ("100 bytes",)),
    Case("G01 cut in the length", cut_to(5), CUT, ("5 bytes",)),
    Case("G02 LFS pointer", content(LFS), UNREADABLE, ("Git LFS pointer", "git lfs pull")),
    Case("G02 page", content(b"<!DOCTYPE html>\n<html>..."), UNREADABLE, ("HTML",)),
    Case("G02 error", content(b'{"error":"Invalid credentials"}'), UNREADABLE, ("error message",)),
    Case("G02 empty", content(b""), UNREADABLE, ("empty",)),
    Case("G02 noise", content(b"\xff" * 4096), UNREADABLE, ("no safetensors",)),
    Case("no JSON", content(header_bytes(b"{'a': 1}")), UNREADABLE, ("JSON",)),
    Case("G04 duplicate key", duplicate_key, UNREADABLE, ("'norm.weight'", "twice")),
    Case("G04 overlap", reheader(overlap), (("shard-header", "norm.weight"),), ("overlaps", "hidden_norm.weight")),
    Case("G04 trailing bytes", trailing, (("shard-header", SHARD),), ("5 bytes behind",)),
    Case(
        "unknown dtype",
        reheader(lambda h: h["norm.weight"].update(dtype="F12")),
        (("shard-header", "norm.weight"),),
        ("'F12'",),
    ),
    Case(
        "shape against offsets",
        reheader(lambda h: h["norm.weight"].update(shape=[129])),
        (("shard-header", "norm.weight"),),
        ("258", "256"),
    ),
    Case(
        "G05 twice in two files",
        second_file,
        (("tensor-duplicate", "norm.weight"),),
        ("model.safetensors and more.safetensors",),
    ),
    Case("G08 two splits", two_splits, (("shard-families", "-of-00002 and -of-00003"),), ("several splits",)),
    Case("one of two shards, no index", one_of_two, (("shard-missing", "*.safetensors"),), ("numbers 2",)),
    Case(
        "G03 a shard is missing",
        indexed(lost_shard),
        (("shard-missing", SECOND),),
        ("1 of the 2 files is missing", "(21 tensors)"),
    ),
    Case("G03 in another shard", indexed(moved), (("shard-index", "norm.weight"),), ("which is not so",)),
    Case("G03 not in the index", indexed(unlisted), (("shard-index", "norm.weight"),), ("does not list",)),
    Case("G03 in no shard", indexed(phantom), (("shard-index", "phantom.weight"),), ("which is not so",)),
    Case("G02 one shard is a pointer", indexed(lfs_shard), (("shard-unreadable", SECOND),), ("git lfs pull",)),
    Case(
        "G06 all outside",
        outside,
        (("shard-index", "confidence_head.proj.bias"),),
        ("'../evil.safetensors'", "bare file name", "and 41 more"),
    ),
    *(
        Case(f"G06 {bad!r}"[:40], place("norm.weight", bad), (("shard-index", "norm.weight"),) * 2, ("bare file name",))
        for bad in (
            "../evil.safetensors",
            "/etc/passwd",
            "sub/model.safetensors",
            "a\\b",
            "a\0b",
            "",
            ".",
            "..",
            7,
            None,
            ["x"],
            "x" * 300,
        )
    ),
    Case(
        "a lone surrogate",
        place("norm.weight", "\ud800.safetensors"),
        (("shard-missing", "\ud800.safetensors"),),
    ),
    Case("index without a map", lambda pair: pair.index({"metadata": {}}), says=("weight_map",)),
    Case("index of another form", lambda pair: pair.index([1]), says=("model.safetensors.index.json", "object")),
    Case(
        "two indexes",
        both(
            lambda pair: pair.index({"weight_map": dict.fromkeys(read_tensors(pair.shard), SHARD)}),
            lambda pair: (pair.draft / "other.safetensors.index.json").write_text("{}"),
        ),
        (("shard-index", "model.safetensors.index.json, other.safetensors.index.json"),),
    ),
    Case(
        "a directory in place of the shard",
        both(unlink, lambda pair: pair.shard.mkdir()),
        UNREADABLE,
        ("directory",),
    ),
    Case(
        "a link to nowhere",
        both(unlink, lambda pair: pair.shard.symlink_to("gone")),
        UNREADABLE,
        ("No such file",),
    ),
    Case(
        "damage and a bad config together",
        both(content(LFS), config(block_size=0)),
        UNREADABLE,
        ("Git LFS",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)
