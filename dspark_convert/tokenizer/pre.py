"""llama.cpp's name for a tokenizer's pre-tokenizer, told from what tokenizer.json says of it.

llama.cpp's own converter tells it from a hash of an encoded text, which any change of the
vocabulary breaks; the definition itself is a short list of steps that can be compared.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, warning
from dspark_convert.tokenizer.files import TokenizerFiles

Step = tuple[str, ...]

#: raw line breaks in a regex, as the table spells them
_ESCAPES = str.maketrans({"\r": r"\r", "\n": r"\n", "\t": r"\t"})


@dataclass(frozen=True)
class Entry:
    """A definition of the table ``pre_tokenizers.toml``, which documents the fields."""

    name: str
    steps: tuple[Step, ...]
    models: str
    like: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    entries: tuple[Entry, ...]
    llama_cpp_names: frozenset[str]
    ignored_normalizers: frozenset[str]


@dataclass(frozen=True)
class PreTokenizer:
    """The value of ``tokenizer.ggml.pre``, and what is odd about it.

    ``roles``: tokens for roles that no file names.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)


@cache
def load_table() -> Table:
    with Path(__file__).with_name("pre_tokenizers.toml").open("rb") as stream:
        raw = tomllib.load(stream)
    entries = tuple(
        Entry(
            name=item["name"],
            steps=tuple(tuple(step) for step in item["steps"]),
            models=item["models"],
            like=tuple(item.get("like", ())),
            model_types=tuple(item.get("model_types", ())),
            roles=item.get("roles", {}),
        )
        for item in raw["pre_tokenizer"]
    )
    return Table(entries, frozenset(raw["llama_cpp_names"]), frozenset(raw["ignored_normalizers"]))


def name_pre_tokenizer(files: TokenizerFiles, by_hand: str | None = None) -> PreTokenizer:
    """Recognise the pre-tokenizer, or take the name given ``by_hand``.

    Raises InputError that shows the steps if they are those of no entry and no name is given.
    """
    table = load_table()
    normalizers = [n for n in flatten(files.tokenizer.get("normalizer"), "normalizers") if _odd(n, table)]
    steps = tuple(_step(item) for item in flatten(files.tokenizer.get("pre_tokenizer"), "pretokenizers"))
    entry = None if normalizers else _match(steps, files.model_types, table)
    if by_hand is not None:
        return PreTokenizer(by_hand, tuple(_judge(by_hand, entry, table)), entry.roles if entry else {})
    if entry is None:
        seen = printable(", then ".join([*map(shown_step, normalizers), *map(_say, steps)])) or "no steps at all"
        raise InputError(
            f"{files.tokenizer_path} splits text in a way that has no known name in llama.cpp (seen: {seen}); if you"
            " know the name, give it with --tokenizer-pre NAME, or take the tokenizer from a GGUF of the target"
            " (--target-gguf FILE)."
        )
    return PreTokenizer(entry.name, roles=entry.roles)


def _match(steps: tuple[Step, ...], model_types: tuple[str, ...], table: Table) -> Entry | None:
    same = [entry for entry in table.entries if entry.steps == steps]
    special = (entry for entry in same if any(kind in entry.model_types for kind in model_types))
    general = (entry for entry in same if not entry.model_types)
    return next(special, None) or next(general, None)


def _judge(name: str, entry: Entry | None, table: Table) -> Iterator[Finding]:
    if name not in table.llama_cpp_names:
        message = f"llama.cpp knows no pre-tokenizer {name!r} (as of August 2026) and refuses files with unknown names."
        yield warning("tokenizer-pre-unknown", "tokenizer.ggml.pre", message, "check the spelling of --tokenizer-pre")
    elif entry is not None and name != entry.name and name not in entry.like:
        message = f"{name!r} was given, but tokenizer.json defines what llama.cpp calls {entry.name!r}."
        yield warning("tokenizer-pre-differs", "tokenizer.ggml.pre", message, "leave --tokenizer-pre out")


def flatten(item: Any, field: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a pre-tokenizer or normalizer, sequences opened."""
    if not isinstance(item, dict):
        return
    if item.get("type") == "Sequence":
        inner = item.get(field)
        for part in inner if isinstance(inner, list) else ():
            yield from flatten(part, field)
    else:
        yield item


def _odd(normalizer: Mapping[str, Any], table: Table) -> bool:
    return str(normalizer.get("type")) not in table.ignored_normalizers


def _step(item: Mapping[str, Any]) -> Step:
    """A step as the table spells it; one that llama.cpp cannot have is spelled as it stands."""
    pattern = item.get("pattern")
    match item.get("type"):
        case "Split" if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str) and _isolates(item):
            return ("split", pattern["Regex"].translate(_ESCAPES))
        case "Digits" if item.get("individual_digits") is True:
            return ("digits",)
        case "ByteLevel" if not item.get("add_prefix_space", True):
            return ("gpt-2 bytes",) if item.get("use_regex", True) else ("bytes",)
    return ("other", shown_step(item))


def _isolates(item: Mapping[str, Any]) -> bool:
    """Whether each match becomes a piece: kept beside the rest, or all but matches removed.

    The second differs only for text that matches nothing, and these regexes match everything.
    """
    behavior = str(item.get("behavior")).lower()
    return (behavior, bool(item.get("invert"))) in (("isolated", False), ("removed", True))


def _say(step: Step) -> str:
    return {"split": "Split on the regex {}", "digits": "Digits one by one", "other": "{}"}.get(
        step[0], "ByteLevel with its own regex" if step[0] == "gpt-2 bytes" else "ByteLevel"
    ).format(step[-1])


def shown_step(item: Mapping[str, Any]) -> str:
    fields = ", ".join(f"{key} {value!r}" for key, value in item.items() if key not in ("type", "trim_offsets"))
    return f"{item.get('type')} ({fields})" if fields else str(item.get("type"))


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
