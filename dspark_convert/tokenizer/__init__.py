"""The target's tokenizer as GGUF metadata: built from its files, or copied from its GGUF."""

from dspark_convert.tokenizer.from_directory import from_directory
from dspark_convert.tokenizer.from_gguf import from_gguf, from_metadata
from dspark_convert.tokenizer.result import TokenizerKVs

__all__ = ["TokenizerKVs", "from_directory", "from_gguf", "from_metadata"]
