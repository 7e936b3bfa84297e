"""Child process: tokenizes texts with llama.cpp. Arguments: JSON of [[GGUF file, [text, ...]], ...].

Prints the token ids as JSON, in the same order, or null for a file that llama.cpp refuses.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dspark_convert.runtime.binding import TOKEN, Llama
from dspark_convert.runtime.library import find_library


def encode(llama: Llama, path: str, texts: list[str]) -> list[list[int]] | None:
    params = llama.model_params()
    params.vocab_only = True
    model = llama.load_model(Path(path), params)
    if not model:
        return None
    vocab = llama.llama_model_get_vocab(model)
    result = []
    for text in texts:
        data = text.encode()
        room = (TOKEN * (len(data) + 8))()
        count = llama.llama_tokenize(vocab, data, len(data), room, len(room), False, True)
        result.append(list(room[:count]))
    llama.llama_model_free(model)
    return result


def main() -> None:
    llama = Llama(find_library().path)
    print(json.dumps([encode(llama, path, texts) for path, texts in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
