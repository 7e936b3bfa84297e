"""Child process: the blocks that llama.cpp drafts behind prompts of several lengths.

Arguments: target GGUF, draft GGUF, .npz to write, block size, mask token, lengths. A prompt's tokens are drawn.
And words for a draft that is otherwise than DeepSpec's: "bonus", "causal", "unsure" (no confidence head), "dflash",
"selects=K" (DFlash2's selector with K candidates, whose lattice is written too).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.injection import probe_injection
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.session import Session
from dspark_convert.runtime.shape import DraftShape


def main() -> None:
    target, draft, out = (Path(argument) for argument in sys.argv[1:4])
    block_size, mask, *lengths = (int(argument) for argument in sys.argv[4:] if argument.isdecimal())
    words = {argument for argument in sys.argv[4:] if not argument.isdecimal()}
    top_k = next((int(word.removeprefix("selects=")) for word in words if word.startswith("selects=")), 0)
    shape = DraftShape(
        block_size,
        reads_anchor="bonus" not in words,
        mask_token_id=mask,
        causal="causal" in words,
        has_confidence_head="unsure" not in words,
        kind="dflash2" if top_k else "dflash" if "dflash" in words else "dspark",
        selector_top_k=top_k,
    )
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
            found |= {f"anchor{length}": tokens[-1], f"features{length}": features, f"drafts{length}": block.tokens}
            found[f"logits{length}"] = block.logits
            if shape.has_confidence_head:
                found[f"confidences{length}"] = block.confidences
            if block.lattice is not None:
                found[f"candidates{length}"] = block.lattice[:, :top_k].astype(np.int64)
                found[f"scores{length}"] = block.lattice[:, top_k:].reshape(-1, top_k, top_k)
    np.savez(out, **found)


if __name__ == "__main__":
    main()
