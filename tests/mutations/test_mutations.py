"""A wrong conversion cannot pass: every mutant is caught, and every good file passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import fixtures
from dspark_convert.runtime.validation import read_prompts
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests.mutations.copies import Change, Copy, Mutant
from tests.mutations.harmless import harmless
from tests.mutations.harness import REFUSED, SHARED, Bench, OutType, Shared, Verdict, convert, in_parallel, table
from tests.mutations.metadata import metadata
from tests.mutations.targets import nothing, targets, write_wrong_targets
from tests.mutations.weights import SAME_NUMBERS, weights

pytestmark = pytest.mark.usefixtures("one_thread")

OUTTYPES: tuple[OutType, ...] = ("f32", "f16", "bf16", "q8_0", "auto")

PAIR = Path(fixtures.__file__).with_name("pair")
AT_LEAST = 80

#: checks that compare what was computed, not what is written
COMPUTED = {"drafting", "acceptance", "features", "parity", "confidence"}


#: mutants that are also made of files whose matrices are rounded
ROUNDED = {
    "block_size + 1",
    "taps - 1",
    "mask + 1",
    "anchor flag false",
    "causal",
    "eps 1e-05",
    "rope.freq_base x10",
    "fc.weight x1.01",
    "markov_w2.weight rounded to an eighth",
    "conf_proj.weight x1.01",
    "blk.0.attn_v.weight x1.01",
    "attn_k of two layers swapped",
    "ffn_gate and ffn_up swapped",
    "q and k permuted to NORM",
    "q, k and norms permuted to NORM",
    "one layer permuted to NORM",
    "fc's taps as [1, 0, 2]",
    "confidence: Markov part first",
    "markov_w1.weight: row 1020 negated",
}

#: of these, what is less than rounding to 4 bits does to the same tensor
BELOW_4_BITS = {
    "fc.weight x1.01",
    "blk.0.attn_v.weight x1.01",
}

#: what a reader is told of the mistakes that converters make
DIAGNOSED = {
    "taps - 1": "target_layers is one too low",
    "taps two swapped": "the same layers in another order",
    "taps one off low": "they differ at tap 0",
    "block_size + 1": "dflash.block_size is 8, but the checkpoint has 7",
    "anchor flag false": "dflash.sample_from_anchor is false, but the checkpoint has true",
    "mask + 1": "tokenizer.ggml.mask_token_id is 1001, but the checkpoint has 1000",
    "causal": "dflash.attention.causal is true, but the checkpoint has false",
    "eps 1e-05": "layer_norm_rms_epsilon",
    "q and k permuted to NORM": "its heads are permuted as for NORM RoPE",
    "q, k and norms permuted to NeoX twice": "its heads are permuted as for NeoX RoPE",
    "fc's taps as [1, 2, 0]": "its taps are in the order [1, 2, 0]",
    "fc's taps interleaved": "its taps are interleaved",
    "attn_k of two layers swapped": "it is layers.2.self_attn.k_proj.weight",
    "ffn_gate and ffn_up swapped": "it is layers.1.mlp.up_proj.weight",
    "output_norm and enc.output_norm swapped": "it is hidden_norm.weight",
    "markov_w1 and markov_w2 swapped": "it is markov_head.markov_w2.weight",
    "attn_q transposed": "it is transposed",
    "blk.0.ffn_up.weight x2": "it is 2 times it",
    "confidence: Markov part first": "its Markov part stands before the hidden state's",
    "conf_proj.bias negated": "only the confidence differs",
    "the embeddings as head": "it is embed_tokens.weight",
    "markov_w1.weight: row 1020 negated": "1 of its 1,024 rows differ, the first is row 1020",
    "a target with another seed": "another target",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("mutations")
    good: dict[str, Path] = {
        shared: convert(PAIR / "draft", PAIR / "target", root / f"dspark-{shared}.gguf", "f32", shared)
        for shared in SHARED
    }
    write_target_gguf(PAIR / "target", root / "target.gguf")
    right = {"right": root / "target.gguf", "published": PAIR / "target.gguf"}
    return Bench(
        root,
        PAIR / "draft",
        PAIR / "target",
        good,
        right | write_wrong_targets(PAIR / "target", root),
        read_prompts(PAIR / "prompts.txt")[:1],
        max_tokens=24,
    )


@pytest.fixture(scope="module")
def verdicts(bench: Bench) -> dict[str, Verdict]:
    mutants = [*metadata(), *weights(), *targets()]
    for shared in SHARED:
        assert not bench.judge("good", bench.good[shared]).caught
    found = {verdict.name: verdict for verdict in bench.judge_all(mutants)}
    assert len(found) == len(mutants), "two mutants have one name"
    return found


def test_every_mutant_is_caught(verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{table(list(verdicts.values()))}")
    assert len(verdicts) >= AT_LEAST
    assert [name for name, verdict in verdicts.items() if not verdict.caught] == []


def test_wrong_weights_are_seen_in_what_is_computed(verdicts: dict[str, Verdict]) -> None:
    """Beside the comparison of values, which sees them all: two nets that share nothing."""
    runnable = [verdicts[mutant.name] for mutant in weights() if not refused(verdicts[mutant.name])]
    assert len(runnable) >= AT_LEAST
    unseen = {verdict.name for verdict in runnable if not COMPUTED & set(verdict.failed)}
    assert unseen == set(SAME_NUMBERS)
    assert [verdict.name for verdict in runnable if "values" not in verdict.failed] == []


@pytest.mark.parametrize("outtype", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_mutants_of_rounded_files_are_caught(bench: Bench, outtype: str) -> None:
    """The types' own noise hides no mistake; the good file itself passes when rounded like that."""
    number = {"F16": 1, "BF16": 32, "Q8_0": 7, "Q4_0": 2}[outtype]

    def rounded(change: Change) -> Change:
        def both(file: Copy) -> None:
            file.set("general.file_type", number)
            change(file)

        return both

    chosen = [mutant for mutant in [*metadata(), *weights()] if mutant.name in ROUNDED]
    assert len(chosen) == len(ROUNDED)
    good = Mutant("good", nothing)
    found = bench.judge_all([m._replace(change=rounded(m.change)) for m in (good, *chosen)], outtype)
    below_noise = BELOW_4_BITS if outtype == "Q4_0" else set()
    assert {verdict.name for verdict in found if not verdict.caught} == {"good"} | below_noise


