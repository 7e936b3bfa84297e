"""What a user chooses for a conversion. Imports nothing heavy: the command line names the choices from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outtype = Literal["auto", "f32", "f16", "bf16", "q8_0", "mxfp4", "q4_0", "q5_0", "q4_k", "q5_k", "q6_k"]
Experts = Literal["keep", "f32", "f16", "bf16", "q8_0", "mxfp4", "q4_0", "q5_0", "q4_k", "q5_k", "q6_k"]
Dialect = Literal["dflash", "dspark", "dspark-prism", "dflash-draft", "ds4"]
SharedTensors = Literal["omit", "include"]


@dataclass(frozen=True)
class Options:
    """``dequantize``: NVFP4 codes are written as any other numbers; ``overrides`` are spec fields that win over
    config.json."""

    outtype: Outtype = "auto"
    experts: Experts = "keep"
    dialect: Dialect = "dflash"
    shared_tensors: SharedTensors = "omit"
    tokenizer_pre: str | None = None
    chat_template: bool = True
    dequantize: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
