"""The tokenizer of a target in Hugging Face's form, without transformers or tokenizers."""

from __future__ import annotations

from pathlib import Path

from dspark_convert.ggufio.types import ValueType, array, string
from dspark_convert.tokenizer.files import read_files
from dspark_convert.tokenizer.merges import read_merges
from dspark_convert.tokenizer.pre import name_pre_tokenizer
from dspark_convert.tokenizer.result import TokenizerKVs
from dspark_convert.tokenizer.special import special_kvs
from dspark_convert.tokenizer.template import template_kvs
from dspark_convert.tokenizer.vocabulary import read_vocabulary


def from_directory(
    target_dir: Path, vocab_size: int, *, pre: str | None = None, chat_template: bool = True
) -> TokenizerKVs:
    """Read tokenizer.json and its companions in ``target_dir``.

    ``vocab_size`` is that of the target's config.json: ids up to it that have no token become
    padding. ``pre`` names the pre-tokenizer by hand; ``chat_template=False`` leaves templates out.
    Raises InputError if there is no byte-level BPE tokenizer, if it is damaged, does not fit
    ``vocab_size``, or splits text in a way that has no known name.
    """
    files = read_files(target_dir)
    vocabulary = read_vocabulary(files, vocab_size)
    merges = read_merges(files, vocabulary.ids)
    named = name_pre_tokenizer(files, pre)
    special, special_findings = special_kvs(files, vocabulary)
    template, template_findings = template_kvs(files) if chat_template else ([], [])
    return TokenizerKVs(
        kvs=(
            string("tokenizer.ggml.model", "gpt2"),
            string("tokenizer.ggml.pre", named.name),
            array("tokenizer.ggml.tokens", ValueType.STRING, vocabulary.texts),
            array("tokenizer.ggml.token_type", ValueType.INT32, vocabulary.types),
            array("tokenizer.ggml.merges", ValueType.STRING, merges),
            *special,
            *template,
        ),
        findings=(*vocabulary.findings, *named.findings, *special_findings, *template_findings),
    )
