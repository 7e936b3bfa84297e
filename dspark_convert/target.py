"""What the conversion needs to know of the target model: a Hugging Face directory or a GGUF."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError, UsageError
from dspark_convert.findings import Finding
from dspark_convert.source.checkpoint import read_config, require_directory
from dspark_convert.source.classify import architectures, names_draft
from dspark_convert.source.hub_id import meant
from dspark_convert.source.provenance import Provenance, is_repo, provenance
from dspark_convert.target_limits import judge_limits

#: more is no base of rotation; larger integers would not fit a float
MAX_THETA = 1e30


@dataclass(frozen=True)
class Target:
    """``n_layer``, ``hidden_size``, ``vocab_size`` are None where the target does not say.

    ``tied``: the head is the embedding table; ``mrope``: positions have several axes;
    ``transforms``: metadata keys that say its embeddings are stored transformed; ``damage``: what
    is wrong with its file, though what is needed of it could be read; ``table_rows``: of its
    embeddings; ``embeddings_type`` and ``head_type``: how a GGUF stores them, or how a checkpoint
    says that it is quantised; ``other_names``: that a GGUF gives itself and the model it was made from;
    ``limits``: sizes with which llama.cpp does not run it; ``label``: how the user named a model on the hub.
    ``embedding_scale``: of its embeddings as they come out of the table; ``logit_scale``, then ``logit_softcap``:
    of its logits.
    """

    path: Path
    is_gguf: bool
    architecture: str
    provenance: Provenance
    hidden_size: int | None
    n_layer: int | None
    vocab_size: int | None
    tied: bool | None
    mrope: bool
    rope_theta: float | None = None
    transforms: tuple[str, ...] = ()
    damage: tuple[Finding, ...] = ()
    context_length: int | None = None
    table_rows: int | None = None
    embeddings_type: str | None = None
    head_type: str | None = None
    rope_scaling: str | None = None
    hyper_connections: int | None = None
    other_names: tuple[str, ...] = ()
    limits: tuple[Finding, ...] = ()
    embedding_scale: float | None = None
    logit_scale: float | None = None
    logit_softcap: float | None = None
    label: str = ""

    @property
    def called(self) -> str:
        """Its name in messages: the hub's, if it lies there, else the file's."""
        return self.label or self.path.name


def _size(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 < value < MAX_THETA else None


def _embedding_scale(architecture: str, stated: Any, hidden: int | None) -> float | None:
    """A Gemma multiplies by the root of its width, which its header does not say."""
    return hidden**0.5 if architecture.startswith("gemma") and hidden else _number(stated)


def _list(value: Any) -> Sequence[Any] | None:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else None


def open_target_directory(root: Path) -> Target:
    """Read the target's config.json (``text_config`` where there is one).

    Raises UsageError or InputError if it is no directory, has no config, or is a draft itself.
    """
    require_directory(root, "the target")
    whole = read_config(root, "the target")
    text = whole.get("text_config")
    config: Mapping[str, Any] = {**whole, **text} if isinstance(text, dict) else whole
    # The whole model's own, where a part has some too ("qwen3_5", not its "qwen3_5_text").
    architecture = next(iter(architectures(whole)), "unknown")
    if names_draft(whole):
        raise InputError(
            f"the target {root} is itself a draft ({architecture}); give the directory of the model that it drafts "
            "for (are the two directories swapped?)."
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    kind, hidden = str(whole.get("model_type") or _model_type(architecture)), _size(config.get("hidden_size"))
    return Target(
        path=root,
        is_gguf=False,
        architecture=kind,
        provenance=provenance(root, whole),
        hidden_size=hidden,
        n_layer=_size(config.get("num_hidden_layers")),
        vocab_size=_size(config.get("vocab_size")),
        tied=config.get("tie_word_embeddings") is True,
        mrope=isinstance(rope, dict) and "mrope_section" in rope,
        rope_theta=_number(rope.get("rope_theta") if isinstance(rope, dict) else None)
        or _number(config.get("rope_theta")),
        context_length=_size(config.get("max_position_embeddings")),
        embeddings_type=_method(whole),
        head_type=_method(whole),
        rope_scaling=_scaling(rope),
        hyper_connections=_size(config.get("hc_mult")),
        embedding_scale=_embedding_scale(kind, config.get("input_embedding_scale"), hidden),
        logit_scale=_number(config.get("output_multiplier")) or _number(config.get("logit_scale")),
        logit_softcap=_number(config.get("final_logit_softcapping")),
    )


def _model_type(architecture: str) -> str:
    """What a config without a model_type would most likely say, after the name of its class."""
    named = re.fullmatch(r"(\w+)For(CausalLM|ConditionalGeneration)", architecture)
    return named[1].lower() if named else architecture


def _method(config: Mapping[str, Any]) -> str | None:
    """The name of a checkpoint's quantisation."""
    quantised = config.get("quantization_config")
    method = quantised.get("quant_method") if isinstance(quantised, dict) else None
    return method if isinstance(method, str) else None


