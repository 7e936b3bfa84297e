"""Buffers that a thread uses again and again: fresh large ones cost more page faults than work."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

_thread = threading.local()


def scratch(name: str, size: int, dtype: Any) -> NDArray[Any]:
    """``size`` numbers of any content, this thread's own, and only until it asks for ``name`` again."""
    buffers: dict[str, NDArray[np.uint8]] = _thread.__dict__
    nbytes = size * np.dtype(dtype).itemsize
    held = buffers.get(name)
    if held is None or held.size < nbytes:
        held = buffers[name] = np.empty(nbytes, np.uint8)
    return held[:nbytes].view(dtype)