@pytest.mark.parametrize(("name", "words"), DIAGNOSED.items(), ids=str)
def test_cause_is_named(verdicts: dict[str, Verdict], name: str, words: str) -> None:
    assert words in " ".join(verdicts[name].failed.values())


def refused(verdict: Verdict) -> bool:
    """Before anything was computed."""
    return bool({REFUSED, "draft", "pair", "load"} & set(verdict.failed))


def test_harmless_changes_compute_the_same_and_pass(bench: Bench) -> None:
    good = bench.record(bench.good["omit"])

    def same(item: tuple[Mutant, Copy]) -> tuple[str, list[str], bool]:
        """The arrays that differ, and whether a command complains."""
        mutant, copy = item
        path = copy.write(bench.root / f"dspark-{mutant.name}.gguf")
        differing = [
            name
            for before, after in zip(good, bench.record(path), strict=True)
            for name, array in vars(before).items()
            if not np.array_equal(array, vars(after)[name])
        ]
        return mutant.name, differing, bench.judge(mutant.name, path).caught

    found = in_parallel(same, bench.copies(harmless()))
    assert found == [(mutant.name, [], False) for mutant in harmless()]


def judge_good_files(bench: Bench, outtypes: Sequence[OutType], targets: Sequence[str]) -> list[Verdict]:
    """The verdicts on every conversion, with and without tables, on every target."""

    def judge(item: tuple[OutType, Shared]) -> list[Verdict]:
        outtype, shared = item
        path = bench.root / f"dspark-good-{outtype}-{shared}.gguf"
        assert bench.target_reference is not None
        convert(bench.reference, bench.target_reference, path, outtype, shared)
        return [bench.judge(f"{outtype}, tables {shared}, {target}", path, target) for target in targets]

    combinations: list[tuple[OutType, Shared]] = [(outtype, shared) for outtype in outtypes for shared in SHARED]
    return [verdict for verdicts in in_parallel(judge, combinations) for verdict in verdicts]


def test_good_files_pass(bench: Bench) -> None:
    verdicts = judge_good_files(bench, OUTTYPES, ["right", "published"])
    assert len(verdicts) == 20
    assert [verdict.line(0) for verdict in verdicts if verdict.caught] == []


def test_good_files_of_a_random_pair_fail_in_acceptance_alone(tmp_path: Path) -> None:
    """It knows nothing, so nothing is accepted."""
    pair = make_tiny_pair(tmp_path)
    target = tmp_path / "target.gguf"
    write_target_gguf(pair.target_dir, target)
    prompts = ["once upon a time", "the boat"]
    bench = Bench(tmp_path, pair.draft_dir, pair.target_dir, {}, {"right": target}, prompts, max_tokens=12)
    verdicts = judge_good_files(bench, OUTTYPES, ["right"])
    assert len(verdicts) == 10
    assert [verdict.line(0) for verdict in verdicts if verdict.inspect or set(verdict.failed) != {"acceptance"}] == []
