"""A DSpark draft, as DeepSpec (``deepspec/modeling/dspark``) and DeepSeek (V4's ``DSparkBlock``) define it.

The target's features (its residual streams at the taps, side by side) go through a projection and an RMS norm.
Every layer makes keys and values of the result with its own projections, norms and rotation, at the
features' own positions. The block, an anchor token and mask tokens behind it, attends to those and to itself,
in both directions or one, whole or in a window (``views``). A block's slot k is biased by the token before it:
w2 · w1[previous] (the vanilla Markov head; DFlash drafts have none), and the confidence is
sigmoid(proj · [state ; w1[previous]] + bias), or of the state alone: the final one, or DeepSeek-V4's before its norm.

Shapes: n_past tokens before the block, taps, hidden, slots, vocab, rank.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from dspark_convert.reference import deepseek4_stages as stages
from dspark_convert.reference import weights as stored
from dspark_convert.reference.config import Config
from dspark_convert.reference.deepseek4_weights import Quantised, plain_stage_name
from dspark_convert.reference.dflash2 import DFlash2Stack, Lattice, lattice
from dspark_convert.reference.dflash2_facts import dflash2_shapes
from dspark_convert.reference.facts import Facts, read_facts
from dspark_convert.reference.gemma4 import Gemma4Stack, gemma4_layer_shapes
from dspark_convert.reference.inputs import Rounding
from dspark_convert.reference.qwen3 import Layer, Sizes, layer_shapes, rms_norm
from dspark_convert.reference.spellings import CONFIDENCE, MARKOV_W1
from dspark_convert.reference.states import States
from dspark_convert.reference.tables import MASK_ROW, block_rows, read_mask_row, target_ids
from dspark_convert.reference.views import visible
from dspark_convert.reference.weights import D2T, EMBED, HEAD, MARKOV_W2, Array, Floats, Shape, Weights

CONFIDENCE_BIAS = "confidence_head.proj.bias"


@dataclass(frozen=True)
class Block:
    """``logits`` [slots, vocab], with the Markov bias from ``first_slot`` on; ``confidence`` [slots] or None.

    Both float64 (float32 for large models). A bonus anchor's slot 0 has plain logits and no confidence: NaN. A token
    that the draft does not know has -inf.
    ``behind`` [stages, slots] tell how bad a choice of experts was, see ``deepseek4.Stage.route``; None without.
    ``lattice``: DFlash2's, which drafts; None without.
    """

    logits: Floats
    confidence: Floats | None
    behind: Floats | None = None
    lattice: Lattice | None = None


class Stack(Protocol):
    """A draft's layers."""

    def __call__(self, past: torch.Tensor, anchor: int, experts: torch.Tensor | None = None) -> States:
        """Features [n_past, taps * hidden] -> the block's states; ``experts`` as in ``Reference.block``."""


class Qwen3Stack:
    def __init__(self, facts: Facts, weights: Weights, sizes: Sizes) -> None:
        self._facts, self._weights = facts, weights
        self._layers = [Layer(weights, i, sizes) for i in range(facts.n_layer)]

    def __call__(self, past: torch.Tensor, anchor: int, experts: torch.Tensor | None = None) -> States:  # noqa: ARG002
        facts, weights = self._facts, self._weights
        context = rms_norm(weights.linear(past, "fc.weight"), weights["hidden_norm.weight"], facts.rms_norm_eps)
        before = torch.arange(len(past))
        here = len(past) + torch.arange(facts.slots)
        x = block_rows(facts, weights, anchor)
        for layer, view in zip(self._layers, facts.views, strict=True):
            h = layer.norm(x, "input_layernorm")
            k = torch.cat((layer.keys(context, before), layer.keys(h, here)))
            v = torch.cat((layer.values(context), layer.values(h)))
            sees = visible(len(past), facts.slots, view, from_block=facts.window_from_block)
            x = layer.feed_forward(x + layer.attend(layer.queries(h, here), k, v, sees))
        final = rms_norm(x, weights["norm.weight"], facts.rms_norm_eps)
        return States(final, final)


