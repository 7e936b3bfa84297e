"""Layouts of draft files other than mainline's and the early one: known by name, told plainly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dspark_convert.ggufio.reader import GGUFFile


@dataclass(frozen=True)
class Legacy:
    """A layout that is recognised and not read; ``differs`` is what mainline has otherwise."""

    dialect: str
    title: str
    differs: str


def _has_key(file: GGUFFile, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in file.metadata)


def _has_tensor(file: GGUFFile, prefix: str) -> bool:
    return any(tensor.name.startswith(prefix) for tensor in file.tensors)


#: first that fits; the test sees the architecture and the file
LAYOUTS: tuple[tuple[Callable[[str, GGUFFile], bool], Legacy], ...] = (
    (
        lambda arch, file: arch == "dspark" and (_has_key(file, "dspark.dspark.") or _has_tensor(file, "dspark.")),
        Legacy(
            "dspark-prism",
            "the legacy DSpark layout of PrismML's fork (keys dspark.dspark.*)",
            "mainline has architecture dflash, target_layers one higher, the names fc, enc.output_norm, markov_w1/w2"
            " and conf_proj, and the target's vocabulary in the file",
        ),
    ),
    (
        lambda arch, file: arch == "dspark" and _has_tensor(file, "markov.w1"),
        Legacy(
            "dspark-fork",
            "the DSpark layout of an early fork (tensors markov.w1/w2 and confidence.proj)",
            "mainline has architecture dflash, keys dflash.*, and the names markov_w1/w2 and conf_proj",
        ),
    ),
    (
        lambda arch, _file: arch == "dflash-draft",
        Legacy(
            "dflash-draft",
            "the DFlash layout of ik_llama.cpp (keys dflash-draft.dflash.*)",
            "mainline has architecture dflash, target_layers one higher, and other tensor names",
        ),
    ),
    (
        lambda arch, _file: arch in ("deepseek4-dspark", "deepseek41-dspark"),
        Legacy(
            "ds4",
            "the DSpark layout of ds4 (tensors mtp.*)",
            "mainline has architecture dflash, target_layers one higher, and tensors blk.*",
        ),
    ),
    (
        lambda arch, _file: arch == "deepseek4-dflash-draft",
        Legacy(
            "deepseek4-dflash-draft",
            "a private container of weights alone",
            "mainline needs the tokenizer and every size of the model as metadata",
        ),
    ),
    (
        lambda arch, file: arch == "dflash" and "dflash.log_snr_conditioning" in file.metadata,
        Legacy(
            "dflash-log-snr",
            "the layout of PrismML's fork with log-SNR conditioning",
            "mainline has no graph for log_snr_fc1/2 and would draft without them",
        ),
    ),
    (
        lambda arch, file: arch == "dflash" and "dflash.dsv41_semantics" in file.metadata,
        Legacy(
            "dflash-v4.1",
            "a DeepSeek-V4.1 draft for a fork of llama.cpp (dflash.dsv41_semantics)",
            "mainline runs DeepSeek-V4 drafts only, whose target_layers are one higher",
        ),
    ),
)


def find_legacy(architecture: str, file: GGUFFile) -> Legacy | None:
    """The legacy layout that ``file`` is in, or None."""
    return next((legacy for fits, legacy in LAYOUTS if fits(architecture, file)), None)
