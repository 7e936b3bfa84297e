"""A spec's ``rope_*`` values -> Rope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from dspark_convert.draft import Rope
from dspark_convert.findings import Finding, error, warning
from dspark_convert.ggufio.rotation import yarn_length

#: what a YaRN config may say beside factor and original length -> the field that has it
YARN = {
    "attention_factor": "rope_attention_factor",
    "beta_fast": "rope_beta_fast",
    "beta_slow": "rope_beta_slow",
}


def rope(style: str, v: Mapping[str, Any]) -> Rope:
    """KeyError where a value is missing, which ``judge`` or the field itself tells."""
    pairs: Literal["neox", "norm"] = "norm" if style == "norm" else "neox"
    return Rope(pairs, v.get("rope_dimensions", v["head_dim"]), float(v["rope_theta"]), _scaling(v))


def judge(v: Mapping[str, Any], origin: Mapping[str, str]) -> list[Finding]:
    """A scaled rotation that nothing says the factor of, and a factor that nothing says the kind of.

    ``origin``: where each value stood, nowhere for a default.
    """
    kind = v.get("rope_type")
    if v.get("rope_factor", 1) != 1 and origin.get("rope_type", "").startswith("default"):
        place = origin["rope_factor"]
        message = f"{place} scales the rotation, and nothing beside it says how: a rope_type is missing."
        return [error("config-missing", "rope_type", message, "take the config that was published with the draft")]
    if kind == "yarn" and "rope_factor" in v:
        return list(_unread(v))
    if kind not in ("linear", "yarn") or "rope_factor" in v:
        return []
    message = f"the rotation is scaled ({kind}), and config.json has no rope_parameters.factor or rope_scaling.factor."
    return [error("config-missing", "rope_factor", message, "take the config that was published with the draft")]


def _unread(v: Mapping[str, Any]) -> Iterator[Finding]:
    """What llama.cpp takes for granted of every draft's YaRN: between which pairs its ramp goes."""
    for field, what, usual in (
        ("rope_beta_fast", "beta_fast", 32),
        ("rope_beta_slow", "beta_slow", 1),
        ("rope_truncate", "truncate", True),
    ):
        if v.get(field, usual) != usual:
            said, taken = str(v[field]).lower(), str(usual).lower()
            message = f"YaRN's {what} is {said}, which llama.cpp does not read of a draft: it takes {taken}."
            yield warning("yarn-unread", field, message, "validate the draft: it tells what that costs")


def _length(v: Mapping[str, Any]) -> dict[str, float]:
    """By what rotated vectors grow where DeepSeek's pair of keys says so, as in transformers' YaRN."""
    over, under = v.get("rope_mscale"), v.get("rope_mscale_all")
    if not over or not under:
        return {}
    growth = yarn_length(float(v["rope_factor"])) - 1
    return {"attention_factor": (over * growth + 1) / (under * growth + 1)}


def _scaling(v: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = v.get("rope_type", "default")
    if kind == "linear":
        return {"type": kind, "factor": float(v["rope_factor"])}
    if kind == "yarn":
        usual = {
            "type": kind,
            "factor": float(v["rope_factor"]),
            "original_context_length": v["rope_original_context"],
        }
        return usual | _length(v) | {name: float(v[field]) for name, field in YARN.items() if field in v}
    if kind == "proportional":
        return {"type": kind, "rotated": v["rope_rotated"]}
    return None