class Reference:
    """A draft checkpoint, ready to compute. ``facts`` are what it read of itself."""

    def __init__(
        self,
        facts: Facts,
        weights: Weights,
        stack: Stack,
        *,
        plain_logits: bool = False,
        known: torch.Tensor | None = None,
    ) -> None:
        self.facts = facts
        self._known = known
        self._weights = weights
        self._stack = stack
        self._plain_logits = plain_logits

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        embed: Array | None = None,
        head: Array | None = None,
        weights: Mapping[str, Array] | None = None,
        float32_angles: bool = False,
        window_by_distance: bool = False,
        causal: bool | None = None,
        own_mask_row: bool = True,
        plain_logits: bool = False,
        table_gelu: bool = False,
        usual_ramp: bool = False,
        roundings: Mapping[str, Rounding] | None = None,
        elsewhere: Mapping[str, Callable[[], torch.Tensor]] | None = None,
    ) -> Reference:
        """The draft in ``directory``.

        ``embed`` and ``head`` [vocab, hidden] stand in for the checkpoint's tables, as where the runtime
        borrows the target's; ``weights`` (checkpoint names) for other tensors, such as rounded ones.
        ``float32_angles``: RoPE's angles as llama.cpp rounds them, where the definition leaves it open.
        ``window_by_distance``: windows as llama.cpp counts them, see ``deepseek4.visible`` and ``views.visible``.
        ``causal``: for all layers alike, as llama.cpp has one flag; None leaves each as it is defined.
        ``own_mask_row``: whether MiMo's row for the mask token replaces that of ``embed``; False if it is there.
        ``plain_logits``: without the scale and the cap that the draft has for them, as llama.cpp biases them.
        ``table_gelu``: Gemma4's GELU as llama.cpp looks it up on a CPU, see ``gemma4.gelu``.
        ``usual_ramp``: YaRN's between 32 and 1 turns, as llama.cpp has it whatever a config says.
        ``roundings`` (checkpoint names): of the inputs of these matrices, as llama.cpp does, see ``inputs``.
        ``elsewhere`` (checkpoint names): read instead of these matrices of DeepSeek-V4's, each time one is used.
        Raises ValueError for what the reference cannot compute.
        """
        facts = read_facts(directory)
        if causal is not None:
            facts = replace(facts, causal=causal, views=tuple(replace(view, causal=causal) for view in facts.views))
        if window_by_distance:
            facts = replace(facts, window_from_block=False)
        sizes = replace(sizes_of(facts), float32_angles=float32_angles)
        if usual_ramp and sizes.rotation is not None:
            sizes = replace(sizes, rotation=sizes.rotation.usual)
        tables = {name: table for name, table in ((EMBED, embed), (HEAD, head)) if table is not None}
        if facts.stages is not None:
            rounded = {plain_stage_name(name): rounding for name, rounding in (roundings or {}).items()}
            tensors = stages.load_tensors(directory, facts, facts.stages, tables, weights or {})
            quantised = Quantised(tensors, facts.stages.tile, rounded, elsewhere)
            return cls(facts, quantised, stages.Stages(facts, facts.stages, quantised, sizes, window_by_distance))
        tensors = stored.read_tensors(directory)
        stored.replace(tensors, weights or {})
        tensors |= {name: stored.as_tensor(table) for name, table in tables.items()}
        tie(directory, tensors)
        stored.check_shapes(directory, tensors, expected_shapes(facts, tensors.keys()))
        known = target_ids(directory, facts, tensors.pop(D2T)) if D2T in tensors else None
        if own_mask_row and (row := read_mask_row(directory, facts)) is not None:
            tensors[MASK_ROW] = row
        loaded = Weights(tensors, {stored.plain_name(name): how for name, how in (roundings or {}).items()})
        stack: Stack = Qwen3Stack(facts, loaded, sizes)
        if facts.gemma4 is not None:
            stack = Gemma4Stack(facts, facts.gemma4, loaded, sizes, table_gelu)
        elif facts.dflash2 is not None:
            stack = DFlash2Stack(facts, facts.dflash2, loaded, sizes)
        return cls(facts, loaded, stack, plain_logits=plain_logits, known=known)

    @torch.no_grad()
    def block(
        self,
        features: Array,
        anchor: int,
        chosen: Sequence[int],
        experts: Array | None = None,
        candidates: Array | None = None,
    ) -> Block:
        """The block that starts behind ``features``.

        ``features`` [n_past, taps * hidden] of positions 0 to n_past - 1, in the order of ``facts.taps``;
        the block stands at n_past and on. ``chosen`` [slots]: the token taken at each slot; the one before a
        slot decides its Markov bias, and ``anchor`` that of the first slot that proposes. ``experts``
        [stages, slots, used]: those that are taken, with -1 the stage's own; None leaves all to the stages.
        ``candidates`` [slots, k]: those that DFlash2's selector takes, but for the anchor's slot; None: the best.
        """
        past = stored.as_tensor(features).to(self._weights.dtype)
        width = len(self.facts.taps) * self.facts.hidden_size
        if past.dim() != 2 or past.shape[1] != width:
            raise ValueError(f"features have to be [n_past, {width}], found {list(past.shape)}.")
        tokens = (anchor, *chosen)
        if len(chosen) != self.facts.slots or not all(0 <= token < self.facts.vocab_size for token in tokens):
            raise ValueError(
                f"a block takes an anchor and {self.facts.slots} chosen tokens below {self.facts.vocab_size},"
                f" found {anchor} and {list(chosen)}."
            )
        states = self._stack(past, anchor, None if experts is None else torch.as_tensor(experts))
        logits = self._logits(states.final)
        first = self.facts.first_slot
        previous = torch.tensor([anchor, *chosen[first:-1]])
        markov = self._weights.rows(MARKOV_W1, previous) if self.facts.markov_rank else None
        if markov is not None:
            logits[first:] += self._weights.linear(markov, MARKOV_W2)
        if self._known is not None:
            everywhere = torch.full((self.facts.slots, self.facts.vocab_size), -torch.inf, dtype=logits.dtype)
            logits = everywhere.index_copy(1, self._known, logits)
        behind = None if states.behind is None else states.behind.numpy()
        return Block(
            logits.numpy(),
            self._confidence(states.judged, markov),
            behind,
            self._lattice(states.final, logits, anchor, candidates),
        )

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        """[slots, hidden] -> [slots, vocab of the draft], before any bias."""
        logits, cap = self._weights.linear(states, HEAD), self.facts.logit_cap
        if self._plain_logits:
            return logits
        logits = logits * self.facts.logit_scale
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _lattice(
        self, final: torch.Tensor, logits: torch.Tensor, anchor: int, candidates: Array | None
    ) -> Lattice | None:
        own = self.facts.dflash2
        if own is None:
            return None
        told = None if candidates is None else torch.as_tensor(candidates)
        if told is not None and told.shape != (self.facts.slots, own.top_k):
            raise ValueError(f"candidates have to be [{self.facts.slots}, {own.top_k}], found {list(told.shape)}.")
        if told is not None and not 0 <= int(told[1:].min()) <= int(told[1:].max()) < self.facts.vocab_size:
            raise ValueError(f"candidates have to be tokens below {self.facts.vocab_size}, found others.")
        return lattice(self._weights, own.top_k, anchor, final, logits, told)

    def _confidence(self, states: torch.Tensor, markov: torch.Tensor | None) -> Floats | None:
        if not self.facts.has_confidence_head:
            return None
        seen = states[self.facts.first_slot :]
        if markov is not None and self.facts.confidence_with_markov:
            seen = torch.cat((seen, markov), -1)
        score = self._weights.linear(seen, CONFIDENCE)[:, 0]
        bias = self._weights.get(CONFIDENCE_BIAS)
        confidence = torch.full((self.facts.slots,), torch.nan, dtype=score.dtype)
        confidence[self.facts.first_slot :] = torch.sigmoid(score if bias is None else score + bias)
        return confidence.numpy()


