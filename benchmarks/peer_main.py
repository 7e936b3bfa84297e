"""Runs llama.cpp's converter out of its source: ``python peer_main.py SOURCE ARGUMENT...``, in the peer's Python.

It tells a pre-tokenizer from a hash of some encoded text and ends with an error if it does not know the hash. It does
not know that of a made-up vocabulary, so it is told the name after it has made the hash.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

if __name__ == "__main__":
    source = sys.argv[1]
    sys.path[:1] = [source, f"{source}/gguf-py"]
    from conversion.base import TextModel  # type: ignore[import-not-found]

    look_up = TextModel.get_vocab_base_pre

    def named(self: Any, tokenizer: Any) -> str:
        try:
            return str(look_up(self, tokenizer))
        except NotImplementedError:
            return "qwen2"

    TextModel.get_vocab_base_pre = named
    sys.argv = ["convert_hf_to_gguf.py", *sys.argv[2:]]
    runpy.run_path(f"{source}/{sys.argv[0]}", run_name="__main__")
