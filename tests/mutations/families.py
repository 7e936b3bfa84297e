"""The mutants of every family that llama.cpp runs: what its own details can be mistaken for, on top of ``common``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from tests.mutations.copies import Mutant
from tests.mutations.family_dflash2 import dflash2, muse, plain_logits
from tests.mutations.family_gemma4 import gemma4, no_softcap, softcap
from tests.mutations.family_heads import (
    bonus,
    confidence,
    head_of_zeros,
    markov,
    markov_rows,
    mask_row,
    no_confidence,
    no_markov,
    scaled_logits,
    vocabulary,
    vocabulary_markov,
)
from tests.mutations.family_layers import (
    bidirectional,
    causal,
    common,
    eps,
    inert_rotary,
    interleaved,
    neox,
    partial_rotary,
    sinks,
    value_scale,
    windows,
    yarn,
)
from tests.mutations.family_packing import packing
from tests.mutations.family_types import (
    dflash2_types,
    gemma4_types,
    layer_types,
    scale_types,
    vocabulary_types,
    yarn_types,
)

#: of the fixtures
WINDOW, MASK, VALUE_SCALE = 12, 507, 0.612
MULTIPLIER, CAP = 0.19611613513818404, 20.0


def of(*groups: Iterable[Mutant], anchor: bool, taps: tuple[int, ...] = (1, 2, 3)) -> list[Mutant]:
    return list(chain(common(anchor=anchor, taps=taps), *groups))


#: fixture (``tests.families.proofs.MAKERS``) -> its mutants
FAMILIES: dict[str, list[Mutant]] = {
    "deepspec_qwen36": of(inert_rotary(), confidence(), anchor=True),
    "dflash_deepspec": of(head_of_zeros(), no_confidence(), anchor=True),
    "ling": of(markov(), neox(), anchor=True),
    "zlab_dflash": of(neox(), no_markov(), bidirectional(), scaled_logits(), eps(1e-5), anchor=False),
    "zlab_dflash_windows": of(windows(WINDOW, (True, True, False)), causal(), anchor=False),
    "fork_label": of(markov(), confidence(), anchor=True),
    "hunyuan_ocr": of(neox(), inert_rotary(), anchor=False, taps=(1, 2, 3, 4)),
    "mimo": of(
        sinks(),
        value_scale(VALUE_SCALE),
        partial_rotary(),
        mask_row(MASK),
        layer_types(),
        windows(WINDOW),
        bidirectional(),
        eps(1e-6),
        anchor=False,
    ),
    "muse": of(windows(WINDOW), bidirectional(), neox(), eps(1e-6), anchor=False),
    "specforge_yarn": of(yarn(), yarn_types(), markov(), eps(1e-6), anchor=True),
    "kolibri": of(windows(WINDOW), bidirectional(), anchor=True),
    "lfm2": of(interleaved(), confidence(), eps(1e-6), anchor=True),
    "nemotron_inner": of(
        packing(),
        scale_types(),
        sinks(),
        windows(WINDOW),
        causal(),
        bonus(),
        no_confidence(),
        markov_rows(),
        anchor=False,
    ),
    "speculators_dspark_bonus": of(
        vocabulary(),
        vocabulary_markov(),
        vocabulary_types(),
        markov_rows(),
        confidence(),
        bonus(),
        windows(WINDOW),
        causal(),
        anchor=False,
    ),
    "speculators_dspark_anchor": of(windows(WINDOW), causal(), inert_rotary(), anchor=True),
    "speculators_dflash": of(vocabulary(), windows(WINDOW, (True, False, True)), anchor=False),
    "speculators_dflash_full": of(bidirectional(), vocabulary(), anchor=False),
    "gemma4": of(gemma4(), gemma4_types(), no_softcap(), confidence(), anchor=True),
    "gemma4_softcap": of(softcap(), anchor=True),
    "dflash2": of(dflash2(), dflash2_types(), plain_logits(), windows(2 * WINDOW), bidirectional(), anchor=False),
    "dflash2_muse": of(muse(MULTIPLIER, CAP), anchor=False),
}

#: warnings of good files, which llama.cpp computes otherwise than their definition
TOLD = {
    "zlab_dflash_windows": {"causal-mixed"},
    "speculators_dflash": {"causal-mixed"},
    "gemma4_softcap": {"logits-unscaled"},
}

#: mutants that are as right as the good file, whose layers are not all causal: llama.cpp has one flag for all of
#: them, and which it is is told with what it costs
EITHER = {"zlab_dflash_windows": {"causal flag dropped", "causal flag false"}}

TABLES_OF_FILE = "the reference takes tables that the checkpoint leaves to the target from the file"
UNREAD_YARN = "llama.cpp takes these numbers of a draft's from elsewhere"
BELOW_NOISE = "rounding what NVFP4 is multiplied with does more"
CAPS_DFLASH2 = "llama.cpp caps the logits of DFlash2 alone"
NORM_FOLLOWS = "a norm follows, which takes the scale away"

#: mutants that run and compute what the good file does, as near as can be told, and why: what the files say and hold
#: is wrong all the same
SAME_NUMBERS = {
    "sections of the target": "in a text a token's position is the same along every axis",
    "confidence flag dropped": "there is no confidence to compare with",
    "eps 1e-05": "it moves the logits by less than their rounding",
    "eps 1e-06": "it moves the logits by less than their rounding",
    "logits capped, which is not read": CAPS_DFLASH2,
    "logits scaled, which is not read": "llama.cpp scales those of DFlash2 alone",
    "mask row of the token before": TABLES_OF_FILE,
    "mask row at the id before": TABLES_OF_FILE,
    "mask row at the id behind": TABLES_OF_FILE,
    "mask row zeroed": TABLES_OF_FILE,
    "mask row x2": TABLES_OF_FILE,
    "mask row negated": TABLES_OF_FILE,
    "mask row in every row of padding": TABLES_OF_FILE,
    "mask row in the head": TABLES_OF_FILE,
    "tables swapped": TABLES_OF_FILE,
    "yarn yarn_beta_fast 16": UNREAD_YARN,
    "yarn yarn_beta_fast 64": UNREAD_YARN,
    "yarn yarn_beta_slow 2": UNREAD_YARN,
    "yarn logarithm's multiplier": UNREAD_YARN,
    "context of the first training": "no text here is as long",
    "another row zeroed": TABLES_OF_FILE,
    "another row of the head zeroed": TABLES_OF_FILE,
    "vocabulary size of the draft's": "llama.cpp counts the tokens",
    "rope_freqs infinite": "an angle divided by it is none either",
    "scales of gate and up swapped": BELOW_NOISE,
    "scale x1.01": BELOW_NOISE,
    "scale 1": NORM_FOLLOWS,
    "scale of queries without": NORM_FOLLOWS,
    "scale of the activations beside it": "llama.cpp loads it and computes nothing with it",
    "head, w2 and d2t in reverse": "they belong together still",
    "last layer's scale 1": NORM_FOLLOWS,
    "cap added": CAPS_DFLASH2,
    "cap 20": CAPS_DFLASH2,
    "cap 0": CAPS_DFLASH2,
}
