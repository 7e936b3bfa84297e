"""A draft that has an embedding of its own for the mask token, in ``mask_embedding.pt`` beside its checkpoint.

The target never trained that row of its table (MiMo V2.5), so a draft that borrows the table would read noise in
every slot but the first. The target's embeddings are written with the row replaced, and its head with them, for
llama.cpp takes both from a file or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dspark_convert.findings import Finding, error, info
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.shared import HEAD, TABLES, find_table
from dspark_convert.source.mask_embedding import MaskEmbedding
from dspark_convert.specs.policy import Types
from dspark_convert.target import Target
from dspark_convert.words import shown


def judge_mask_row(mask: MaskEmbedding, known: Mapping[str, Any]) -> list[Finding]:
    """Does the row fit the draft whose fields are ``known``?"""
    name, ours, width = mask.row.name, known.get("mask_token_id"), known.get("hidden_size")
    fix = "take the file that was published with the checkpoint"
    if mask.token_id is not None and ours is not None and mask.token_id != ours:
        message = f"{name} is for token {mask.token_id}, but the draft's mask token is {ours}."
        return [error("mask-embedding", name, message, fix)]
    if width is not None and mask.row.shape != (width,):
        message = f"{name} holds {shown(list(mask.row.shape))} numbers, but the draft's hidden size is {width}."
        return [error("mask-embedding", name, message, fix)]
    return []


def find_tables(
    own: Mapping[str, Source], known: Mapping[str, Any], target: Target | None
) -> tuple[dict[str, Source], list[Finding]]:
    """Embeddings and head, each the draft's ``own`` or else the target's, by the name that they get."""
    shape = known.get("vocab_size"), known.get("hidden_size")
    tables: dict[str, Source] = {}
    for name in TABLES:
        head = name == HEAD
        source = own.get(name) or (find_table(target, head=head) if target is not None else None)
        what = "head" if head else "embeddings"
        if source is None:
            where = "no target is given" if target is None else f"{target.called} does not hold them, or not readably"
            message = f"the mask token's row is the draft's own, so the target's {what} are written, but {where}."
            fix = "give the target with its weights (--target-gguf or --target-model-dir; for dspark-inspect --target)"
            return {}, [error("mask-embedding-target", name, message, fix)]
        if None not in shape and not (head and name in own) and source.shape != shape:
            message = f"the target's {what} have shape {shown(list(source.shape))}, the draft needs {list(shape)}."
            return {}, [error("mask-embedding-target", name, message, "give the target that the draft was trained for")]
        tables[name] = source
    return tables, []


def make_table_jobs(
    mask: MaskEmbedding, tables: Mapping[str, Source], types: Types, mask_token_id: int
) -> tuple[list[TensorJob], Finding]:
    """The jobs of ``tables`` as ``find_tables`` gives them, and what is to be told of them.

    What stands in blocks in a GGUF keeps its type; other numbers follow ``types``.
    """
    jobs = []
    for name, source in tables.items():
        shape = source.shape[::-1]
        kind = GGMLType[source.values.dtype] if source.encoding == "ggml" else types.of("head", source, shape)
        jobs.append(TensorJob(name, kind, shape, (source,)))
    jobs[0] = replace(jobs[0], transform="patch_row", row=mask_token_id, patch=mask.row)
    size = sum(job.nbytes for job in jobs) / 1e6
    message = (
        f"the target's embeddings and head are written ({size:,.1f} MB), row {mask_token_id} of the embeddings being "
        f"that of {mask.row.name}: the target's own was never trained."
    )
    return jobs, info("mask-embedding-written", mask.row.name, message)
