"""All keys of a draft in a layout's words."""

from __future__ import annotations

from dspark_convert.draft import Draft
from dspark_convert.foreign.keys import in_dialect
from dspark_convert.ggufio.types import KV, string
from dspark_convert.metadata import mask, runtime


def keys_for(dialect: str, draft: Draft) -> list[KV]:
    """What a runtime of layout ``dialect`` reads of ``draft``, with the mask token and the architecture."""
    kvs = [string("general.architecture", "dflash"), *runtime(draft, mrope=False), mask(draft)]
    return in_dialect(dialect, draft, kvs)
