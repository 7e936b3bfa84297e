"""Measures how far llama.cpp's own arithmetic is from exact arithmetic, by the type of the weights.

    python -m benchmarks.noise [TYPE ...]      all types if none is named; some ten minutes on two cores

Random drafts of several sizes and seeds and the trained pair are converted to F32, their matrices (with
embedding and head) and those of their targets quantised by ggml itself, and each file is validated
against its checkpoint. What the parity and the features then differ by is rounding, because everything else is right.
``dspark_convert/runtime/noise.py`` has the tolerances that follow, docs/validation.md the figures.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from dspark_convert.convert import Request, prepare, write
from dspark_convert.options import Options
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.validation import default_prompts, read_prompts, validate
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests.mutations.copies import read

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_0", "Q4_K", "Q4_0", "Q3_K", "Q2_K")
SEEDS = range(3)
TRAINED = Path(__file__).resolve().parent.parent / "fixtures" / "pair"


@dataclass(frozen=True)
class Model:
    name: str
    target_dir: Path
    draft_dir: Path
    prompts: list[str]


def models(root: Path) -> Iterator[Model]:
    """The trained pair, and random ones whose rows k-quants can hold."""
    yield Model("trained", TRAINED / "target", TRAINED / "draft", read_prompts(TRAINED / "prompts.txt"))
    sizes: dict[str, dict[str, Any]] = {
        "hidden 256, 3 layers": {"hidden_size": 256, "heads": 8, "intermediate_size": 512},
        "hidden 512, 5 layers": {"hidden_size": 512, "heads": 8, "head_dim": 64, "intermediate_size": 1024},
    }
    for name, size in sizes.items():
        for seed in SEEDS:
            layers = 5 if "5" in name[-8:] else 3
            pair = make_tiny_pair(
                root / f"{size['hidden_size']}-{seed}", seed=seed, markov_rank=256, draft_layers=layers, **size
            )
            yield Model(name, pair.target_dir, pair.draft_dir, default_prompts()[:4])


def quantise(source: Path, path: Path, type_name: str) -> None:
    """Writes ``source``, which is F32, with its matrices in ``type_name``."""
    library = ctypes.CDLL(str(find_library().path))
    chunk = library.ggml_quantize_chunk
    chunk.restype = ctypes.c_size_t
    chunk.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)

    def pack(values: NDArray[Any], kind: gguf.GGMLQuantizationType) -> NDArray[Any]:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        values = np.ascontiguousarray(values)
        rows, columns = values.shape
        packed = np.zeros((rows, columns // block * size), np.uint8)
        chunk(int(kind), values.ctypes.data, packed.ctypes.data, 0, rows, columns, None)
        return packed

    read(source).write(path, type_name, pack)


def in_child(source: Path, path: Path, type_name: str) -> None:
    """``quantise`` in a process of its own, which a crash of the library may end."""
    command = [sys.executable, "-m", "benchmarks.noise", "--quantise", str(source), str(path), type_name]
    subprocess.run(command, check=True)


def measure(model: Model, root: Path, types: list[str]) -> Iterator[tuple[str, list[float]]]:
    """(type, [logits, confidence, unrounded logits, layer inputs, weights]) for each type."""
    write_target_gguf(model.target_dir, target := root / "target.gguf")
    options = Options(outtype="f32", dialect="dflash", shared_tensors="include")
    request = Request(model.draft_dir, model.target_dir, None, root / "draft.gguf", options, force=True)
    draft = write(prepare(request), request).path
    for name in types:
        if model.name == "trained" and name.endswith("_K"):
            continue  # its rows of 128 do not fill a block of 256
        in_child(draft, quantised := root / f"draft-{name}.gguf", name)
        in_child(target, quantised_target := root / f"target-{name}.gguf", name)
        report = validate(
            quantised,
            quantised_target,
            reference=model.draft_dir,
            target_reference=model.target_dir,
            prompts=model.prompts,
            max_tokens=32,
        )
        parity = report.parity
        if parity is None or parity.held is None:
            raise SystemExit(f"{model.name}, {name}: {report.checks}")
        unrounded = parity.unrounded or parity.held
        yield (
            name,
            [
                max(position.relative for position in parity.held.positions),
                parity.held.confidence_max_abs or 0.0,
                max(position.relative for position in unrounded.positions),
                max(feature.target_relative or 0.0 for feature in parity.features),
                weight_distance(draft, quantised),
            ],
        )


def weight_distance(draft: Path, quantised: Path) -> float:
    """How far quantising moved fc.weight: root mean square of the difference over that of the values."""
    values = []
    for path in (draft, quantised):
        tensor = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "fc.weight")
        values.append(np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float64))
    return float(np.linalg.norm(values[1] - values[0]) / np.linalg.norm(values[0]))


def main(types: list[str]) -> None:
    worst: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number, model in enumerate(models(Path(temporary))):
            (root := Path(temporary) / f"run-{number}").mkdir()
            for name, figures in measure(model, root, types):
                key = (model.name, name)
                worst[key] = [max(pair) for pair in zip(figures, worst.get(key, figures), strict=True)]
                print(f"{model.name:22} {name:6} " + " ".join(f"{figure:9.2g}" for figure in figures), flush=True)
    print(
        "\nworst\n\n| model | type | logits | confidence | unrounded | layer inputs | weights |\n"
        "|---|---|---|---|---|---|---|"
    )
    for (model_name, name), figures in worst.items():
        print(f"| {model_name} | {name} | " + " | ".join(f"{figure:.2g}" for figure in figures) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--quantise"]:
        quantise(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    else:
        main(sys.argv[1:] or list(TYPES))
