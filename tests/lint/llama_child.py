"""Child process: what llama.cpp makes of draft files. Arguments: target GGUF, draft GGUFs, --flash.

Of each it writes "loaded" once it is, then "drafted" with the bits of the block's logits; it ends by a signal where
llama.cpp asserts.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

from dspark_convert.errors import InputError
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.session import Session
from dspark_convert.runtime.shape import DraftShape

#: with flash attention, as llama-server computes
FLASH = "--flash"
TOKENS = [3, 5, 7, 11, 13]


def shape_of(path: Path) -> DraftShape:
    with open_gguf(path) as gguf:
        draft = read_draft(gguf).draft
        sections = "dflash.rope.dimension_sections" in gguf.metadata
    assert draft is not None
    dspark = draft.kind == "dspark"
    return DraftShape(
        draft.block_size,
        reads_anchor=dspark and draft.sample_from_anchor,
        mask_token_id=draft.mask_token_id,
        causal=draft.causal,
        has_confidence_head=dspark and draft.has_confidence_head,
        kind=draft.kind,
        selector_top_k=draft.dflash2.selector_top_k if draft.dflash2 else 0,
        position_axes=4 if sections else 1,
    )


def run(llama: Llama, target: Path, draft: Path) -> None:
    with Session(llama, target, draft, shape_of(draft), exact=FLASH not in sys.argv) as session:
        session.load_target()
        session.load_draft()
        print("loaded", flush=True)
        session.open_contexts(64)
        session.injection = "decode"
        session.keep_features(True)
        session.decode_target(TOKENS, 0)
        session.inject(session.features(len(TOKENS)), 0)
        block = session.draft_block(TOKENS[-1], len(TOKENS))
        print("drafted", sha256(block.logits.tobytes()).hexdigest(), flush=True)


def main() -> None:
    llama = Llama(find_library().path)
    for draft in (path for path in sys.argv[2:] if path != FLASH):
        try:
            run(llama, Path(sys.argv[1]), Path(draft))
        except InputError as fault:
            print("fault", fault, flush=True)


if __name__ == "__main__":
    main()
