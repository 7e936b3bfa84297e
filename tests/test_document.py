from __future__ import annotations

import numpy as np

from dspark_convert.document import plain


def test_what_json_cannot_hold_becomes_null() -> None:
    assert plain({"a": [1.5, float("inf")], "b": (float("nan"),)}) == {"a": [1.5, None], "b": [None]}
    assert plain({3: np.array([1.0, np.inf])}) == {"3": [1.0, None]}
