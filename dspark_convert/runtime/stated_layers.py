"""What a checkpoint with Qwen3's or Gemma4's layers says of them, beside what a file may say under llama.cpp's keys.

What an absent key means is in llama.cpp's ``llama_model_dflash::load_arch_hparams`` and its common loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, log
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_convert.ggufio.reader import GGUFFile

if TYPE_CHECKING:
    from dspark_convert.reference.facts import Facts
    from dspark_convert.reference.rotation import Yarn

#: key without "dflash.", what an absent key means to llama.cpp, what the checkpoint says
Row = tuple[str, Any, Any]

#: keys that these layers may have beyond those of every draft
LAYER_KEYS = frozenset(
    "feed_forward_length attention.scale attention.value_scale attention.sliding_window_pattern embedding_scale"
    " final_logit_softcapping logit_scale".split()
)
CONVOLUTION_KEYS = frozenset("conv_kernel_size conv_group_size selector_rank selector_top_k".split())
YARN_KEYS = frozenset(
    f"rope.scaling.{name}"
    for name in "factor original_context_length attn_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow".split()
)

#: scales of which 0 means to llama.cpp what an absent key does
ZERO_IS_ABSENT = frozenset(("attention.scale", "attention.value_scale", "embedding_scale", "logit_scale"))

#: other spellings of an activation
SAME_ACTIVATION = {"gelu": "gelu_pytorch_tanh"}


def layer_rows(facts: Facts) -> list[Row]:
    own = facts.dflash2
    windows = [view.window for view in facts.views]
    width = next((window for window in windows if window), 0)
    usual = single(facts.head_dim**-0.5)
    rows: list[Row] = [
        ("feed_forward_length", None, facts.intermediate_size),
        ("attention.scale", usual, 1.0 if facts.gemma4 else usual),
        ("attention.value_scale", 1.0, single(facts.value_scale)),
        ("embedding_scale", 1.0, single(facts.embedding_scale)),
        ("hidden_activation", "silu", "gelu_pytorch_tanh" if facts.gemma4 else "silu"),
        ("attention.sliding_window", 0, width),
        ("rope.dimension_count", facts.head_dim, facts.rotation.dims if facts.rotation else facts.head_dim),
        *_scaling(facts),
    ]
    if width:
        rows.append(("attention.sliding_window_pattern", None, [window is not None for window in windows]))
    # Of the logits llama.cpp scales and caps those of DFlash2 alone; other files may leave it out.
    scale, cap = single(facts.logit_scale), single(facts.logit_cap or 0.0)
    rows.append(("logit_scale", 1.0 if own else scale, scale))
    rows.append(("final_logit_softcapping", 0.0 if own else cap, cap))
    if own:
        rows += [
            ("conv_kernel_size", None, own.kernel),
            ("conv_group_size", None, own.group),
            ("selector_rank", None, own.rank),
            ("selector_top_k", None, own.top_k),
        ]
    return rows


def _scaling(facts: Facts) -> list[Row]:
    rotation = facts.rotation
    if rotation is None or (rotation.yarn is None and rotation.divisor == 1):
        return [("rope.scaling.type", "none", "none")]
    if rotation.yarn is None:
        return [("rope.scaling.type", "linear", "linear"), ("rope.scaling.factor", None, single(rotation.divisor))]
    return [
        ("rope.scaling.type", "linear", "yarn"),
        ("rope.scaling.factor", None, single(rotation.yarn.factor)),
        ("rope.scaling.original_context_length", facts.context_length, rotation.yarn.original_context),
    ]


def layer_keys(facts: Facts) -> frozenset[str]:
    """Those that say something of this draft; any other changes what is computed."""
    rotation = facts.rotation
    known = LAYER_KEYS | (CONVOLUTION_KEYS if facts.dflash2 else frozenset())
    if rotation and rotation.yarn:
        known |= YARN_KEYS
    elif rotation and rotation.divisor != 1:
        known |= {"rope.scaling.factor"}
    return known


def odd_lengths(file: GGUFFile, yarn: Yarn) -> Iterator[str]:
    """Of YaRN's keys those that hold quotients, which need not be the same to the last bit."""
    usual = 0.1 * log(yarn.factor) + 1 if yarn.factor > 1 else 1.0
    said = {
        "attn_factor": (1.0, yarn.magnitude / usual),
        "yarn_attn_factor": (yarn.magnitude, yarn.magnitude),
        "yarn_beta_fast": (yarn.beta_fast, yarn.beta_fast),
        "yarn_beta_slow": (yarn.beta_slow, yarn.beta_slow),
    }
    for name, (absent, want) in said.items():
        key = f"dflash.rope.scaling.{name}"
        found = file.metadata.get(key, absent)
        if not isinstance(found, float) or not isclose(found, want, rel_tol=1e-6):
            shown = f"{found:.9g}" if isinstance(found, float) else found
            yield f"{key} is {shown}, but the checkpoint has {want:.9g}"


def one_meaning(name: str, value: Any, absent: Any) -> Any:
    """``value`` of a key in the one way to say it."""
    if name in ZERO_IS_ABSENT and value == 0 and not isinstance(value, bool):
        return absent
    return SAME_ACTIVATION.get(value, value) if name == "hidden_activation" and isinstance(value, str) else value


def single(value: float) -> float:
    return float(np.float32(value))
