"""Child process: the blocks and lattices that llama.cpp makes with a DFlash2 draft behind prompts of several lengths.

Arguments: target GGUF, draft GGUF, .npz to write, block size, mask token, top k, lengths. A prompt's tokens are drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.context import rows
from dspark_convert.runtime.injection import probe_injection
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.session import Session
from dspark_convert.runtime.shape import DraftShape


def main() -> None:
    target, draft, out = (Path(argument) for argument in sys.argv[1:4])
    block_size, mask, top_k, *lengths = (int(argument) for argument in sys.argv[4:])
    shape = DraftShape(block_size, False, mask, causal=False, has_confidence_head=False, kind="dflash")
    rng = np.random.default_rng(5)
    found: dict[str, Any] = {}
    with Session(Llama(find_library().path), target, draft, shape) as session:
        session.load_target()
        session.load_draft()
        session.open_contexts(256)
        probe_injection(session)
        for length in lengths:
            session.clear()
            session.keep_features(True)
            tokens = rng.integers(0, 496, length + 1).tolist()
            session.decode_target(tokens, 0)
            features = session.features(len(tokens))[:length]
            session.inject(features, 0)
            block = session.draft_block(tokens[-1], length)
            # a row of a slot: k candidates, then k scores for each candidate of the slot before
            pointer = session.llama.llama_get_embeddings_nextn(session.draft.handle)
            lattice = rows(pointer, block_size, session.draft_n_embd).copy()
            scores = lattice[:, top_k : top_k * (top_k + 1)].reshape(block_size, top_k, top_k)
            found |= {f"anchor{length}": tokens[-1], f"features{length}": features, f"logits{length}": block.logits}
            found |= {f"candidates{length}": lattice[:, :top_k].astype(np.int64), f"scores{length}": scores}
    np.savez(out, **found)


if __name__ == "__main__":
    main()
