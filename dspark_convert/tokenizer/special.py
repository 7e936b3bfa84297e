"""Ids of the special tokens, and whether BOS, EOS and SEP are added to a text.

The rules are those of llama.cpp's converter, so that a draft's file says what its target's says,
with these exceptions: a list of EOS ids gives its first, ids outside the vocabulary are left
out, and a token that is named but not declared is looked up in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dspark_convert.findings import Finding, info, warning
from dspark_convert.ggufio.types import KV, boolean, u32
from dspark_convert.tokenizer.added import ROLES, role_token
from dspark_convert.tokenizer.files import TokenizerFiles
from dspark_convert.tokenizer.postprocess import read_post_processor
from dspark_convert.tokenizer.vocabulary import Vocabulary

#: role -> its key; a role without one (cls) has no place in GGUF, and the mask is the draft's own
ID_KEYS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "eot": "tokenizer.ggml.eot_token_id",
    "eom": "tokenizer.ggml.eom_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
    "sep": "tokenizer.ggml.seperator_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
}
_ADD_KEYS = {role: f"tokenizer.ggml.add_{role}_token" for role in ("bos", "eos", "sep")}


@dataclass
class _Ids:
    """Ids by role as they are found; the first source of a role wins."""

    vocab_size: int
    by_role: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def offer(self, role: str, value: Any, where: str) -> None:
        if role not in ID_KEYS or role in self.by_role:
            return
        if isinstance(value, list) and value and type(value[0]) is int:
            message = f"{where} has {len(value)} ids for {role.upper()}; the first, {value[0]}, is written."
            self.findings.append(info("tokenizer-many-ids", ID_KEYS[role], message))
            value = value[0]
        if type(value) is not int or value == -1:
            return
        if 0 <= value < self.vocab_size:
            self.by_role[role] = value
        else:
            message = (
                f"{where} gives {role.upper()} the id {value}, outside the {self.vocab_size} tokens; it is left out."
            )
            self.findings.append(warning("tokenizer-special-range", ID_KEYS[role], message, f"correct {where}"))


def special_kvs(
    files: TokenizerFiles, vocabulary: Vocabulary, known: Mapping[str, int] | None = None
) -> tuple[list[KV], list[Finding]]:
    """The ``*_token_id`` and ``add_*_token`` entries, in the order of llama.cpp's converter.

    ``known``: ids by role that no other file has to state, such as the vocabulary's own.
    """
    names = {role: name for role in ROLES if (name := role_token(files.settings, role))}
    additions = read_post_processor(files.tokenizer.get("post_processor"), names)
    roles = (*ROLES, *additions.extra_roles)
    ids = _Ids(len(vocabulary.texts))
    listed = {entry["content"] for entry in files.tokenizer.get("added_tokens") or ()}
    # Without that file the names are a template's alone, and config.json knows better.
    for role in roles if files.tokenizer_config is not None else ():
        name = additions.names.get(role, "")
        ids.offer(role, vocabulary.ids[name] if name in listed else None, "tokenizer_config.json")
    for role in roles:
        ids.offer(role, _config_id(files, role), "config.json")
    for role in roles:
        ids.offer(role, vocabulary.ids.get(additions.names.get(role, "")), "tokenizer_config.json")
        ids.offer(role, files.generation_config.get(f"{role}_token_id"), "generation_config.json")
    for role, token_id in (known or {}).items():
        ids.offer(role, token_id, files.name)
    adds = dict(additions.adds)
    findings = ids.findings + _configured_adds(files.settings, roles, adds)
    kvs = [u32(ID_KEYS[role], token_id) for role, token_id in ids.by_role.items()]
    kvs += [boolean(_ADD_KEYS[role], value) for role, value in adds.items() if role in _ADD_KEYS]
    return kvs, findings


def _config_id(files: TokenizerFiles, role: str) -> Any:
    value = files.model_config.get(f"{role}_token_id")
    return value if value is not None else files.text_config.get(f"{role}_token_id")


def _configured_adds(settings: Mapping[str, Any], roles: tuple[str, ...], adds: dict[str, bool]) -> list[Finding]:
    """Complete ``adds`` from tokenizer_config.json; where the two disagree the post-processor counts."""
    findings = []
    for role in roles:
        wanted = settings.get(f"add_{role}_token")
        if isinstance(wanted, bool) and adds.setdefault(role, wanted) != wanted and role in _ADD_KEYS:
            message = (
                f"tokenizer_config.json says {str(wanted).lower()}, the post-processor of tokenizer.json"
                f" {str(adds[role]).lower()}; the latter is written, as llama.cpp's converter does."
            )
            findings.append(info("tokenizer-add-token", _ADD_KEYS[role], message))
    return findings
