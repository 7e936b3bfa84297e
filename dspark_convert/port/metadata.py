"""The key/values of a ported file: its meaning written anew, what it says of its origin kept, the rest told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dspark_convert import metadata as written
from dspark_convert.draft import Draft
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, warning
from dspark_convert.ggufio.layouts.names import MAINLINE, OWN
from dspark_convert.ggufio.types import FILE_TYPES, KV, GGMLType, u32
from dspark_convert.ggufio.values import Metadata
from dspark_convert.lint.fixes import SHOWN_NAMES
from dspark_convert.options import Options
from dspark_convert.pair.remarks import sections_of
from dspark_convert.source.provenance import Provenance, is_repo
from dspark_convert.target import Target
from dspark_convert.words import listed

FILE_TYPE = "general.file_type"

#: in place of a vocabulary, which there is now
VOCAB_SIZE = f"{MAINLINE}vocab_size"

#: keys that say how the old file was laid out
OF_THE_FILE = ("general.architecture", "general.alignment", FILE_TYPE)

HUB = "https://huggingface.co/"


def port_metadata(
    old: Metadata,
    path: Path,
    draft: Draft,
    target: Target | None,
    tokenizer: tuple[KV, ...],
    matrices: GGMLType,
    *,
    same_types: bool,
    all_f32: bool,
) -> tuple[KV, ...]:
    """All key/values, in mainline's words.

    ``old`` is the metadata, in mainline's words, of the file ``path``. ``same_types``: no tensor's type changes,
    so that the old file's name for their mixture holds. ``all_f32``: of the matrices; a file of which only most are
    has no name.
    """
    source = provenance_of(old, path)
    mrope = target.mrope if target is not None else bool(sections_of(old))
    new = [*written.general(source, target, matrices), *written.runtime(draft, mrope=mrope)]
    new += [old.held(key) for key in old if key.startswith(MAINLINE) and key != VOCAB_SIZE]
    new += written.meaning(draft, source, target)
    if target is None:
        new += [old.held(key) for key in old if key.startswith("dspark.target.")]
    new += [*tokenizer, written.mask(draft)]
    new += [old.held(key) for key in old if key.startswith("general.") and key not in OF_THE_FILE]
    # What is written anew stands first, and wins.
    kvs = {kv.key: kv for kv in reversed(new)}
    kvs[FILE_TYPE] = u32(FILE_TYPE, FILE_TYPES.get(matrices, FILE_TYPES[GGMLType.F32]))
    if same_types and FILE_TYPE in old:
        kvs[FILE_TYPE] = old.held(FILE_TYPE)
    if kvs[FILE_TYPE].value == FILE_TYPES[GGMLType.F32] and not all_f32:
        del kvs[FILE_TYPE]
    order = dict.fromkeys(kv.key for kv in new) | {FILE_TYPE: None}
    return tuple(kvs[key] for key in order if key in kvs)


def judge_keys(old: Metadata) -> Iterator[Finding]:
    """What is to be told of keys that are left out, among those in mainline's words."""
    kept = (MAINLINE, "general.", "tokenizer.", "split.")
    keys = [key for key in old if not key.startswith(kept) and not OWN.fullmatch(key)]
    if keys:
        message = f"{len(keys)} keys are left out, which no draft has: {listed(keys, SHOWN_NAMES)}."
        yield warning("key-dropped", keys[0], message)


def own_tokenizer(old: Metadata, path: Path, options: Options) -> tuple[tuple[KV, ...], tuple[Finding, ...]]:
    """The file's own vocabulary but for its mask token, and what is to be told; an error if it has none."""
    from dspark_convert.tokenizer import from_metadata

    try:
        result = from_metadata(old, path, chat_template=options.chat_template)
    except InputError:
        message = "the file holds no vocabulary, and there is no target to take it from."
        fix = "give the target: --target-gguf FILE or --target-model-dir DIR"
        return (), (error("vocabulary-missing", "tokenizer.ggml.tokens", message, fix),)
    return result.kvs, result.findings


def provenance_of(old: Metadata, path: Path) -> Provenance:
    """Where the file says that its draft comes from."""
    source = _text(old, "dspark.source") or _text(old, "general.source.huggingface.repository")
    base = (_text(old, "general.base_model.0.repo_url") or "").removeprefix(HUB)
    repo = source if source and is_repo(source) else None
    name = _text(old, "general.name") or (repo.split("/")[1] if repo else source) or path.stem
    return Provenance(name, repo, _text(old, "dspark.revision"), base if is_repo(base) else None)


def _text(old: Metadata, key: str) -> str | None:
    value = old.get(key)
    return value if isinstance(value, str) and value else None
