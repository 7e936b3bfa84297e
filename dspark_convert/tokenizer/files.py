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

#: what helps where a tokenizer cannot be read
TAKE_GGUF = "take the tokenizer from a GGUF of the target instead (--target-gguf FILE)"

#: file names shown when tokenizer.json is not among them
MAX_SHOWN_FILES = 8

#: the files that are read, the first that is there
TOKENIZER, SENTENCEPIECE, TIKTOKEN = READ = ("tokenizer.json", "tokenizer.model", "tiktoken.model")

#: other tokenizer formats: file, what it is, what helps
_FOREIGN = (
    ("tekken.json", "a Mistral tekken vocabulary", ""),
    (
        "vocab.json",
        "a tokenizer in the old form",
        " (transformers writes tokenizer.json with AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))",
    ),
)


@dataclass(frozen=True)
class TokenizerFiles:
    """``tokenizer_config`` is None if there is no such file; the others are then empty.

    ``name``: the file that holds the vocabulary, one of ``READ``.
    """

    directory: Path
    name: str
    tokenizer: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any] | None
    model_config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    added_tokens: Mapping[str, Any]

    @property
    def vocabulary_path(self) -> Path:
        return self.directory / self.name

    @property
    def tokenizer_path(self) -> Path:
        return self.directory / TOKENIZER

    @property
    def model(self) -> Mapping[str, Any]:
        """The model in tokenizer.json; raises InputError if there is none."""
        model = self.tokenizer.get("model")
        if not isinstance(model, dict):
            raise InputError(
                f'{self.tokenizer_path} has no "model" object, so it is no tokenizer of the tokenizers library.'
            )
        return model

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.tokenizer_config or {}

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of config.json in a multimodal target, else empty."""
        nested = self.model_config.get("text_config")
        return nested if isinstance(nested, dict) else {}

    @property
    def model_types(self) -> tuple[str, ...]:
        """What config.json calls the model, and its language model."""
        found = (self.model_config.get("model_type"), self.text_config.get("model_type"))
        return tuple(kind for kind in found if isinstance(kind, str))


def read_files(directory: Path) -> TokenizerFiles:
    """Read the JSON files of a tokenizer; only one of ``READ`` has to be there.

    Raises InputError if none is, or if one of them is no JSON object.
    """
    name = next((name for name in READ if (directory / name).is_file()), None)
    if name is None:
        raise InputError(_missing(directory))
    return TokenizerFiles(
        directory=directory,
        name=name,
        tokenizer=read_tokenizer(directory / name) if name == TOKENIZER else {},
        tokenizer_config=_optional(directory / "tokenizer_config.json"),
        model_config=_optional(directory / "config.json") or {},
        generation_config=_optional(directory / "generation_config.json") or {},
        added_tokens=(_optional(directory / "added_tokens.json") or {}) if name != TOKENIZER else {},
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
            lacks = f"{directory} holds {what} ({name}), which is not read here, and no tokenizer.json{help_text}"
            return f"{lacks}; {TAKE_GGUF}."
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
