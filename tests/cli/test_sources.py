"""Where a planned tensor comes from, told in few words from which every name can be made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dspark_convert.cli.sources import source_names, source_text
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from tests.conftest import Convert


def job(*names: str, scales: tuple[str, ...] = ()) -> TensorJob:
    def ref(name: str) -> TensorRef:
        return TensorRef(name, Path("s"), "I8", (2, 16), 0, 32)

    scaled = [*scales, *[""] * (len(names) - len(scales))]
    sources = tuple(
        Source(ref(name), scales=ref(scale) if scale else None) for name, scale in zip(names, scaled, strict=True)
    )
    return TensorJob("t", GGMLType.MXFP4, (32, 2, len(names) or 1), sources)


def expanded(names: list[str]) -> list[str]:
    """As the schema explains it."""
    found = []
    for name in names:
        if match := re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", name):
            found += [f"{match[1]}{i}{match[4]}" for i in range(int(match[2]), int(match[3]) + 1)]
        else:
            found.append(name)
    return found


EXPERTS = [f"mtp.0.ffn.experts.{i}.w1.weight" for i in range(12)]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["norm.weight"], "norm.weight"),
        (["mtp.0.norm.weight"], "mtp.0.norm.weight"),
        (EXPERTS, "mtp.0.ffn.experts.0 … 11.w1.weight"),
        (EXPERTS[3:], "mtp.0.ffn.experts.3 … 11.w1.weight"),
        (EXPERTS[::-1], "mtp.0.ffn.experts.11.w1.weight and 11 more"),
        (EXPERTS[:3] + EXPERTS[4:], "mtp.0.ffn.experts.0.w1.weight and 10 more"),
        (["a.0.b.0", "a.1.b.1"], "a.0.b.0 and 1 more"),
        (["a", "b"], "a and 1 more"),
        (["a.00", "a.01"], "a.00 and 1 more"),
        (["a.1", "a.1"], "a.1 and 1 more"),
        (["a.9", "a.10"], "a.9 … 10"),
        (["a.0", "a.1.x"], "a.0 and 1 more"),
    ],
)
def test_a_row_of_names(names: list[str], text: str) -> None:
    made = job(*names)
    assert source_text(made) == text
    assert expanded(source_names(made)) == names


def test_scales_are_told_in_json() -> None:
    scales = tuple(name.replace("weight", "scale") for name in EXPERTS)
    names = source_names(job(*EXPERTS, scales=scales))
    assert names == ["mtp.0.ffn.experts.{0..11}.w1.weight", "mtp.0.ffn.experts.{0..11}.w1.scale"]
    assert expanded(names) == [*EXPERTS, *scales]


def test_everything_that_is_read_is_told() -> None:
    def ref(name: str) -> TensorRef:
        return TensorRef(name, Path("s"), "U8", (2, 32), 0, 64)

    codes = TensorJob("t", GGMLType.NVFP4, (64, 2), (Source(ref("x"), "nvfp4", ref("x_s"), tensor_scale=ref("x_s_2")),))
    assert (source_text(codes), source_names(codes)) == ("x", ["x", "x_s", "x_s_2"])
    patched = TensorJob("t", GGMLType.F16, (32, 2), (Source(ref("x")),), "patch_row", row=1, patch=ref("m.pt"))
    assert (source_text(patched), source_names(patched)) == ("x, a row of m.pt", ["x", "m.pt"])
    literal = TensorJob("t", GGMLType.F32, (1,), (), "literal", literal=bytes(4))
    assert (source_text(literal), source_names(literal)) == ("the config", [])


def test_a_dry_run_tells_of_every_tensor_of_a_draft(tmp_path: Path, convert: Convert) -> None:
    from fixtures.deepseek4 import make_deepseek4
    from tests.checkpoints import read_tensors

    root = make_deepseek4(tmp_path / "v4")
    tensors = convert(root, "--dry-run", "--json").document["plan"]["tensors"]
    named = [name for tensor in tensors for name in expanded(tensor["sources"])]
    stored = {name for path in root.glob("*.safetensors") for name in read_tensors(path) if name.startswith("mtp.")}
    assert sorted(named) == sorted(stored)
    assert max(len(tensor["sources"]) for tensor in tensors) == 2
    assert re.search(r"mtp\.0\.ffn\.experts\.0 … \d+\.w1\.weight", convert(root, "--dry-run").out)