def tie(directory: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Puts the embeddings where the head is missing, if the config says that they are one table."""
    if HEAD not in tensors and EMBED in tensors and Config(directory).flag("tie_word_embeddings"):
        tensors[HEAD] = tensors[EMBED]


def sizes_of(facts: Facts) -> Sizes:
    return Sizes(
        hidden=facts.hidden_size,
        intermediate=facts.intermediate_size,
        heads=facts.n_head,
        kv=facts.n_head_kv,
        head_dim=facts.head_dim,
        eps=facts.rms_norm_eps,
        theta=facts.rope_theta,
        rotation=facts.rotation,
        value_scale=facts.value_scale,
        has_sinks=facts.has_sinks,
    )


def expected_shapes(facts: Facts, names: Collection[str]) -> dict[str, Shape]:
    """The tensors that the draft has to have; the confidence head's bias may be missing."""
    hidden, rank, known = facts.hidden_size, facts.markov_rank, facts.draft_vocab_size or facts.vocab_size
    shapes: dict[str, Shape] = {
        EMBED: (facts.vocab_size, hidden),
        HEAD: (known, hidden),
        "fc.weight": (hidden, len(facts.taps) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    if facts.gemma4 is not None:
        shapes |= gemma4_layer_shapes(facts.n_layer, sizes_of(facts), facts.gemma4, names)
    else:
        shapes |= layer_shapes(facts.n_layer, sizes_of(facts), facts.attention_bias, names)
    if facts.dflash2 is not None:
        shapes |= dflash2_shapes(facts.dflash2, facts.n_layer, hidden, facts.vocab_size)
    if rank:
        shapes |= {MARKOV_W1: (facts.vocab_size, rank), MARKOV_W2: (known, rank)}
    if facts.draft_vocab_size is not None:
        shapes[D2T] = (known,)
    if facts.has_confidence_head:
        shapes[CONFIDENCE] = (1, hidden + (rank if facts.confidence_with_markov else 0))
        if CONFIDENCE_BIAS in names:
            shapes[CONFIDENCE_BIAS] = (1,)
    return shapes
