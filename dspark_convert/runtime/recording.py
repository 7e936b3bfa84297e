"""What a run hands over to be compared with a reference: arrays in one file a prompt.

The child writes ``<directory>/<number>.npz``, the parent reads it. A block of logits of a real
vocabulary has some 4 MB, so only the first rounds of a prompt are kept (``rounds_to_keep``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.errors import EnvironmentFault

if TYPE_CHECKING:
    from dspark_convert.runtime.context import FloatArray

#: rounds of one prompt that are compared, and bytes of logits that all prompts may take together
MAX_ROUNDS = 16
MAX_BYTES = 256 * 2**20

#: integer arrays of a recording: token ids and positions
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Recording:
    """One prompt's run. T tokens that the target decoded, R recorded rounds, S slots, D drafts a block.

    ``tokens`` [T] stand at positions 0…T-1; ``inputs`` [T, L, n_embd] are the target's inputs of
    ``layers`` [L] for them. Round r drafted at ``positions`` [R] behind the token ``anchors`` [R]; ``slots``
    [R, S] are llama.cpp's best tokens, ``logits`` [R, D, vocabulary] and ``confidences`` [R, D] or [R, 0];
    ``experts`` [R, stages, S, used] those that it took, or [0] where there are none or it does not show them.
    ``candidates`` [R, S, k] are a selector's and ``scores`` [R, S, k before, k] theirs, or [0].
    """

    tokens: IntArray
    layers: IntArray
    inputs: FloatArray
    positions: IntArray
    anchors: IntArray
    slots: IntArray
    logits: FloatArray
    confidences: FloatArray
    experts: IntArray
    candidates: IntArray
    scores: FloatArray

    def write(self, directory: Path, number: int) -> None:
        """Raises EnvironmentFault if the directory cannot take it."""
        try:
            np.savez(directory / f"{number}.npz", **vars(self))
        except OSError as fault:
            raise EnvironmentFault(
                f"{directory} cannot take what is to be compared ({fault.strerror or fault}); make room there, or"
                " name another directory for temporary files in TMPDIR."
            ) from fault

    def features(self, taps: tuple[int, ...], n_tokens: int) -> FloatArray:
        """The inputs of the layers ``taps`` of the first tokens, side by side: [n_tokens, taps * n_embd]."""
        columns = [self.layers.tolist().index(tap) for tap in taps]
        return self.inputs[:n_tokens, columns].reshape(n_tokens, -1)


def read_recording(directory: Path, number: int) -> Recording:
    """What ``Recording.write`` wrote."""
    with np.load(directory / f"{number}.npz", allow_pickle=False) as arrays:
        return Recording(**arrays)


def rounds_to_keep(n_prompts: int, n_drafts: int, n_vocab: int) -> int:
    """Rounds of each prompt whose logits are kept."""
    block = n_drafts * n_vocab * 4
    return max(1, min(MAX_ROUNDS, MAX_BYTES // (max(n_prompts, 1) * max(block, 1))))


def make_recording(session: Any, run: Any, prompt: list[int]) -> Recording:
    """The recording of one ``DraftRun`` that was made with ``record``."""
    inputs = np.concatenate(run.watched)
    rounds = [entry for entry in run.rounds if entry.block is not None]
    blocks = [entry.block for entry in rounds]
    empty = np.empty(0, np.float32)
    experts = [block.experts for block in blocks if block.experts is not None]
    lattices = np.array([block.lattice for block in blocks if block.lattice is not None], np.float32)
    k = session.shape.selector_top_k
    return Recording(
        tokens=np.array([*prompt, *run.tokens][: len(inputs)]),
        layers=np.array(session.watched),
        inputs=inputs,
        positions=np.array([entry.position for entry in rounds]),
        anchors=np.array([entry.anchor for entry in rounds]),
        slots=np.array([block.slots for block in blocks]),
        logits=np.array([block.logits for block in blocks], np.float32),
        confidences=np.array([empty if block.confidences is None else block.confidences for block in blocks]),
        experts=np.array(experts if len(experts) == len(blocks) else [], np.int64),
        candidates=lattices[..., :k].astype(np.int64),
        scores=lattices[..., k:].reshape(*lattices.shape[:-1], k, k) if lattices.size else lattices,
    )
