"""Convert DSpark draft models to GGUF, and prove that the result drafts in llama.cpp."""

__version__ = "0.1.0"
