"""Changes of the families' files that cannot matter: llama.cpp computes the same, and both commands pass them."""

from __future__ import annotations

import numpy as np
from gguf import GGUFValueType as Type

from tests.mutations.changes import Array, on
from tests.mutations.copies import Copy, Mutant
from tests.mutations.family_heads import D2T
from tests.mutations.family_layers import CAUSAL, PATTERN, dropped, every, together
from tests.mutations.family_packing import UP, scales
from tests.mutations.family_types import put
from tests.mutations.harmless import reversed_order

F32, U32, STRING, ARRAY = Type.FLOAT32, Type.UINT32, Type.STRING, Type.ARRAY


def sections(file: Copy) -> None:
    """All pairs on one axis, as llama.cpp's converter writes for a target that has several."""
    put("rope.dimension_sections", ARRAY, [16, 0, 0, 0], Type.INT32)(file)


def halved_and_doubled(file: Copy) -> None:
    """A step of 8 in E4M3 is a factor of 2, which the tensor's own scale takes back."""

    def less(s: Array) -> Array:
        return s - np.uint8(8)

    packed = file.tensors[f"{UP}.weight"]
    assert packed.reshape(len(packed), -1, 36)[..., :4].min() >= 16, "a scale would lose bits"
    file.tensors[f"{UP}.weight"] = scales(packed, less)
    file.tensors[f"{UP}.scale"] = 2 * file.tensors[f"{UP}.scale"]


HARMLESS: dict[str, list[Mutant]] = {
    "zlab_dflash": [
        # whatever it says, a draft without Markov head is read from the first mask on
        Mutant("confidence and anchor flags dropped", dropped("sample_from_anchor", "has_confidence_head")),
        Mutant("all dimensions rotated", put("rope.dimension_count", U32, 32)),
    ],
    "hunyuan_ocr": [Mutant("sections of one axis", sections)],
    "mimo": [
        Mutant("pattern of numbers", put(PATTERN, ARRAY, [1, 1, 1], U32)),
        Mutant("sinks in a row of a matrix", on(every("attn_sinks"), lambda a: a[None])),
        Mutant("not causal", put(CAUSAL, Type.BOOL, False)),
    ],
    "specforge_yarn": [
        Mutant(
            "YaRN's usual numbers",
            together(
                put("rope.scaling.attn_factor", F32, 1.0),
                put("rope.scaling.yarn_beta_fast", F32, 32.0),
                put("rope.scaling.yarn_beta_slow", F32, 1.0),
            ),
        ),
    ],
    "nemotron_inner": [
        Mutant("scales halved and doubled", halved_and_doubled),
        Mutant("tensors in another order", reversed_order),
    ],
    "speculators_dspark_bonus": [Mutant("ids in a row of a matrix", on([D2T], lambda a: a[None]))],
    "gemma4": [
        Mutant("GELU by its other name", put("hidden_activation", STRING, "gelu")),
        Mutant("heads of each layer", put("attention.head_count", ARRAY, [4, 4, 4], U32)),
        Mutant("no scale of the logits", put("logit_scale", F32, 0.0)),
    ],
    "dflash2": [
        Mutant("no scale of the logits", put("logit_scale", F32, 0.0)),
        Mutant("no cap", put("final_logit_softcapping", F32, 0.0)),
    ],
}
