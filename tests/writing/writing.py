"""What the tests of the writer write: every value type that matters, every cast and transform."""

from __future__ import annotations

from pathlib import Path

from dspark_convert.ggufio.types import KV, GGMLType, ValueType, array, boolean, f32, string, u32
from dspark_convert.jobs import TensorJob
from tests.tensors.jobs import job, numbers, source

METADATA = [
    string("general.architecture", "dflash"),
    u32("dflash.block_size", 7),
    f32("dflash.rope.freq_base", 1e6),
    boolean("dflash.sample_from_anchor", True),
    array("dflash.target_layers", ValueType.INT32, [0, 9, -1]),
    array("tokenizer.ggml.tokens", ValueType.STRING, ["Ġ", "", "é" * 300]),
    KV("big", ValueType.UINT64, 1 << 63),
]


def jobs(tmp_path: Path) -> list[TensorJob]:
    inputs = tmp_path / "inputs"
    inputs.mkdir(exist_ok=True)
    made = []
    for target in (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0):
        ref = source(inputs / f"{target.name}.bin", numbers("BF16", (5, 64), int(target)), "BF16")
        made.append(job(ref, target, name=f"{target.name}.weight"))
    padded = source(inputs / "padded.bin", numbers("F32", (3, 33)), "F32")
    made.append(job(padded, GGMLType.F32, shape=(35, 3), transform="pad_columns", name="padded"))
    made.append(job(None, GGMLType.BF16, shape=(3, 1), transform="zeros", name="zeros"))
    return made


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"inputs"}
