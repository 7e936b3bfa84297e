"""Pairs whose drafts foresee what their targets write, one of each family's kind of block, and how far they do.

The target's layers add nothing to its residual, so that its next token depends on the last one alone; neither do
the draft's. What is accepted then follows from a table: which token each token is followed by.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from fixtures import families
from fixtures.dflash2 import make_dflash2_pair
from fixtures.families.nvfp4 import pack, unpack
from fixtures.gemma4 import make_gemma4_pair
from fixtures.hf_pair import TinyPair
from tests.runtime.pairs import HIDDEN, bigram_logits, normed_embeddings

Tensors = dict[str, torch.Tensor]

EMBED, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
W1, W2 = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"
W2_SCALES = "markov_head.markov_w2.weight_scale"
MASK, VOCABULARY = 507, 512

#: so many tokens the target of a draft without Markov head writes; DFlash2's selector chooses among as many
SPOKEN = 8


def make_markov_pair(name: str, root: Path) -> TinyPair:
    """A draft whose Markov head is the target's embeddings and head; its last norm leaves nothing else."""
    gemma4 = name == "gemma4"
    pair = make_gemma4_pair(root, markov_rank=HIDDEN) if gemma4 else families.make_pair(name, root, rank=HIDDEN)
    target, draft = silent(_read(pair.target_dir), "model.layers."), _read(pair.draft_dir)
    # as a token is most like itself, a tied head would write it again
    target[NORM] *= torch.randn(HIDDEN, generator=torch.Generator().manual_seed(3)).sign()
    head = target.get(HEAD, target[EMBED])
    if "d2t" in draft:
        put_ids(draft, known_ids(bigram_logits({HEAD: head, **target}).argmax(dim=1), len(draft["d2t"])))
    if W2_SCALES in draft:
        # NVFP4 cannot hold every head: the target gets one that it can
        packed = pack(W2.removesuffix(".weight"), head)
        target[HEAD] = head = unpack(W2.removesuffix(".weight"), packed).float()
        draft |= packed
    else:
        draft[W2] = head[ids_of(draft)].clone()
    draft[W1] = normed_embeddings(target)
    draft["norm.weight"] = draft["norm.weight"].float() * 1e-4
    _write(pair, target, draft)
    return pair


def make_dflash_pair(name: str, root: Path) -> TinyPair:
    """A draft without Markov head: DFlash2's foresees by its selector, the others a text of one token.

    The embeddings are one direction, common to all, and one for each token that may follow.
    """
    pair = make_dflash2_pair(root) if name == "dflash2" else families.make_pair(name, root)
    target, draft = silent(_read(pair.target_dir), "model.layers."), silent(_read(pair.draft_dir), "layers.", 0.01)
    spoken = ids_of(draft)[20 : 20 + SPOKEN]
    make = torch.Generator().manual_seed(5)
    common, *directions = torch.linalg.qr(torch.randn(HIDDEN, SPOKEN + 1, generator=make)).Q.T
    own = torch.stack(directions)
    # [vocabulary, spoken]: which of them follows each token
    liking = 4 * torch.eye(SPOKEN)[[0] * VOCABULARY]
    if name == "dflash2":
        liking = torch.randn(VOCABULARY, SPOKEN, generator=make)
        liking[spoken] = 4 * torch.eye(SPOKEN).roll(3, 1)
        liking[MASK] = 0
        successors = torch.zeros(VOCABULARY, SPOKEN)
        successors[spoken] = torch.eye(SPOKEN)
        for part, values in (("predecessor", liking), ("successor", successors)):
            draft[f"candidate_selector.{part}_codebook"] = torch.nn.functional.pad(values, (0, SPOKEN))
        # the state of a mask is the common direction, so that the gate is open
        draft["candidate_selector.hidden_projection.weight"] = common.repeat(2 * SPOKEN, 1)
    target[EMBED] = 8 * common + liking @ own
    target[NORM] = draft["norm.weight"] = torch.ones(HIDDEN)
    target[HEAD] = torch.randn(VOCABULARY, HIDDEN, generator=make) / 100
    target[HEAD][spoken] = common + own
    if name == "mimo":
        # with the target's row instead of its own the draft would say another token
        row = target[EMBED][MASK].clone()
        torch.save({"mask_token_id": MASK, "embedding": row}, pair.draft_dir / "mask_embedding.pt")
        target[EMBED][MASK] = 8 * common + 4 * own[5]
    _write(pair, target, draft)
    return pair


def silent(tensors: Tensors, layers: str, left: float = 0.0) -> Tensors:
    """``tensors`` in float32 instead of bfloat16, with ``layers`` that add ``left`` of what they did."""
    result = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in tensors.items()}
    for name in result:
        if name.startswith(layers) and name.endswith(("o_proj.weight", "down_proj.weight")):
            result[name] = result[name] * left
    return result


def ids_of(draft: Tensors) -> torch.Tensor:
    """The target's id of each of the draft's tokens."""
    if "d2t" not in draft:
        return torch.arange(VOCABULARY)
    return draft["d2t"] + torch.arange(len(draft["d2t"]))


def known_ids(follows: torch.Tensor, count: int) -> torch.Tensor:
    """``count`` ids, sorted, of all tokens that texts end up in but one: that one the draft never foresees."""
    at = torch.arange(VOCABULARY)
    for _ in range(VOCABULARY):
        at = follows[at]
    _unforeseen, *circling = sorted(set(at.tolist()))
    others = sorted(set(range(VOCABULARY)) - set(at.tolist()))
    return torch.tensor(sorted([*circling, *others][:count]))


def put_ids(draft: Tensors, ids: torch.Tensor) -> None:
    draft["d2t"] = ids - torch.arange(len(ids))
    draft["t2d"] = torch.zeros(VOCABULARY, dtype=torch.bool)
    draft["t2d"][ids] = True


def follower(target_dir: Path) -> list[int]:
    """What the target writes behind each token."""
    target = _read(target_dir)
    followed: list[int] = bigram_logits({HEAD: target[EMBED], **target}).argmax(dim=1).tolist()
    return followed


def known_by(draft_dir: Path) -> set[int]:
    """The tokens that the draft has a word for."""
    return set(ids_of(_read(draft_dir)).tolist())


def accepted_rounds(text: Sequence[int], known: Collection[int], drafts: int) -> list[int]:
    """How many drafts each round accepts while ``text`` is written, by a draft that foresees all that it knows."""
    rounds, at = [], 0  # the first token is the prompt's, with which the first block begins
    while at + 1 < len(text):
        ahead = text[at + 1 : at + 1 + drafts]
        count = next((i for i, token in enumerate(ahead) if token not in known), len(ahead))
        rounds.append(count)
        at += count + 1
    return rounds


def _read(directory: Path) -> Tensors:
    tensors: Tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


def _write(pair: TinyPair, target: Tensors, draft: Tensors) -> None:
    """With the target's tables in the draft, where it has any."""
    tables = {"embed_tokens.weight": target[EMBED], "lm_head.weight": target.get(HEAD, target[EMBED])[ids_of(draft)]}
    draft |= {name: table for name, table in tables.items() if name in draft}
    for directory, tensors in ((pair.target_dir, target), (pair.draft_dir, draft)):
        (path,) = directory.glob("*.safetensors")
        save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, path, {"format": "pt"})
