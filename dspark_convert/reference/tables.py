"""Two tables that change what embeddings and head mean: a reduced vocabulary, and a row of the mask token's own."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError

import torch

from dspark_convert.reference.facts import Facts
from dspark_convert.reference.weights import EMBED, Weights

#: MiMo's, beside the weights: the target's row of the mask token was never trained
MASK_FILE = "mask_embedding.pt"

#: the name of that row among the weights
MASK_ROW = "mask_embedding"


def block_rows(facts: Facts, weights: Weights, anchor: int) -> torch.Tensor:
    """[slots, hidden]: what enters the first layer; the mask token's embedding may be a row of its own."""
    ids = facts.block_ids(anchor)
    rows, mask = weights.rows(EMBED, ids), weights.get(MASK_ROW)
    if mask is not None:
        rows = torch.where((ids == facts.mask_token_id).unsqueeze(-1), mask, rows)
    return rows * facts.embedding_scale


def target_ids(directory: Path, facts: Facts, offsets: torch.Tensor) -> torch.Tensor:
    """[draft vocabulary]: the target's id of each of the draft's, which speculators stores as the difference."""
    ids = torch.arange(len(offsets)) + offsets
    if ids.min() < 0 or ids.max() >= facts.vocab_size or len({*ids.tolist()}) != len(ids):
        raise ValueError(f"{directory}: d2t does not lead to {len(ids)} of the target's {facts.vocab_size} tokens.")
    return ids


def read_mask_row(directory: Path, facts: Facts) -> torch.Tensor | None:
    """[hidden]; None without the file, which holds the row alone, or an object with it and maybe the token's id."""
    path = directory / MASK_FILE
    if not path.is_file():
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError) as e:
        raise ValueError(f"{path} cannot be read as a file of torch.save's.") from e
    if isinstance(found, dict):
        if found.get("mask_token_id", facts.mask_token_id) != facts.mask_token_id:
            raise ValueError(
                f"{path} is for token {found['mask_token_id']}, but mask_token_id is {facts.mask_token_id}."
            )
        found = found.get("embedding", found.get(MASK_ROW))
    if not isinstance(found, torch.Tensor) or found.shape != (facts.hidden_size,) or not found.is_floating_point():
        raise ValueError(f"{path} has to hold a row of {facts.hidden_size} numbers.")
    return found
