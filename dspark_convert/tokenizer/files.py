"""Finds and reads the files that make up a tokenizer in a model directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.source.classify import names_draft
from dspark_convert.source.jsonfile import read_object
from dspark_convert.tokenizer.lifted import read_tokenizer
from dspark_convert.words import listed

#: file names shown when tokenizer.json is not among them
MAX_SHOWN_FILES = 8

#: other tokenizer formats: file, what it is, what helps
_FOREIGN = (
    ("tokenizer.model", "a SentencePiece tokenizer", ""),
    ("tiktoken.model", "a tiktoken vocabulary", ""),
    ("tekken.json", "a Mistral tekken vocabulary", ""),
    (
        "vocab.json",
        "a tokenizer in the old form",
        " (transformers writes tokenizer.json with AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))",
    ),
)


@dataclass(frozen=True)
class TokenizerFiles:
    """``tokenizer_config`` is None if there is no such file; the others are then empty."""

    directory: Path
    tokenizer: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any] | None
    model_config: Mapping[str, Any]
    generation_config: Mapping[str, Any]

    @property
    def tokenizer_path(self) -> Path:
        return self.directory / "tokenizer.json"

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.tokenizer_config or {}

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of config.json in a multimodal target, else empty."""
        nested = self.model_config.get("text_config")
        return nested if isinstance(nested, dict) else {}


def read_files(directory: Path) -> TokenizerFiles:
    """Read the JSON files of a tokenizer; only tokenizer.json has to be there.

    Raises InputError if it is not, or if one of them is no JSON object.
    """
    if not (directory / "tokenizer.json").is_file():
        raise InputError(_missing(directory))
    return TokenizerFiles(
        directory=directory,
        tokenizer=read_tokenizer(directory / "tokenizer.json"),
        tokenizer_config=_optional(directory / "tokenizer_config.json"),
        model_config=_optional(directory / "config.json") or {},
        generation_config=_optional(directory / "generation_config.json") or {},
    )


def _optional(path: Path) -> dict[str, Any] | None:
    return read_object(path) if path.is_file() else None


def _missing(directory: Path) -> str:
    """One sentence: what was looked for, what is there instead, and what to do."""
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError as e:
        return f"the target directory {directory} cannot be read: {e.strerror or e}."
    for name, what, help_text in _FOREIGN:
        if name in names:
            return (
                f"{directory} holds {what} ({name}) and no tokenizer.json, which is the one form that is read"
                f" here{help_text}; take the tokenizer from a GGUF of the target instead (--target-gguf FILE)."
            )
    if _looks_like_draft(directory):
        return (
            f"there is no tokenizer.json in {directory}, and its config.json is that of a draft; "
            "were the draft and the target directory swapped?"
        )
    return (
        f"there is no tokenizer.json in {directory} (looked for tokenizer.json, tokenizer.model, tiktoken.model,"
        f" vocab.json; there are: {listed(names, MAX_SHOWN_FILES) or 'no files'}); fetch the target's tokenizer"
        " files, or take the tokenizer from a GGUF of the target (--target-gguf FILE)."
    )


def _looks_like_draft(directory: Path) -> bool:
    try:
        config = _optional(directory / "config.json") or {}
    except InputError:
        return False
    return names_draft(config) or "markov_rank" in config or "dflash_config" in config
