"""Rules over the companions of a matrix: ``<name>.scale`` and ``<name>.input_scale``, F32, that NVFP4 has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.lint.wanted import Wanted

SUFFIXES = (".scale", ".input_scale")

#: the scales that llama.cpp multiplies with when it computes DeepSeek-V4 stages
APPLIED = ("fc.scale", "markov_w2.scale")


def is_scale(tensor: GGUFTensor, by_name: Mapping[str, Wanted]) -> bool:
    """Whether ``tensor`` goes with one of the matrices ``by_name``."""
    return any(
        tensor.name.endswith(suffix) and f"{tensor.name.removesuffix(suffix)}.weight" in by_name for suffix in SUFFIXES
    )


def check_scales(file: GGUFFile, by_name: Mapping[str, Wanted]) -> Iterator[Finding]:
    """For DeepSeek-V4 stages."""
    found = [tensor.name for tensor in file.tensors if tensor.name not in APPLIED and is_scale(tensor, by_name)]
    if found:
        message = f"llama.cpp computes DeepSeek-V4 stages without such scales, of which the file has {len(found)}."
        yield error("scale-unapplied", found[0], message, "convert with a type that needs no scales beside it")
