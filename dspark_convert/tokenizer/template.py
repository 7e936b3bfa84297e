"""The chat template, and what is odd about it: it is a program from a stranger."""

from __future__ import annotations

import re
import string as letters
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, warning
from dspark_convert.ggufio.types import KV, ValueType, array, string
from dspark_convert.source.jsonfile import read_object
from dspark_convert.tokenizer.files import TokenizerFiles

KEY = "tokenizer.chat_template"

#: names may hold these; anything else becomes an underscore
_NAME_LETTERS = frozenset(letters.ascii_letters + letters.digits)

#: a way out of a Jinja sandbox starts at an attribute such as __class__, or at the filter that names one
_ATTRIBUTE = re.compile(r"__[^\W\d_]\w*__|\|\s{0,8}attr\b")
#: what no reader sees: control characters other than line breaks and tabs, characters without width, and
#: those that turn the reading direction
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069]")


def template_kvs(files: TokenizerFiles) -> tuple[list[KV], list[Finding]]:
    """``tokenizer.chat_template``; with several, ``.chat_template.NAME`` each and their names.

    Raises InputError if a template is no text.
    """
    default, named = _split(_source(files), files.directory)
    kvs = [string(f"{KEY}.{name}", text) for name, text in named.items()]
    if named:
        kvs.append(array("tokenizer.chat_templates", ValueType.STRING, list(named)))
    if default is not None:
        kvs.append(string(KEY, default))
    return kvs, list(judge(kvs))


def judge(kvs: Iterable[KV]) -> Iterator[Finding]:
    """What is odd about the templates among ``kvs``; raises InputError if one cannot be encoded."""
    for kv in kvs:
        if kv.key.startswith(KEY) and kv.type is ValueType.STRING:
            yield from _judge(kv.key, kv.value)


def _source(files: TokenizerFiles) -> Any:
    """A text, or a list of ``{"name", "template"}``, from the first place that has one."""
    in_config = files.settings.get("chat_template")
    if in_config is not None:
        return in_config
    directory = files.directory
    if (directory / "chat_template.jinja").is_file():
        text = _read_text(directory / "chat_template.jinja")
        more = sorted((directory / "additional_chat_templates").glob("*.jinja"))
        if not more:
            return text
        entries = [("default", text), *((path.stem, _read_text(path)) for path in more)]
        return [{"name": name, "template": template} for name, template in entries]
    if (directory / "chat_template.json").is_file():
        return read_object(directory / "chat_template.json").get("chat_template")
    return None


def _read_text(path: Path) -> str:
    try:
        # As a text file: "\r\n" is read as "\n".
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise InputError(f"{path} is not UTF-8 text (byte {e.start}).") from None
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}.") from None


def _split(source: Any, directory: Path) -> tuple[str | None, dict[str, str]]:
    if source is None or isinstance(source, str):
        return source, {}
    entries = source if isinstance(source, list) else [source]
    named: dict[str, str] = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        text = entry.get("template") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name or not isinstance(text, str):
            raise InputError(
                f"a chat template in {directory} is neither a text nor a list of named texts;"
                " leave it out with --no-chat-template, a draft does not need one."
            )
        named["".join(c if c in _NAME_LETTERS else "_" for c in name)] = text
    return named.pop("default", None), named


def _judge(key: str, text: str) -> Iterator[Finding]:
    advice = "a draft does not need one: --no-chat-template leaves it out"
    if surrogate := re.search("[\ud800-\udfff]", text):
        raise InputError(f"the chat template holds half a surrogate pair at character {surrogate.start()}.")
    if attribute := _ATTRIBUTE.search(text):
        message = f"the chat template reaches for {attribute[0]}, which no template needs and attacks on Jinja do."
        yield warning("chat-template-attribute", key, message, advice)
    if control := _CONTROL.search(text):
        message = f"the chat template holds the invisible character U+{ord(control[0]):04X} at {control.start()}."
        yield warning("chat-template-control", key, message, advice)
