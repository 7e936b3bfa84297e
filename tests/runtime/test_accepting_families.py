"""Drafts of every kind of block that are accepted, token by token as foretold, and leave the text what it is without.

Their layers hardly count; what counts is the session around them: which slots are read, how many drafts a block has,
through which vocabulary, and what both models forget of what was not accepted.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import validate
from fixtures.hf_pair import TinyPair
from fixtures.target_gguf import write_target_gguf
from tests.families.proofs import convert
from tests.runtime.foreseeing import accepted_rounds, follower, known_by, make_dflash_pair, make_markov_pair

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = ("the small boat", "once upon a time")
MAX_TOKENS = 40

#: family -> its drafts a block
MARKOV = {
    "specforge_yarn": 7,
    "kolibri": 7,
    "lfm2": 9,
    "speculators_dspark_bonus": 7,
    "speculators_dspark_anchor": 8,
    "gemma4": 7,
    "nemotron_inner": 7,
}
DFLASH = {"zlab_dflash": 7, "mimo": 7, "muse": 7, "speculators_dflash": 7, "dflash2": 7}

#: activations are rounded before they are multiplied with NVFP4, by which a draft errs here and there
ROUNDED = {"nemotron_inner"}


def run(pair: TinyPair, root: Path) -> ValidationReport:
    draft, target = root / "draft.gguf", root / "target.gguf"
    convert(pair, draft)
    write_target_gguf(pair.target_dir, target)
    return validate(
        draft,
        target,
        reference=pair.draft_dir,
        target_reference=pair.target_dir,
        prompts=PROMPTS,
        max_tokens=MAX_TOKENS,
        timeout=60,
    )


def foretold(pair: TinyPair, drafts: int) -> list[int]:
    """How many drafts each round accepts, over all prompts."""
    tokenizer = Tokenizer.from_file(str(pair.target_dir / "tokenizer.json"))
    follows, known = follower(pair.target_dir), known_by(pair.draft_dir)
    rounds = []
    for prompt in PROMPTS:
        text = [follows[tokenizer.encode(prompt).ids[-1]]]
        while len(text) < MAX_TOKENS:
            text.append(follows[text[-1]])
        rounds += accepted_rounds(text, known, drafts)
    return rounds


@pytest.mark.parametrize("name", [*MARKOV, *DFLASH])
def test_accepted_as_foretold_and_the_text_stays(name: str, tmp_path: Path) -> None:
    drafts = (MARKOV | DFLASH)[name]
    pair = (make_markov_pair if name in MARKOV else make_dflash_pair)(name, tmp_path)
    report = run(pair, tmp_path)
    assert [check for check in report.checks if check.status != "pass"] == []
    assert report.lossless is True
    assert report.acceptance is not None
    assert len(report.acceptance.drafted) == drafts
    assert report.acceptance.accepted[-1] > 0, "a whole block is accepted"
    if name not in ROUNDED:
        rounds = foretold(pair, drafts)
        assert report.acceptance.rounds == len(rounds)
        assert report.acceptance.accepted == tuple(sum(count > i for count in rounds) for i in range(drafts))


def test_a_reduced_vocabulary_ends_blocks_early(tmp_path: Path) -> None:
    """The foretold rounds are whole ones, empty ones and others."""
    pair = make_markov_pair("speculators_dspark_bonus", tmp_path)
    rounds = foretold(pair, 7)
    assert {0, 7} < set(rounds)
