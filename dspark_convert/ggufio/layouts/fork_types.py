"""Tensor types of forks: numbers that mainline does not define, and one that it defines otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType, padded

#: number -> who defines it, from the forks' ggml.h; 142 and 143 once were ik_llama.cpp's too
NUMBERS: dict[int, str] = {
    36: "ik_llama.cpp's I2_S",
    97: "ik_llama.cpp's Q8_0_X4",
    133: "ik_llama.cpp's Q6_0",
    134: "ik_llama.cpp's IQ1_BN",
    135: "ik_llama.cpp's IQ2_BN",
    137: "ik_llama.cpp's IQ2_K",
    138: "ik_llama.cpp's IQ3_K",
    139: "ik_llama.cpp's IQ4_K",
    140: "ik_llama.cpp's IQ5_K",
    141: "ik_llama.cpp's IQ6_K",
    142: "PrismML's PQ2_0, or ik_llama.cpp's former IQ2_TN",
    143: "PrismML's PTQ1_0, or ik_llama.cpp's former IQ1_TN",
    144: "ik_llama.cpp's IQ4_KS",
    145: "ik_llama.cpp's IQ2_KS",
    146: "ik_llama.cpp's IQ4_KSS",
    151: "ik_llama.cpp's Q8_KV",
    152: "ik_llama.cpp's IQ5_KS",
    153: "ik_llama.cpp's IQ2_KT",
    154: "ik_llama.cpp's IQ3_KT",
    155: "ik_llama.cpp's IQ4_KT",
    156: "ik_llama.cpp's IQ3_KS",
    157: "ik_llama.cpp's IQ2_KL",
    158: "ik_llama.cpp's IQ1_KT",
}

#: mainline's type -> what a fork stored under its number: name, elements and bytes a block
OTHERWISE: dict[GGMLType, tuple[str, int, int]] = {
    GGMLType.Q2_0: ("PrismML's first Q2_0, in blocks of 128 for mainline's 64", 128, 34),
}

FIX = "take the file in a type that mainline has, or convert the published checkpoint"


def check_fork_types(file: GGUFFile) -> Iterator[Finding]:
    """One finding a type: who uses the number, and for what."""
    told: set[GGMLType | int] = set()
    for number, tensor in enumerate(file.tensors):
        if tensor.type in told:
            continue
        if not isinstance(tensor.type, GGMLType):
            told.add(tensor.type)
            name = NUMBERS.get(tensor.type)
            if name:
                message = f"ggml type {tensor.type} is {name}, which mainline llama.cpp cannot read."
                yield error("foreign-type", tensor.name, message, FIX)
        elif tensor.type in OTHERWISE and _fills(file, number, tensor, tensor.type):
            told.add(tensor.type)
            name = OTHERWISE[tensor.type][0]
            message = (
                f"ggml type {tensor.type.value} means {tensor.type.name} to mainline llama.cpp, but the data is of the"
                f" size that {name}, has: its meaning differs between forks."
            )
            yield error("foreign-type", tensor.name, message, FIX)


def _fills(file: GGUFFile, number: int, tensor: GGUFTensor, kind: GGMLType) -> bool:
    """Whether the room until what comes next is that of the fork's blocks, and not of mainline's."""
    _, elements, size = OTHERWISE[kind]
    if tensor.shape[0] % elements:
        return False
    after = file.tensors[number + 1] if number + 1 < len(file.tensors) else None
    if after is not None and after.part != tensor.part:
        return False
    room = (after.offset if after else file.size) - tensor.offset
    theirs, mainline = prod(tensor.shape) // elements * size, tensor.nbytes
    fits = {padded(theirs, file.alignment), theirs}
    return room in fits and room not in (padded(mainline, file.alignment), mainline)
