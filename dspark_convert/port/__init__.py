"""A draft GGUF becomes another one: of any layout, of other types, or with the target's vocabulary."""
