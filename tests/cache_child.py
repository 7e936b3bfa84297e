"""Child process: llama.cpp makes the draft's context as llama-server does, and logs how large its cache is.

Arguments: target GGUF, draft GGUF, positions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.library import find_library


def main() -> None:
    llama = Llama(find_library().path)
    target, draft = (llama.load_model(Path(path), llama.model_params()) for path in sys.argv[1:3])
    assert target is not None
    assert draft is not None
    params: Any = llama.context_params()
    params.n_ctx = 256
    beside = llama.new_context(target, params)
    print("the draft's context", file=sys.stderr, flush=True)
    params = llama.context_params()
    params.n_ctx, params.n_seq_max, params.ctx_other, params.swa_full = int(sys.argv[3]), 1, beside, False
    assert llama.new_context(draft, params) is not None
    print("done", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
