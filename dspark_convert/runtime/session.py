"""A target and its draft, loaded together: what one decoding round is made of. Child process only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.runtime.binding import NEWER_BUILD, TOKEN, Llama
from dspark_convert.runtime.context import Context, ContextOptions, FloatArray, rows, threads_for
from dspark_convert.runtime.experts import ExpertWatch
from dspark_convert.runtime.shape import DraftShape, context_size

#: llama.cpp's own physical batch; a prompt is decoded in pieces of it
MAX_BATCH = 512


@dataclass(frozen=True)
class Block:
    """What the draft said about one block.

    ``tokens`` [drafts] are proposed: each slot's best, or what a selector chose; ``logits`` [drafts, vocabulary]
    with the Markov bias, float32; ``confidences`` [drafts] in 0…1, or None without a confidence head; ``slots``
    [block_size] are the best tokens of all slots, also of one that proposes nothing; ``experts`` [stages,
    block_size, used], or None where they were not looked at or there are none; ``lattice`` [block_size, k + k²] of
    a selector (``best_path``), or None.
    """

    tokens: list[int]
    logits: FloatArray
    confidences: FloatArray | None
    slots: list[int]
    experts: NDArray[np.int64] | None = None
    lattice: FloatArray | None = None


def best_path(lattice: FloatArray, top_k: int) -> list[int]:
    """The tokens that DFlash2's selector chooses for slots 1…, each by its score behind the one before it.

    ``lattice`` [block_size, >= top_k + top_k²]: of every slot the ids of its candidates, then the scores of each
    behind each of the slot before: [behind, candidate]. Slot 1 follows the anchor alone, so all its rows agree.
    """
    tokens, behind = [], 0
    for row in lattice[1:]:
        scores = row[top_k : top_k + top_k**2].reshape(top_k, top_k)
        behind = int(scores[behind].argmax())
        tokens.append(int(row[behind]))
    return tokens


class Session:
    """Call ``load_target``, ``load_draft``, ``open_contexts`` in this order; a ``with`` block frees all.

    ``exact``: compute as exactly as llama.cpp can, not as fast. ``n_threads``: None for as many as suit the target.
    """

    def __init__(
        self,
        llama: Llama,
        target: Path,
        draft: Path,
        shape: DraftShape,
        *,
        exact: bool = True,
        n_threads: int | None = None,
    ) -> None:
        self.llama = llama
        self.shape = shape
        self.exact = exact
        self.n_threads = n_threads
        self.injection = "unknown"
        #: layers whose inputs are recorded beside the taps'
        self.watched: tuple[int, ...] = ()
        self._paths = (target, draft)
        self._models: list[int] = []
        self._contexts: list[Context] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free everything, the draft (which borrows from the target) first."""
        while self._contexts:
            self._contexts.pop().close()
        while self._models:
            self.llama.llama_model_free(self._models.pop())

    def load_target(self) -> None:
        self.target_model = self._load(self._paths[0], "target")
        self.n_embd: int = self.llama.llama_model_n_embd(self.target_model)
        self.n_ctx_train: int = self.llama.llama_model_n_ctx_train(self.target_model)
        self._vocab = self.llama.llama_model_get_vocab(self.target_model)

    def load_draft(self) -> None:
        llama = self.llama
        self.draft_model = self._load(self._paths[1], "draft")
        self.draft_n_embd: int = llama.llama_model_n_embd(self.draft_model)
        count = llama.llama_model_target_layer_ids_n(self.draft_model)
        self.taps: list[int] = llama.llama_model_target_layer_ids(self.draft_model)[:count]

    def open_contexts(self, n_positions: int, *, watch: bool = False) -> None:
        """Make both contexts, for ``n_positions`` positions each; ``watch``: the draft's experts can be looked at."""
        n_ctx = context_size(n_positions)
        self.n_threads = self.n_threads or threads_for(self.llama.llama_model_size(self.target_model))
        options = ContextOptions(
            n_ctx=n_ctx,
            n_batch=min(MAX_BATCH, n_ctx),
            n_threads=self.n_threads,
            n_rollback=self.shape.drafts_per_block,
            exact=self.exact,
        )
        self.target = Context(self.llama, self.target_model, options)
        self._contexts.append(self.target)
        seen = ExpertWatch(self.llama) if watch and self.llama.shows_graph else None
        axes = self.shape.position_axes
        self.draft = Context(self.llama, self.draft_model, options, other=self.target, watch=seen, axes=axes)
        self._contexts.append(self.draft)
        self.llama.llama_set_causal_attn(self.draft.handle, self.shape.causal)
        # Masked: of outputs alone. A selector's scores come for all slots only.
        self.llama.llama_set_embeddings_nextn(self.draft.handle, True, not self.shape.selector_top_k)

    def tokenize(self, text: str) -> list[int]:
        """Token ids of ``text`` in the target's vocabulary, special tokens recognised."""
        data = text.encode()
        room = len(data) + 16
        tokens = (TOKEN * room)()
        count = self.llama.llama_tokenize(self._vocab, data, len(data), tokens, room, True, True)
        if count <= 0:
            raise UsageError(f"the target's tokenizer makes no tokens of the prompt {text[:40]!r}.")
        return list(tokens[:count])

    def ends_text(self, token: int) -> bool:
        """Whether the target ends its answer with ``token``."""
        return bool(self.llama.llama_vocab_is_eog(self._vocab, token))

    def keep_features(self, wanted: bool) -> None:
        """Ask the target to keep the layer inputs that the draft taps or that are watched, or not to."""
        for layer in {*self.taps, *self.watched}:
            self.llama.llama_set_embeddings_layer_inp(self.target.handle, layer, wanted)

    def features(self, n_tokens: int) -> FloatArray:
        """The tapped layer inputs of the target's last batch: [tokens, taps × n_embd], float32."""
        return np.concatenate([self._layer_input(layer, n_tokens) for layer in self.taps], axis=1)

    def watched_inputs(self, n_tokens: int) -> FloatArray:
        """The watched layer inputs of the target's last batch: [tokens, watched, n_embd], float32."""
        return np.stack([self._layer_input(layer, n_tokens) for layer in self.watched], axis=1)

    def inject(self, features: FloatArray, position: int) -> None:
        """Give the draft the target's ``features`` of the tokens at ``position``…"""
        if self.injection == "decode":
            self.draft.decode_embeddings(features, position)
            return
        self.draft.encode_embeddings(features, position)
        encoded = rows(self.llama.llama_get_embeddings_nextn(self.draft.handle), len(features), self.draft_n_embd)
        self.draft.decode_embeddings(encoded, position)

    def draft_block(self, anchor: int, position: int, *, watch: bool = False) -> Block:
        """Draft one block after the token ``anchor``, which stands at ``position``; ``watch``: look at its experts."""
        shape = self.shape
        count = shape.block_size
        tokens = [anchor, *[shape.mask_token_id] * (count - 1)]
        seen = self.draft.watch if watch else None
        if seen:
            seen.begin(count)
        logits = self.draft.decode_tokens(tokens, position, [True] * count)
        experts = seen.end() if seen else None
        confidences = None
        lattice = None
        if k := shape.selector_top_k:
            pointer = self.llama.llama_get_embeddings_nextn(self.draft.handle)
            lattice = rows(pointer, count, self.draft_n_embd)[:, : k + k**2]
        elif shape.has_confidence_head:
            pointer = self.llama.llama_get_embeddings_nextn(self.draft.handle)
            # llama.cpp repeats the confidence over a row as wide as a hidden state
            confidences = rows(pointer, count, self.draft_n_embd)[:, 0]
        if not self.draft.forget(position):
            raise InputError("the draft's memory does not forget a block that was tried.")
        if np.isnan(logits).any():
            raise InputError("the draft computes NaN; look for NaN or infinities in its tensors.")
        first = count - shape.drafts_per_block
        slots = logits.argmax(axis=1).tolist()
        if confidences is not None:
            confidences = confidences[first:]
        tokens = slots[first:] if lattice is None else best_path(lattice, shape.selector_top_k)
        return Block(tokens, logits[first:], confidences, slots, experts, lattice)

    def decode_target(self, tokens: Sequence[int], position: int, last_only: bool = False) -> FloatArray:
        """Decode ``tokens`` on the target, at most n_batch of them: logits [tokens or 1, vocabulary]."""
        outputs = [not last_only] * len(tokens)
        outputs[-1] = True
        return self.target.decode_tokens(tokens, position, outputs)

    def forget_target(self, position: int) -> None:
        if not self.target.forget(position):
            raise InputError(
                f"the target's memory does not forget rejected tokens (from position {position} on), so it"
                " cannot verify drafts."
            )

    def clear(self) -> None:
        self.target.clear()
        self.draft.clear()

    def _layer_input(self, layer: int, n_tokens: int) -> FloatArray:
        pointer = self.llama.llama_get_embeddings_layer_inp(self.target.handle, layer)
        return rows(pointer, n_tokens, self.n_embd)

    def _load(self, path: Path, role: str) -> int:
        params: Any = self.llama.model_params()
        if self.exact:
            params.use_extra_bufts = False  # repacked weights are multiplied with rounded activations
        model = self.llama.load_model(path, params)
        if model is None and role == "draft" and not self.llama.knows_dspark():
            raise EnvironmentFault(
                f"the llama.cpp library {self.llama.path} is too old for DSpark: it knows no Markov head;"
                f" {NEWER_BUILD}."
            )
        if model is None:
            raise InputError(f"llama.cpp refused to load the {role} {path}")
        self._models.append(model)
        return model
