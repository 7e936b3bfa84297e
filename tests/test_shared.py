"""Whether a draft's own embeddings and head are the target's, seen from a few rows of both."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.checkpoints import Pair, Tensor, Tensors, read_tensors
from tests.conftest import Convert

EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
MASK = 507


def differing(pair: Pair, convert: Convert, target: Path) -> list[str]:
    flag = "--target-gguf" if target.is_file() else "--target-model-dir"
    ended = convert(pair.draft, flag, target, "--dry-run", "--json")
    found = ended.findings("error")
    assert {rule for rule, _ in found} <= {"shared-differs"}
    assert ended.code == (3 if found else 0)
    return [where for _, where in found]


def change_row(name: str, row: int) -> object:
    def change(tensors: Tensors) -> None:
        tensor = tensors[name]
        data = bytearray(tensor.data)
        size = len(data) // tensor.shape[0]
        data[row * size : (row + 1) * size] = b"\x80\x3f" * (size // 2)
        tensors[name] = tensor._replace(data=bytes(data))

    return change


def as_f32(name: str) -> object:
    def change(tensors: Tensors) -> None:
        bits = np.frombuffer(tensors[name].data, np.uint16).astype(np.uint32) << 16
        tensors[name] = Tensor("F32", tensors[name].shape, bits.tobytes())

    return change


def table(pair: Pair, name: str) -> np.ndarray:
    tensor = read_tensors(pair.shard)[name]
    return (np.frombuffer(tensor.data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)


def target_file(pair: Pair, tables: dict[str, np.ndarray], kind: str) -> Path:
    """The target's GGUF with the tables in another type; the fixture's own keys are kept."""
    reader = gguf.GGUFReader(pair.gguf)
    path = pair.root / f"{kind}.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        sub = field.types[1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub)
    quant = gguf.GGMLQuantizationType[kind]
    for name, values in tables.items():
        # gguf makes no Q1_0: its bytes here are any.
        size = values.shape[1] // 128 * 18
        data = np.zeros((len(values), size), np.uint8) if kind == "Q1_0" else gguf.quants.quantize(values, quant)
        writer.add_tensor(name, data, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", [EMBED, HEAD])
def test_one_row(name: str, pair: Pair, convert: Convert) -> None:
    pair.tensors(change_row(name, 511))
    for target in (pair.target, pair.gguf):
        assert differing(pair, convert, target) == [name]


def test_an_embedding_that_was_trained_for_the_mask_token(pair: Pair, convert: Convert) -> None:
    pair.tensors(change_row(EMBED, MASK))
    for target in (pair.target, pair.gguf):
        assert differing(pair, convert, target) == [EMBED]
    # another mask token, whose row is the target's
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run", "--mask-token-id", "506")
    assert ended.code == 0


def test_another_type_is_no_difference(pair: Pair, convert: Convert) -> None:
    pair.tensors(as_f32(EMBED))
    pair.tensors(as_f32(HEAD))
    for target in (pair.target, pair.gguf):
        assert differing(pair, convert, target) == []


def test_another_type_does_not_hide_a_difference(pair: Pair, convert: Convert) -> None:
    pair.tensors(as_f32(EMBED))
    pair.tensors(change_row(EMBED, MASK))
    for target in (pair.target, pair.gguf):
        assert differing(pair, convert, target) == [EMBED]


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_a_target_file_in_other_types(kind: str, pair: Pair, convert: Convert) -> None:
    embed, head = table(pair, EMBED), table(pair, HEAD)
    same = target_file(pair, {"token_embd.weight": embed, "output.weight": head}, kind)
    assert differing(pair, convert, same) == []
    swapped = target_file(pair, {"token_embd.weight": head, "output.weight": embed}, kind)
    assert differing(pair, convert, swapped) == [EMBED, HEAD]
    tied = target_file(pair, {"token_embd.weight": embed}, kind)
    assert differing(pair, convert, tied) == [HEAD]


def test_a_type_that_is_not_read_here_is_let_pass(pair: Pair, convert: Convert) -> None:
    head = table(pair, HEAD)
    assert differing(pair, convert, target_file(pair, {"token_embd.weight": head, "output.weight": head}, "Q1_0")) == []
