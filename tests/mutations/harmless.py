"""Changes that cannot matter, which both commands have to pass; ``test_mutations`` proves that they cannot.

Either llama.cpp takes a missing key to mean just what stood there, or a key says what is so anyway, or
nothing reads it: texts are split and joined by the target's vocabulary, never by the draft's.
"""

from __future__ import annotations

from collections.abc import Iterator

from gguf import GGUFValueType as Type
from gguf import TokenType

from tests.mutations.copies import Copy, Mutant, Value
from tests.mutations.metadata import TOKENS, add, only, without


def harmless() -> Iterator[Mutant]:
    # 128 / 4 heads, which is what they are
    yield Mutant("key_length missing", without("dflash.attention.key_length"))
    yield Mutant("value_length missing", without("dflash.attention.value_length"))
    # taken as true, which it is
    yield Mutant("confidence flag missing", without("dflash.has_confidence_head"))
    yield Mutant("all dimensions rotated", add(rope__dimension_count=(Type.UINT32, 32)))
    yield Mutant("no RoPE scaling", add(rope__scaling__type=(Type.STRING, "none")))
    # in a text all axes of a position are one number
    yield Mutant("M-RoPE sections", add(rope__dimension_sections=(Type.ARRAY, [16, 0, 0, 0], Type.INT32)))
    yield Mutant("no window", add(attention__sliding_window=(Type.UINT32, 0)))
    yield Mutant("not causal", add(attention__causal=(Type.BOOL, False)))
    yield Mutant("SiLU", add(hidden_activation=(Type.STRING, "silu")))
    yield Mutant("pre-tokenizer of another model", only("tokenizer.ggml.pre", "llama-bpe"))
    yield Mutant("BOS is added", only("tokenizer.ggml.add_bos_token", True))
    yield Mutant("EOS is added", only("tokenizer.ggml.add_eos_token", True))
    yield Mutant("BOS is another", only("tokenizer.ggml.bos_token_id", 998))
    yield Mutant("EOS is another", only("tokenizer.ggml.eos_token_id", 998))
    yield Mutant("token types missing", without("tokenizer.ggml.token_type"))
    yield Mutant("no token is special", only("tokenizer.ggml.token_type", [1] * 1024))
    yield Mutant("every token is special", only("tokenizer.ggml.token_type", [3] * 1024))
    yield Mutant("two unused tokens swapped", unused_swapped)
    yield Mutant("no chat template", without("tokenizer.chat_template"))
    yield Mutant("another name", only("general.name", "Another"))
    yield Mutant("tensors in another order", reversed_order)
    yield Mutant("keys in another order", reversed_keys)
    yield Mutant("an unknown key of someone else", someone_elses)


def unused_swapped(file: Copy) -> None:
    """The target's padding, which no text becomes."""
    assert file.kv["tokenizer.ggml.token_type"].value[-2:] == [TokenType.UNUSED] * 2
    tokens = list(file.kv[TOKENS].value)
    file.set(TOKENS, [*tokens[:-2], tokens[-1], tokens[-2]])


def reversed_order(file: Copy) -> None:
    file.tensors = {name: file.tensors[name] for name in reversed(file.tensors)}


def reversed_keys(file: Copy) -> None:
    file.kv = {key: file.kv[key] for key in reversed(file.kv)}


def someone_elses(file: Copy) -> None:
    file.kv["quantize.imatrix.chunks_count"] = Value(Type.UINT32, 7)
