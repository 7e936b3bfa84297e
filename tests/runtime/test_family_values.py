"""The tensors of every family's file against its checkpoint: each kind of wrong one, and what it looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.weights import read_tensors
from dspark_convert.runtime.rounding import hold
from dspark_convert.runtime.values import Values, compare_values
from tests import oracle
from tests.family_oracle import FAMILIES, common_kv, expected_tensors
from tests.mutations.copies import Copy, read
from tests.runtime.families import Change, FamilyFile

Family = Callable[[str], FamilyFile]

Q, SINKS, BASE = "blk.1.attn_q.weight", "blk.1.attn_sinks.weight", "blk.1.attn_conv_base"
#: of a block of NVFP4: scales, then bytes of four times sixteen numbers
SCALES, BYTES, NUMBERS = 4, 32, 8


def compare(file: FamilyFile, draft: Path | None = None) -> Values:
    with open_gguf(draft or file.draft) as ours, open_gguf(file.target) as theirs:
        return compare_values(ours, theirs, read_tensors(file.directory), read_facts(file.directory))


def edit(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Change:
    def put(copy: Copy) -> None:
        copy.tensors[name] = change(copy.tensors[name].copy())

    return put


def drop(name: str) -> Change:
    return lambda copy: copy.tensors.pop(name)


def swap(first: str, second: str) -> Change:
    def put(copy: Copy) -> None:
        copy.tensors[first], copy.tensors[second] = copy.tensors[second], copy.tensors[first]

    return put


def as_in_checkpoint(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of heads of 32 that stand as NeoX pairs, so that neighbours are pairs."""
    heads = rows.reshape(-1, 2, 16, *rows.shape[1:])
    return np.stack((heads[:, 0], heads[:, 1]), 2).reshape(rows.shape)


