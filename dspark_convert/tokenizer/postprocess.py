"""What the post-processor of tokenizer.json says about BOS, EOS and SEP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Additions:
    """``names``: token by role, completed from templates; ``adds``: whether a role is added, in the
    order found; ``extra_roles``: ``eot`` and ``eom`` where a template's last token takes EOS's place.
    """

    names: dict[str, str]
    adds: dict[str, bool]
    extra_roles: tuple[str, ...] = ()


def read_post_processor(post_processor: Any, names: Mapping[str, str]) -> Additions:
    """Read the steps of ``post_processor``; ``names`` are the roles' tokens in tokenizer_config.json.

    Follows llama.cpp's converter (``SpecialVocab`` in gguf-py): CLS and SEP stand in for BOS and
    EOS; a template with a leading or trailing special token decides for BOS or EOS.
    """
    found = Additions(dict(names), {})
    for role, substitute in (("bos", "cls"), ("eos", "sep")):
        if role not in found.names and substitute in found.names:
            found.names[role] = found.names[substitute]
    for step in _steps(post_processor):
        match step.get("type"):
            case "ByteLevel":
                found.adds.setdefault("bos", False)
                found.adds.setdefault("eos", False)
            case "RobertaProcessing":
                found.adds.update(bos=True, eos=True, sep=True)
                for role in ("cls", "sep"):
                    pair = step.get(role)
                    if isinstance(pair, list) and pair and isinstance(pair[0], str):
                        found.names.setdefault(role, pair[0])
            case "TemplateProcessing":
                _read_template(step, found)
    return found


def _steps(post_processor: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(post_processor, dict):
        return
    inner = post_processor.get("processors", [post_processor])
    yield from (step for step in inner if isinstance(step, dict)) if isinstance(inner, list) else ()


def _read_template(step: Mapping[str, Any], found: Additions) -> None:
    single = _parts(step.get("single"))
    first = last = None
    if len(single) > 1:
        first, last = _special(single[0]), _special(single[-1])
    if first:
        found.names.setdefault("bos", first)
        found.names.setdefault("cls", first)
        found.adds["bos"] = first in (found.names["bos"], found.names["cls"])
    if last:
        _take_eos(last, found)
        found.adds["eos"] = True
    pair = _parts(step.get("pair"))
    if pair:
        pair = pair[1:] if first and _special(pair[0]) == first else pair
        pair = pair[:-1] if pair and last and _special(pair[-1]) == last else pair
        _read_separator(pair, last, found)


def _take_eos(last: str, found: Additions) -> None:
    """A template ends with ``last``: that is EOS, and what the config calls so is EOT, else EOM."""
    former = found.names.get("eos")
    if former not in (None, last):
        role = next((role for role in ("eot", "eom") if role not in found.extra_roles), None)
        if role:
            found.extra_roles += (role,)
            found.names[role] = str(former)
    found.names["eos"] = last


def _read_separator(pair: Sequence[Mapping[str, Any]], last: str | None, found: Additions) -> None:
    """A [SEP] B, A [EOS] B or A [EOS] [SEP] B, outer special tokens already off."""
    if len(pair) < 3 or _sequence(pair[0]) != "A" or _sequence(pair[-1]) != "B":
        return
    middle = pair[1:-1]
    ends = {found.names.get("sep"), found.names.get("eos")} - {None}
    alone = _special(middle[0]) in ends and not last
    second = len(middle) == 2 and _special(middle[1]) in ends
    found.adds["sep"] = alone or second
    if found.adds["sep"] and "eos" in found.names:
        found.names.setdefault("sep", found.names["eos"])


def _parts(template: Any) -> list[Mapping[str, Any]]:
    return [part for part in template if isinstance(part, dict)] if isinstance(template, list) else []


def _special(part: Mapping[str, Any]) -> str | None:
    token = part.get("SpecialToken")
    name = token.get("id") if isinstance(token, dict) else None
    return name if isinstance(name, str) else None


def _sequence(part: Mapping[str, Any]) -> Any:
    sequence = part.get("Sequence")
    return sequence.get("id") if isinstance(sequence, dict) else None
