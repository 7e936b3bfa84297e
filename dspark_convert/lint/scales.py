"""Rules over the companions of a matrix: ``<name>.scale`` and ``<name>.input_scale``, F32, that NVFP4 has."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from math import isfinite

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, warning
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.lint.fixes import AGAIN, SHOWN_NAMES, VALIDATE
from dspark_convert.lint.wanted import Wanted
from dspark_convert.words import listed

#: ends of their names
SUFFIXES = (".scale", ".input_scale")

#: the scales that llama.cpp multiplies with when it computes DeepSeek-V4 stages
APPLIED = ("fc.scale", "markov_w2.scale")
#: parts of a layer like Qwen3's whose scales it multiplies with
PROJECTIONS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def is_scale(tensor: GGUFTensor, by_name: Mapping[str, Wanted]) -> bool:
    """Whether ``tensor`` goes with one of the matrices ``by_name``."""
    return any(
        tensor.name.endswith(suffix) and f"{tensor.name.removesuffix(suffix)}.weight" in by_name for suffix in SUFFIXES
    )


def check_scales(file: GGUFFile, draft: Draft, by_name: Mapping[str, Wanted]) -> Iterator[Finding]:
    found = [tensor for tensor in file.tensors if is_scale(tensor, by_name)]
    if draft.deepseek4 is not None:
        unread = [tensor.name for tensor in found if tensor.name not in APPLIED]
        if unread:
            message = f"llama.cpp computes DeepSeek-V4 stages without such scales, of which the file has {len(unread)}."
            yield error("scale-unapplied", unread[0], message, "convert with a type that needs no scales beside it")
        return
    unread = [tensor.name for tensor in found if not _is_applied(file, tensor.name)]
    if unread:
        message = f"llama.cpp has no scales for these matrices, and refuses the file: {listed(unread, SHOWN_NAMES)}."
        yield error("scale-unapplied", unread[0], message, "convert with a type that needs no scales beside it")
    yield from _values(file, found)
    yield from _nvfp4(file)


def _is_applied(file: GGUFFile, name: str) -> bool:
    matrix = name.rpartition(".")[0]
    if matrix == "output":
        head = file.tensor("output.weight")
        return head is not None and head.type is GGMLType.NVFP4
    return name in APPLIED or (matrix.startswith("blk.") and matrix.rpartition(".")[2] in PROJECTIONS)


def _values(file: GGUFFile, scales: list[GGUFTensor]) -> Iterator[Finding]:
    bad = []
    for tensor in scales:
        if tensor.shape != (1,):
            message = f"the shape is {list(tensor.shape)}; a scale is one number, [1]."
            yield error("tensor-shape", tensor.name, message, AGAIN)
        elif tensor.type is GGMLType.F32 and file.holds(tensor):
            order = "<" if file.byte_order == "little" else ">"
            (value,) = struct.unpack(f"{order}f", file.data(tensor))
            if not (isfinite(value) and value > 0):
                bad.append(f"{tensor.name} ({value:g})")
    if bad:
        message = f"scales have to be positive numbers: {listed(bad, SHOWN_NAMES)}."
        yield error("scale-value", bad[0].partition(" ")[0], message, AGAIN)


def _nvfp4(file: GGUFFile) -> Iterator[Finding]:
    """The second scale of a published NVFP4 matrix; what llama.cpp rounds to NVFP4 itself has none at all."""
    matrices = [tensor.name for tensor in file.tensors if tensor.type is GGMLType.NVFP4]
    bare = [name for name in matrices if file.tensor(f"{name.removesuffix('.weight')}.scale") is None]
    if not bare:
        return
    if len(bare) < len(matrices):
        message = f"{len(bare)} of {len(matrices)} NVFP4 matrices have no .scale: {listed(bare, SHOWN_NAMES)}."
        yield error("nvfp4-scale", bare[0], message, AGAIN)
    else:
        message = (
            f"none of {len(bare)} NVFP4 matrices has a .scale: right if llama.cpp rounded them, wrong if they were"
            " published so."
        )
        yield warning("nvfp4-scale", bare[0], message, VALIDATE)