def set_entries(places: Any, value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(values: NDArray[Any]) -> NDArray[Any]:
        values[places] = value
        return values

    return change


def blocks(change: Callable[[NDArray[Any], NDArray[Any]], None]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Of NVFP4: ``change`` edits the scales [blocks, 4] and the bytes [blocks, 4, 8] in their places."""

    def put(rows: NDArray[Any]) -> NDArray[Any]:
        parts = rows.reshape(-1, SCALES + BYTES)
        numbers = parts[:, SCALES:].reshape(-1, SCALES, NUMBERS).copy()
        change(parts[:, :SCALES], numbers)
        parts[:, SCALES:] = numbers.reshape(-1, BYTES)
        return parts.reshape(rows.shape)

    return put


def exchange_halves(_scales: NDArray[Any], numbers: NDArray[Any]) -> None:
    """Of pairs 2i and 2i + 1, which stand as i and i + 8 of each half of sixteen."""
    codes = np.concatenate((numbers & 15, numbers >> 4), -1)
    codes = codes.reshape(*codes.shape[:-1], -1, 2)[..., ::-1].reshape(codes.shape)
    numbers[:] = codes[..., :NUMBERS] | codes[..., NUMBERS:] << 4


def copied_bytes(_scales: NDArray[Any], numbers: NDArray[Any]) -> None:
    """The bytes as ModelOpt has them, neighbours together."""
    codes = np.concatenate((numbers & 15, numbers >> 4), -1)
    numbers[:] = codes[..., 0::2] | codes[..., 1::2] << 4


def one_scale(scales: NDArray[Any], _numbers: NDArray[Any]) -> None:
    scales[7, 2] += 1


def one_code(_scales: NDArray[Any], numbers: NDArray[Any]) -> None:
    numbers[9, 1, 3] ^= 0x10


def other_scales(scales: NDArray[Any], _numbers: NDArray[Any]) -> None:
    scales[:] = scales[:, ::-1].copy()


def ids_to_offsets(ids: NDArray[Any]) -> NDArray[Any]:
    return ids - np.arange(len(ids))


def swap_two(values: NDArray[Any]) -> NDArray[Any]:
    values[[4, 5]] = values[[5, 4]]
    return values


EXACT = "which NVFP4 holds exactly"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("nemotron_inner", swap(SINKS, "blk.2.attn_sinks.weight"), "(it is layers.2.self_attn.attention_sink_bias)"),
        ("nemotron_inner", drop(SINKS), f"the file lacks {SINKS}"),
        ("mimo", drop("blk.0.attn_sinks.weight"), "the file lacks blk.0.attn_sinks.weight"),
        (
            "speculators_dspark_bonus",
            edit("d2t", swap_two),
            "d2t leads token 4 of the draft to 7 of the target, but the checkpoint to 6",
        ),
        ("speculators_dspark_bonus", edit("d2t", swap_two), "and 2 of 320 so"),
        ("speculators_dspark_bonus", edit("d2t", ids_to_offsets), "(it holds the checkpoint's offsets, where"),
        ("speculators_dspark_bonus", edit("d2t", lambda ids: ids[:-1]), "d2t has 319 ids, but the checkpoint 320"),
        ("speculators_dspark_bonus", edit("d2t", lambda ids: ids.astype(np.int32)), "d2t is I32, but llama.cpp takes"),
        ("speculators_dspark_bonus", drop("d2t"), "the file lacks d2t, which the checkpoint has"),
        (
            "specforge",
            lambda copy: copy.tensors.update({"d2t": np.arange(512)}),
            "d2t is in the file, but the checkpoint has no d2t",
        ),
        (
            "speculators_dspark_bonus",
            drop("output.weight"),
            "the target's output.weight is [512, 128], but the checkpoint's lm_head.weight [320, 128]",
        ),
        (
            "lfm2",
            edit(Q, as_in_checkpoint),
            "(its heads stand as in the checkpoint, and not as llama.cpp rotates them",
        ),
        ("lfm2", edit("blk.0.attn_k_norm.weight", as_in_checkpoint), "(its heads stand as in the checkpoint"),
        (
            "lfm2",
            edit("blk.2.attn_k.weight", lambda rows: rows.reshape(2, 16, 2, -1).swapaxes(1, 2).reshape(rows.shape)),
            "(its heads are permuted twice)",
        ),
        ("lfm2", swap(Q, "blk.2.attn_q.weight"), "(it is layers.2.self_attn.q_proj.weight)"),
        ("specforge", edit(Q, as_in_checkpoint), "(its heads are permuted as for NORM RoPE)"),
        ("gemma4", swap("blk.1.ffn_norm.weight", "blk.1.post_attention_norm.weight"), "pre_feedforward_layernorm"),
        (
            "gemma4",
            swap("blk.1.post_ffw_norm.weight", "blk.1.post_attention_norm.weight"),
            "post_feedforward_layernorm",
        ),
        ("gemma4", edit("blk.1.layer_output_scale.weight", lambda a: a * 0 + 1), "from layers.1.layer_scalar"),
        ("gemma4", drop("blk.1.layer_output_scale.weight"), "the file lacks blk.1.layer_output_scale.weight"),
        (
            "gemma4",
            lambda copy: copy.tensors.update({"blk.0.attn_v.weight": copy.tensors["blk.0.attn_k.weight"]}),
            "blk.0.attn_v.weight is in the file, but the checkpoint has no layers.0.self_attn.v_proj.weight",
        ),
        (
            "gemma4",
            drop("rope_freqs.weight"),
            "the file lacks rope_freqs.weight, without which all pairs of a head turn",
        ),
        (
            "gemma4",
            edit("rope_freqs.weight", set_entries(slice(8, 16), 1.0)),
            "rope_freqs.weight divides the frequency of pair 8 by 1, but the checkpoint's does not turn",
        ),
        (
            "gemma4",
            edit("rope_freqs.weight", set_entries(3, 4.0)),
            "rope_freqs.weight divides the frequency of pair 3 by 4, but the checkpoint's turns undivided",
        ),
        ("gemma4", edit("rope_freqs.weight", lambda a: a[:16]), "rope_freqs.weight is F32 [16], but llama.cpp takes"),
        (
            "specforge",
            lambda copy: copy.tensors.update({"rope_freqs.weight": np.ones(16, np.float32)}),
            "rope_freqs.weight is in the file, but the checkpoint's frequencies are divided by nothing",
        ),
        ("dflash2", swap(BASE, "blk.1.ffn_conv_base"), "(it is layers.1.mlp_conv.base_kernel)"),
        ("dflash2", edit(BASE, lambda a: a[::-1].copy()), "(it is reversed)"),
        ("dflash2", edit(BASE, lambda a: a[:, ::-1].copy()), f"{BASE} is 1"),
        ("dflash2", drop("blk.0.ffn_conv_proj.weight"), "the file lacks blk.0.ffn_conv_proj.weight"),
        (
            "dflash2",
            swap("selector_predecessor.weight", "selector_successor.weight"),
            "(it is candidate_selector.successor_codebook)",
        ),
        ("dflash2", drop("selector_hidden.weight"), "the file lacks selector_hidden.weight"),
        (
            "nemotron_inner",
            edit("fc.scale", lambda a: a * 2),
            "fc.weight times fc.scale is 1 of its size away from fc",
        ),
        ("nemotron_inner", edit("fc.scale", lambda a: a * 2), "(it is 2 times it)"),
        ("nemotron_inner", edit("fc.scale", lambda a: np.nextafter(a, 2 * a)), EXACT),
        ("nemotron_inner", drop("fc.scale"), "times it)"),
        ("nemotron_inner", drop("markov_w2.scale"), "markov_w2.weight is"),
        ("nemotron_inner", edit("fc.weight", blocks(one_scale)), EXACT),
        ("nemotron_inner", edit("fc.weight", blocks(one_code)), EXACT),
        ("nemotron_inner", edit("fc.weight", blocks(exchange_halves)), "(the two numbers of each byte are exchanged)"),
        ("nemotron_inner", edit("fc.weight", blocks(copied_bytes)), "in another order than NVFP4 has)"),
        ("nemotron_inner", edit("fc.weight", blocks(other_scales)), "(its numbers are right, and the scales that they"),
        ("nemotron_inner", swap("blk.0.ffn_up.weight", "blk.0.ffn_gate.weight"), "blk.0.ffn_up.weight times"),
        (
            "nemotron_inner",
            lambda copy: copy.tensors.update({"markov_w1.scale": np.ones(1, np.float32)}),
            "markov_w1.scale is no tensor of a published draft",
        ),
        (
            "specforge",
            lambda copy: copy.tensors.update({"fc.scale": np.full(1, 0.5, np.float32)}),
            "fc.weight times fc.scale is 0.5 of its size away",
        ),
        ("dflash_deepspec", edit("markov_w2.weight", lambda a: a + 1), "the checkpoint has no markov_head.markov_w2"),
        ("specforge", drop("conf_proj.bias"), "the file lacks conf_proj.bias, which the checkpoint has"),
        ("muse", swap("fc.weight", "blk.0.ffn_up.weight"), "fc.weight is [256, 128], but the checkpoint's fc.weight"),
    ],
)
def test_wrong_tensor_is_named(family: Family, name: str, change: Change, words: str) -> None:
    _, values = family(name).changed(change)
    assert values.status == "fail"
    assert words in values.detail


@pytest.mark.parametrize("outtype", ["q8_0", "bf16", "f16"])
@pytest.mark.parametrize(
    "name", ["lfm2", "gemma4", "dflash2", "mimo", "nemotron_inner", "speculators_dspark_bonus", "dflash_deepspec"]
)
def test_rounded_file_is_right(family: Family, name: str, outtype: str) -> None:
    file = family(name)
    metadata, values = file.judge(file.converted(outtype=outtype))
    assert (metadata.status, values.status) == ("pass", "pass"), values


@pytest.mark.parametrize("outtype", ["f32", "q8_0"])
@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"nemotron"}))
def test_file_that_the_converter_did_not_write(family: Family, name: str, outtype: str) -> None:
    file = family("gemma4_softcap" if name == "gemma4" else name)
    want = expected_tensors(name, file.directory, outtype)
    ends = {"general.architecture": ("STRING", "dflash"), "tokenizer.ggml.mask_token_id": ("UINT32", 507)}
    kv = ends | common_kv(file.directory) | FAMILIES[name].kv
    oracle.write(oracle.Expected(kv, want), path := file.root / "oracle.gguf", file.target)
    metadata, values = file.judge(path)
    assert (metadata.status, values.status) == ("pass", "pass"), (metadata, values)


@pytest.mark.parametrize("outtype", ["f32", "bf16", "q8_0"])
def test_nvfp4_that_is_multiplied_out(family: Family, outtype: str) -> None:
    file = family("nemotron_inner")
    assert file.judge(file.converted(outtype=outtype, dequantize=True))[1].status == "pass"


def test_nvfp4_is_compared_exactly(family: Family) -> None:
    """A number that the checkpoint has in NVFP4 is not rounded in the file, and counts as unchanged."""
    values = compare(family("nemotron_inner"))
    packed = [distance for distance in values.distances if distance.type_name == "NVFP4"]
    assert len(packed) == 2 + 3 * 3
    assert all(distance.relative == 0 for distance in packed)
    assert not values.rounded
    assert values.held == {}


def test_rows_are_held_as_the_checkpoint_has_them(family: Family) -> None:
    """What the reference computes with is rounded in the checkpoint's own order."""
    file = family("lfm2")
    values, tensors = compare(file, file.converted(outtype="q8_0")), read_tensors(file.directory)
    for name in ("layers.0.self_attn.q_proj.weight", "layers.2.self_attn.k_proj.weight"):
        want = hold(tensors[name], GGMLType.Q8_0)
        assert want is not None
        assert values.held[name].equal(want)


def test_right_nvfp4_behind_many_problems(family: Family) -> None:
    """What is wrong first is told at length, and what comes behind it is looked at all the same."""
    file, copy = family("nemotron_inner"), read(family("nemotron_inner").draft)
    norms = [name for name in copy.tensors if name.endswith("norm.weight")]
    for name in norms:
        copy.tensors[name] = -copy.tensors[name]
    copy.tensors = {name: copy.tensors[name] for name in sorted(copy.tensors, key=lambda name: name not in norms)}
    values = compare(file, copy.write(file.root / "norms.gguf"))
    assert [problem.split()[0] for problem in values.problems] == norms
