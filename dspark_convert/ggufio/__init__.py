"""GGUF files: types, a bounds-checked reader, a streaming writer, the draft dialects."""
