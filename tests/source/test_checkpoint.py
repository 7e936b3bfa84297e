"""Which files of a directory are read. What is wrong with them: tests/refusals/test_files.py."""

from __future__ import annotations

import pytest

from dspark_convert.errors import InputError
from dspark_convert.source.checkpoint import Needs, find_tensor, open_checkpoint
from tests.checkpoints import Pair, header_of, read_tensors, write_tensors, zeros

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def test_one_file(pair: Pair) -> None:
    checkpoint = open_checkpoint(pair.draft)
    assert checkpoint.findings == ()
    assert checkpoint.complete
    assert {ref.path.name for ref in checkpoint.tensors.values()} == {"model.safetensors"}
    stored = read_tensors(pair.shard)
    assert {n: (r.dtype, r.shape, r.nbytes) for n, r in checkpoint.tensors.items()} == {
        name: (tensor.dtype, tensor.shape, len(tensor.data)) for name, tensor in stored.items()
    }


@pytest.mark.parametrize("index", [True, False])
def test_shards(index: bool, pair: Pair) -> None:
    whole = open_checkpoint(pair.draft).tensors
    pair.split(index)
    checkpoint = open_checkpoint(pair.draft)
    assert checkpoint.findings == ()
    assert sorted({ref.path.name for ref in checkpoint.tensors.values()}) == SHARDS
    assert {(n, r.dtype, r.shape) for n, r in checkpoint.tensors.items()} == {
        (n, r.dtype, r.shape) for n, r in whole.items()
    }


def test_shard_that_the_index_does_not_list_is_left_alone(pair: Pair) -> None:
    pair.split()
    write_tensors(pair.draft / "stale.safetensors", {"norm.weight": zeros("F32", 3)})
    checkpoint = open_checkpoint(pair.draft)
    assert [(f.severity, f.rule, f.where) for f in checkpoint.findings] == [
        ("warning", "shard-unlisted", "stale.safetensors")
    ]
    assert checkpoint.complete
    assert checkpoint.tensors["norm.weight"].shape == (128,)


def test_hidden_files_are_litter(pair: Pair) -> None:
    (pair.draft / "._model.safetensors").write_bytes(b"\0\5\x16\7 AppleDouble")
    (pair.draft / "._model.safetensors.index.json").write_bytes(b"\0\5\x16\7")
    assert open_checkpoint(pair.draft).findings == ()
    assert find_tensor(pair.draft, "norm.weight") is not None


@pytest.mark.parametrize("split", [False, True])
def test_find_tensor(split: bool, pair: Pair) -> None:
    if split:
        pair.split()
    for name, ref in open_checkpoint(pair.draft).tensors.items():
        assert find_tensor(pair.draft, name) == ref
    assert find_tensor(pair.draft, "no.such.tensor") is None
    for path in pair.draft.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    assert find_tensor(pair.draft, "norm.weight") is None


def test_find_tensor_does_not_follow_an_index_out_of_the_directory(pair: Pair) -> None:
    pair.shard.rename(pair.root / "outside.safetensors")
    pair.index({"weight_map": {"norm.weight": "../outside.safetensors"}})
    assert find_tensor(pair.draft, "norm.weight") is None
    pair.index("no object")
    assert find_tensor(pair.draft, "norm.weight") is None


def test_nothing_but_headers_is_read(pair: Pair) -> None:
    """64 GiB of weights are a hole in the file."""
    tensors = read_tensors(pair.shard)
    header = header_of(
        {**{n: (t.dtype, t.shape, len(t.data)) for n, t in tensors.items()}, "big": ("I8", (1 << 36,), 1 << 36)}
    )
    with pair.shard.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(len(t.data) for t in tensors.values()) + (1 << 36))
    checkpoint = open_checkpoint(pair.draft)
    assert checkpoint.findings == ()
    assert checkpoint.tensors["big"].nbytes == 1 << 36


def test_no_weights_at_all(pair: Pair) -> None:
    pair.shard.unlink()
    with pytest.raises(InputError, match="no weights"):
        open_checkpoint(pair.draft)


def test_of_thousands_of_missing_shards_a_few_are_named(pair: Pair) -> None:
    pair.index({"weight_map": {f"t{i}": f"{i:05d}.safetensors" for i in range(3000)}})
    missing, stray = open_checkpoint(pair.draft).findings
    assert missing.rule == "shard-missing"
    assert missing.message.startswith("all 3,000 files are missing: 00000.safetensors (1 tensor), ")
    assert missing.message.endswith("00007.safetensors (1 tensor) and 2992 more.")
    assert len(missing.message + missing.where) < 600
    assert stray.rule == "shard-unlisted"


def only(*wanted: str, embedded: bool = True) -> Needs:
    return lambda _config, names: ([name for name in names if name in wanted], embedded)


def test_files_without_a_needed_tensor_are_not_looked_for(pair: Pair) -> None:
    weight_map = pair.split(shards=3)["weight_map"]
    kept = weight_map["norm.weight"]
    for file in {*weight_map.values()} - {kept}:
        (pair.draft / file).unlink()
    checkpoint = open_checkpoint(pair.draft, needs=only("norm.weight"))
    assert checkpoint.findings == ()
    assert (checkpoint.indexed, set(checkpoint.names)) == (True, set(weight_map))
    assert set(checkpoint.tensors) == {name for name, file in weight_map.items() if file == kept}
    (pair.draft / kept).unlink()
    (missing,) = open_checkpoint(pair.draft, needs=only("norm.weight")).findings
    assert (missing.rule, missing.where) == ("shard-missing", kept)
    assert missing.message == f"the 1 file that holds the draft (of 3 in all) is missing: {kept} (1 tensor)."


def test_missing_files_are_told_in_a_sentence(pair: Pair) -> None:
    """One of three; and of a draft inside its target, whose last three files of 48 were not fetched."""
    pair.split(shards=3)
    second = "model-00002-of-00003.safetensors"
    (pair.draft / second).unlink()
    (missing,) = open_checkpoint(pair.draft).findings
    assert missing.message == f"1 of the 3 files is missing: {second} (14 tensors)."
    assert missing.fix == "fetch it into the same directory"

    files = [f"model-{number:05d}-of-00048.safetensors" for number in range(1, 49)]
    pair.index({"weight_map": {f"t{i}": files[i % 48] for i in range(48 * 1200)}})
    for path in pair.draft.glob("*.safetensors"):
        path.unlink()
    for file in files[:45]:
        (pair.draft / file).touch()
    names = [f"t{i}" for i in range(48 * 1200) if i % 48 >= 45]
    (missing,) = open_checkpoint(pair.draft, needs=only(*names)).findings
    assert missing.message == (
        "all 3 files that hold the draft (of 48 in all) are missing: model-00046-of-00048.safetensors (1,200 tensors), "
        "model-00047-of-00048.safetensors (1,200 tensors), model-00048-of-00048.safetensors (1,200 tensors)."
    )
    assert missing.fix == "fetch them into the same directory"


@pytest.mark.parametrize("embedded", [True, False])
def test_without_an_index_a_shard_less_may_be_the_targets(embedded: bool, pair: Pair) -> None:
    pair.split(index=False, shards=3)
    (pair.draft / "model-00001-of-00003.safetensors").unlink()
    checkpoint = open_checkpoint(pair.draft, needs=only("norm.weight", embedded=embedded))
    rule = ("info", "shard-absent") if embedded else ("error", "shard-missing")
    assert [(f.severity, f.rule) for f in checkpoint.findings] == [rule]
    assert checkpoint.complete is embedded
    assert (checkpoint.indexed, set(checkpoint.names)) == (False, set(checkpoint.tensors))