def _scaling(rope: Any) -> str | None:
    kind = (rope.get("rope_type") or rope.get("type")) if isinstance(rope, Mapping) else None
    return kind if isinstance(kind, str) and kind not in ("default", "none", "mrope") else None


def open_target_gguf(path: Path, sizes: Mapping[str, int] | None = None) -> Target:
    """Read the header of a target GGUF; ``sizes`` as in ``ggufio.reader.open_gguf``.

    Raises UsageError if ``path`` is no file, InputError if it is no GGUF or a draft.
    """
    from dspark_convert.ggufio.reader import open_gguf

    if not path.is_file():
        what = f"does not exist{meant(path)}"
        if path.is_dir():
            what = "is a directory, expected a GGUF (dspark-convert takes a directory with --target-model-dir)"
        raise UsageError(f"the target {path} {what}.")
    with open_gguf(path, sizes) as gguf:
        metadata = gguf.metadata
        architecture = str(metadata.get("general.architecture", "unknown"))
        if architecture in ("dflash", "dspark", "dflash-draft") or architecture.endswith(("-dspark", "-dflash-draft")):
            raise InputError(
                f"the target {path} is itself a draft ({architecture}); give the model that it drafts for."
            )
        tokens = _list(metadata.get("tokenizer.ggml.tokens"))
        sections = _list(metadata.get(f"{architecture}.rope.dimension_sections")) or ()
        name = metadata.get("general.name")
        url = metadata.get("general.source.huggingface.repository")
        table = gguf.tensor("token_embd.weight")
        head = gguf.tensor("output.weight") or table
        names = ("general.name", "general.base_model.0.name", "general.base_model.0.repo_url")
        scaling = metadata.get(f"{architecture}.rope.scaling.type")
        hidden = _size(metadata.get(f"{architecture}.embedding_length"))
        scale = metadata.get(f"{architecture}.embedding_scale")
        return Target(
            path=path,
            is_gguf=True,
            architecture=architecture,
            provenance=Provenance(
                name=name if isinstance(name, str) and name else path.stem,
                repo=url if isinstance(url, str) and is_repo(url) else None,
            ),
            hidden_size=hidden,
            n_layer=_size(metadata.get(f"{architecture}.block_count")),
            vocab_size=len(tokens) if tokens is not None else None,
            tied=not any(tensor.name == "output.weight" for tensor in gguf.tensors),
            mrope=any(sections),
            rope_theta=_number(metadata.get(f"{architecture}.rope.freq_base")),
            transforms=tuple(key for key in metadata if ".hadamard." in key),
            damage=tuple(finding for finding in gguf.findings if finding.severity == "error"),
            context_length=_size(metadata.get(f"{architecture}.context_length")),
            table_rows=table.shape[1] if table and len(table.shape) > 1 else None,
            embeddings_type=table.type_name if table else None,
            head_type=head.type_name if head else None,
            rope_scaling=_scaling({"type": scaling}),
            hyper_connections=_size(metadata.get(f"{architecture}.hyper_connection.count")),
            other_names=tuple(name for key in names if isinstance(name := metadata.get(key), str)),
            limits=tuple(judge_limits(architecture, metadata)),
            embedding_scale=_embedding_scale(architecture, scale, hidden),
            logit_scale=_number(metadata.get(f"{architecture}.logit_scale")),
            logit_softcap=_number(metadata.get(f"{architecture}.final_logit_softcapping")),
        )
