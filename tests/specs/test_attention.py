"""Windows and causality of the layers, by fields alone."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_convert.specs import attention

FULL, WINDOWED = "full_attention", "sliding_attention"
YES, NO = True, False


def values(n_layer: int = 3, **more: Any) -> dict[str, Any]:
    """As resolved where a config says nothing of windows."""
    return {"n_layer": n_layer, "windows_causal": True, "use_swa": False, **more}


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        ({}, ()),
        ({"sliding_window": 4}, ()),
        ({"sliding_window": 4, "use_swa": True}, (YES, YES, YES)),
        ({"sliding_window": 4, "use_swa": True, "layer_types": [FULL] * 3}, (YES, YES, YES)),
        ({"sliding_window": 4, "use_swa": True, "use_sliding_window": False}, (YES, YES, YES)),
        ({"sliding_window": 4, "layer_types": [WINDOWED, FULL, WINDOWED]}, (YES, NO, YES)),
        ({"sliding_window": 4, "layer_types": [FULL] * 3 + [WINDOWED]}, ()),  # of the target's fourth layer
        ({"sliding_window": 4, "layer_types": [WINDOWED] * 3, "use_sliding_window": False}, ()),
        ({"sliding_window": 4, "layer_types": [FULL] * 3, "use_sliding_window": True}, ()),
        ({"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 2}, (NO, NO, YES)),
        ({"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 0}, (YES, YES, YES)),
        ({"sliding_window": 4, "use_sliding_window": True}, ()),  # 28 layers are full, as in transformers
        ({"sliding_window": 4, "use_sliding_window": True, "n_layer": 30}, (NO,) * 28 + (YES, YES)),
        ({"layer_types": [WINDOWED] * 3}, ()),
    ],
)
def test_windowed(more: dict[str, Any], pattern: tuple[bool, ...]) -> None:
    assert attention.windowed(values(**more)) == pattern


@pytest.mark.parametrize(
    ("kinds", "more", "most", "pattern"),
    [
        ([FULL] * 3, {}, False, ()),
        ([FULL] * 3, {"causal": True}, True, ()),
        ([WINDOWED] * 3, {}, True, ()),
        ([WINDOWED] * 3, {"causal": False}, False, ()),
        ([WINDOWED] * 3, {"windows_causal": False}, False, ()),
        ([WINDOWED] * 3, {"windows_causal": False, "causal": True}, True, ()),
        ([WINDOWED] * 3, {"use_sliding_window": False}, False, ()),
        ([WINDOWED] * 3, {"use_sliding_window": False, "use_swa": True}, True, ()),
        ([FULL] * 3, {"use_swa": True}, False, ()),
        ([WINDOWED, FULL, WINDOWED], {}, True, (YES, NO, YES)),
        ([FULL, FULL, WINDOWED], {}, False, (NO, NO, YES)),
        ([WINDOWED, FULL], {}, False, (YES, NO)),
        ([WINDOWED, FULL, FULL], {"causal": True}, True, ()),
    ],
)
def test_causal(kinds: list[str], more: dict[str, Any], most: bool, pattern: tuple[bool, ...]) -> None:
    v = values(len(kinds), layer_types=kinds, sliding_window=4, **more)
    assert attention.causal(v) == (most, pattern)


def test_fields_of_a_draft() -> None:
    v = values(2, layer_types=[WINDOWED, FULL], sliding_window=4)
    assert attention.fields(v) == {
        "causal": False,
        "causal_pattern": (True, False),
        "sliding_window": 4,
        "sliding_window_pattern": (True, False),
    }
    # a length that no layer makes use of
    assert attention.fields(values(2, sliding_window=4))["sliding_window"] is None
    # DeepSeek-V4's stages are windowed, all of them
    assert attention.fields({"n_layer": 3, "sliding_window": 128}) == {"sliding_window": 128}


@pytest.mark.parametrize(
    "more",
    [
        {"use_swa": True},
        {"use_sliding_window": True, "max_window_layers": 1},
        {"layer_types": [FULL, WINDOWED, FULL]},
        {"layer_types": [WINDOWED] * 3, "use_sliding_window": False, "use_swa": True},
    ],
)
def test_a_window_needs_a_length(more: dict[str, Any]) -> None:
    assert [(f.severity, f.where) for f in attention.judge(values(**more))] == [("error", "sliding_window")]
    assert attention.judge(values(**more, sliding_window=4)) == []


@pytest.mark.parametrize("more", [{}, {"layer_types": [FULL] * 3, "use_sliding_window": False}])
def test_without_windows_no_length_is_needed(more: dict[str, Any]) -> None:
    assert attention.judge(values(**more)) == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"use_sliding_window": True}, "without layer_types they begin at layer 28"),
        ({"use_sliding_window": True, "max_window_layers": 3}, "without layer_types they begin at layer 3"),
        ({"use_sliding_window": True, "layer_types": [FULL] * 3}, "layer_types names none"),
    ],
)
def test_a_window_that_no_layer_has_is_told(more: dict[str, Any], why: str) -> None:
    (found,) = attention.judge(values(sliding_window=4, **more))
    assert (found.rule, found.severity) == ("window-without-layers", "warning")
    assert why in found.message


@pytest.mark.parametrize("more", [{}, {"sliding_window": 4}])
def test_windows_that_are_switched_off_are_told(more: dict[str, Any]) -> None:
    (found,) = attention.judge(values(layer_types=[FULL, FULL, WINDOWED], use_sliding_window=False, **more))
    assert (found.rule, found.severity, found.where) == ("window-without-layers", "warning", "use_sliding_window")


@pytest.mark.parametrize(
    "more",
    [{}, {"use_sliding_window": False}, {"use_sliding_window": True, "max_window_layers": 1}, {"use_swa": True}],
)
def test_a_window_that_is_used_or_switched_off_is_none(more: dict[str, Any]) -> None:
    assert attention.judge(values(sliding_window=4, **more)) == []
