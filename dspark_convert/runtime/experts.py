"""Which experts llama.cpp takes, read from its graph while it computes one. Child process only.

llama.cpp asks a callback of every node whether it is wanted, and shows those that are once they are computed. The node
that holds the chosen experts' numbers is a view of all experts in their order, so that its rows do not lie one behind
the other.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dspark_convert.runtime.binding import Llama

#: the node's name, before the number of its layer
TAKEN = b"ffn_moe_topk-"

#: ``ggml_backend_sched_eval_callback``: node, whether it is only asked for, user data
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)


class ExpertWatch:
    """``callback`` goes into the parameters of a context, which needs this object as long as it lives."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self._n_tokens = 0
        self._seen: dict[int, NDArray[np.int64]] = {}
        self.callback: Any = _CALLBACK(self._look)

    def begin(self, n_tokens: int) -> None:
        """Look at the next batch, which has so many tokens."""
        self._n_tokens = n_tokens
        self._seen = {}

    def end(self) -> NDArray[np.int64] | None:
        """The experts taken since ``begin``, [layers, tokens, used]; None if none were seen or they make no sense."""
        self._n_tokens = 0
        layers = [self._seen[layer] for layer in sorted(self._seen)]
        if not layers or any(layer.shape != layers[0].shape or not layer.size for layer in layers):
            return None
        return np.stack(layers)

    def _look(self, node: int, asks: bool, _data: int) -> bool:
        """No exception may get into C; and what is not wanted is computed as if nobody looked."""
        if not self._n_tokens:
            return not asks
        name = self._llama.ggml_get_name(node) or b""
        layer = name.removeprefix(TAKEN)
        if layer == name or not layer.isdigit():
            return False
        if not asks:
            self._seen[int(layer)] = self._read(node)
        return True

    def _read(self, node: int) -> NDArray[np.int64]:
        """[tokens, used] of a node of int32; empty if it has another number of tokens."""
        count, size = self._llama.ggml_nelements(node), self._llama.ggml_nbytes(node)
        used, rest = divmod(count, self._n_tokens)
        words = size // 4
        # From the first row's begin to the last one's: the distance of two rows follows.
        step, odd = divmod(words - used, max(self._n_tokens - 1, 1))
        if rest or odd or step < 0 or size % 4:
            return np.empty((0, 0), np.int64)
        data = np.empty(words, np.int32)
        self._llama.ggml_backend_tensor_get(node, data.ctypes.data, 0, size)
        rows = np.arange(self._n_tokens)[:, None] * step
        return np.asarray(data[rows + np.arange(used)], np.int64)
