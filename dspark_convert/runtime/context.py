"""One llama.cpp context: batches in, rows of floats out. Child process only."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.runtime.binding import POSITION, SEQUENCE, TOKEN, Batch, Llama
from dspark_convert.runtime.experts import ExpertWatch

FloatArray = NDArray[np.float32]

#: ggml type number of the key/value cache
F32 = 0
FLASH_ATTENTION_OFF = 0
#: threads wait for each other spinning: on a busy machine that costs a small model more than it gains
ONE_THREAD_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ContextOptions:
    """``n_ctx`` positions, ``n_batch`` tokens at once, ``n_rollback`` recurrent states kept a sequence.

    ``exact``: compute as exactly as llama.cpp can. The default cache of f16 and flash attention, which it otherwise
    chooses, each move the logits by some 1e-3 of their deviation.
    """

    n_ctx: int
    n_batch: int
    n_threads: int
    n_rollback: int
    exact: bool = True


class Context:
    """A context of sequence 0 on ``model``; ``other`` is the context whose tensors it may borrow.

    ``watch`` sees which experts it takes. ``axes``: numbers that say a position; tokens, being text, need one.
    """

    def __init__(
        self,
        llama: Llama,
        model: int,
        options: ContextOptions,
        other: Context | None = None,
        watch: ExpertWatch | None = None,
        axes: int = 1,
    ) -> None:
        self._llama = llama
        self._axes = axes
        self.watch = watch
        params: Any = llama.context_params()
        params.n_ctx = options.n_ctx
        params.n_batch = params.n_ubatch = options.n_batch
        params.n_seq_max = 1
        params.n_rs_seq = options.n_rollback
        params.n_threads = params.n_threads_batch = options.n_threads
        if options.exact:
            params.type_k = params.type_v = F32
            params.flash_attn_type = FLASH_ATTENTION_OFF
        params.no_perf = True
        if "n_outputs_max_per_seq" in llama.context_layout.field_names:
            params.n_outputs_max_per_seq = 0  # every token of a block is an output
        if other is not None:
            params.ctx_other = other.handle
        if watch is not None:
            params.cb_eval = ctypes.cast(watch.callback, ctypes.c_void_p)
        handle = llama.new_context(model, params)
        if handle is None:
            raise InputError("llama.cpp could not create a context for the model.")
        self.handle: int = handle
        self.n_batch = options.n_batch
        self.n_vocab: int = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self._check_layout(options, other)

    def _check_layout(self, options: ContextOptions, other: Context | None) -> None:
        """Ask back what was asked for: a layout that only seems to fit shows here."""
        llama = self._llama
        n_ctx = llama.llama_n_ctx(self.handle)
        answers = (
            llama.llama_n_batch(self.handle) == options.n_batch,
            llama.llama_n_ubatch(self.handle) == options.n_batch,
            llama.llama_n_seq_max(self.handle) == 1,
            # llama.cpp rounds the context up to the cache's granularity
            options.n_ctx <= n_ctx <= options.n_ctx + 1024,
            # None by design for a draft that borrows nothing
            llama.llama_get_ctx_other(self.handle) in (None, other and other.handle),
        )
        if not all(answers):
            raise EnvironmentFault(
                f"the llama.cpp library {llama.path} did not take the context sizes that it was given, so its"
                " parameter layout is not the one detected; name another build with --lib."
            )

    def close(self) -> None:
        self._llama.llama_free(self.handle)

    def decode_tokens(self, tokens: Sequence[int], position: int, outputs: Sequence[bool]) -> FloatArray:
        """Decode ``tokens`` at ``position``…; the logits of those marked in ``outputs``.

        Shape [outputs, vocabulary], float32.
        """
        batch = _batch(len(tokens), position, outputs)
        batch.token = (TOKEN * len(tokens))(*tokens)
        self._run(self._llama.llama_decode, batch, "decode tokens")
        return rows(self._llama.llama_get_logits(self.handle), sum(outputs), self.n_vocab)

    def decode_embeddings(self, embeddings: FloatArray, position: int) -> None:
        """Decode ``embeddings`` [tokens, width], float32, at ``position``…; nothing is output."""
        self._run_embeddings(self._llama.llama_decode, embeddings, position, "take features")

    def encode_embeddings(self, embeddings: FloatArray, position: int) -> None:
        """Run the encoder on ``embeddings`` [tokens, width], float32."""
        self._run_embeddings(self._llama.llama_encode, embeddings, position, "encode features")

    def forget(self, position: int) -> bool:
        """Remove everything from ``position`` on; False if this kind of memory cannot."""
        memory = self._llama.llama_get_memory(self.handle)
        return bool(self._llama.llama_memory_seq_rm(memory, 0, position, -1))

    def clear(self) -> None:
        self._llama.llama_memory_clear(self._llama.llama_get_memory(self.handle), True)

    def _run_embeddings(self, function: Any, embeddings: FloatArray, position: int, what: str) -> None:
        values = np.ascontiguousarray(embeddings, dtype=np.float32)
        batch = _batch(len(values), position, [False] * len(values))
        if self._axes > 1:
            along = [*range(position, position + len(values)), *[0] * len(values)]
            # Of M-RoPE's axes time, height and width all count the text's tokens; the fourth is not used.
            batch.pos = (POSITION * (self._axes * len(values)))(*along[: len(values)] * 3, *along[len(values) :])
        batch.embd = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._run(function, batch, what)

    def _run(self, function: Any, batch: Batch, what: str) -> None:
        code = function(self.handle, batch)
        if code != 0:
            raise InputError(f"llama.cpp failed to {what} ({batch.n_tokens} of them): it returned {code}")


def _batch(n_tokens: int, position: int, outputs: Sequence[bool]) -> Batch:
    """A ``llama_batch`` of sequence 0 without content; it keeps the arrays assigned to it alive."""
    sequence = ctypes.pointer(SEQUENCE(0))
    batch = Batch(n_tokens=n_tokens)
    batch.pos = (POSITION * n_tokens)(*range(position, position + n_tokens))
    batch.n_seq_id = (ctypes.c_int32 * n_tokens)(*[1] * n_tokens)
    batch.seq_id = (ctypes.POINTER(SEQUENCE) * n_tokens)(*[sequence] * n_tokens)
    batch.logits = (ctypes.c_int8 * n_tokens)(*map(int, outputs))
    return batch


def rows(pointer: Any, n_rows: int, width: int) -> FloatArray:
    """A copy of ``n_rows`` rows of ``width`` floats at ``pointer``; InputError if it is NULL."""
    if n_rows == 0:
        return np.empty((0, width), np.float32)
    if not pointer:
        raise InputError("llama.cpp gave no values where the draft should have produced some.")
    return np.ctypeslib.as_array(pointer, shape=(n_rows, width)).copy()


def threads_for(model_bytes: int) -> int:
    """Threads for a model of this size: the cores that this process may run on, which a container can restrict."""
    if model_bytes <= ONE_THREAD_BYTES:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
