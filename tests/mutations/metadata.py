"""Mutants of the key/values: what the runtime reads, what the file says of itself, the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gguf import GGUFValueType as Type

from tests.mutations.copies import Change, Copy, Mutant, Value

SIZES = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "block_size",
)
#: runtime keys of other types -> a type that their value also has a meaning in
OTHER_TYPES = {
    "rope.freq_base": Type.FLOAT64,
    "attention.layer_norm_rms_epsilon": Type.FLOAT64,
    "sample_from_anchor": Type.UINT8,
    "has_confidence_head": Type.UINT8,
}
#: the file's own keys that repeat a runtime key, which a converter writes from one variable
TWINS = ("block_size", "target_layers", "sample_from_anchor", "has_confidence_head")
MASK = "tokenizer.ggml.mask_token_id"
TOKENS = "tokenizer.ggml.tokens"


def metadata() -> Iterator[Mutant]:
    yield from sizes()
    yield from runtime_values()
    yield from added_keys()
    yield from own_meaning()
    yield from tokenizer()


def write(name: str, value: Any) -> Change:
    """The runtime's key and, where there is one, its twin: a converter that read it wrong writes both."""

    def change(file: Copy) -> None:
        file.set(f"dflash.{name}", value)
        if name in TWINS:
            file.set(f"dspark.{name}", value)

    return change


def only(key: str, value: Any) -> Change:
    """One key alone, which then contradicts its twin."""
    return lambda file: file.set(key, value)


def add(**values: tuple[Type, Any] | tuple[Type, Any, Type]) -> Change:
    """Runtime keys that the good file has not; double underscores stand for dots."""

    def change(file: Copy) -> None:
        for name, value in values.items():
            file.kv[f"dflash.{name.replace('__', '.')}"] = Value(*value)

    return change


def without(key: str) -> Change:
    def change(file: Copy) -> None:
        del file.kv[key]

    return change


def retyped(key: str, kind: Type) -> Change:
    def change(file: Copy) -> None:
        value = file.kv[key].value
        file.kv[key] = Value(kind, int(value) if kind is Type.UINT8 else value)

    return change


def scaled(name: str, step: int) -> Change:
    def change(file: Copy) -> None:
        write(name, file.kv[f"dflash.{name}"].value + step)(file)

    return change


def sizes() -> Iterator[Mutant]:
    for name in SIZES:
        yield Mutant(f"{name} + 1", scaled(name, 1))
        yield Mutant(f"{name} - 1", scaled(name, -1))
        yield Mutant(f"{name} of type UINT64", retyped(f"dflash.{name}", Type.UINT64))
        if name not in ("attention.key_length", "attention.value_length"):  # harmless.py
            yield Mutant(f"{name} missing", without(f"dflash.{name}"))
    yield Mutant("context_length doubled", write("context_length", 1024))
    yield Mutant("block_size 0", write("block_size", 0))
    yield Mutant("block_size + 2", scaled("block_size", 2))
    yield Mutant("block_size + 9", scaled("block_size", 9))
    yield Mutant("head_count 8 of 16", heads(8, 4, 16))
    yield Mutant("head_count 2 of 64", heads(2, 1, 64))


def heads(count: int, count_kv: int, width: int) -> Change:
    """The products stay, so that the matrices' shapes fit."""

    def change(file: Copy) -> None:
        file.set("dflash.attention.head_count", count)
        file.set("dflash.attention.head_count_kv", count_kv)
        file.set("dflash.attention.key_length", width)
        file.set("dflash.attention.value_length", width)

    return change


def runtime_values() -> Iterator[Mutant]:
    for name, kind in OTHER_TYPES.items():
        yield Mutant(f"{name} of type {kind.name}", retyped(f"dflash.{name}", kind))
        if name != "has_confidence_head":  # harmless.py
            yield Mutant(f"{name} missing", without(f"dflash.{name}"))
    for factor in (10.0, 0.1, 100.0, 1.01):
        yield Mutant(f"rope.freq_base x{factor:g}", write("rope.freq_base", 10_000.0 * factor))
    for eps in (1e-5, 1e-8, 1e-12, 1.1e-6):
        yield Mutant(f"eps {eps:g}", write("attention.layer_norm_rms_epsilon", eps))
    for name, taps in {
        "+ 1": [2, 3, 4],
        "+ 1 within the target": [2, 3, 3],
        "- 1": [0, 1, 2],
        "one off": [1, 2, 2],
        "one off low": [0, 2, 3],
        "reversed": [3, 2, 1],
        "rotated": [2, 3, 1],
        "two swapped": [2, 1, 3],
        "duplicated": [1, 1, 3],
        "all the last": [3, 3, 3],
        "negative": [-1, 1, 2],
        "beyond the target": [1, 2, 77],
        "one lost": [1, 2],
        "one more": [0, 1, 2, 3],
    }.items():
        yield Mutant(f"taps {name}", write("target_layers", taps))
    yield Mutant("taps missing", without("dflash.target_layers"))
    yield Mutant(
        "taps of INT64", lambda f: f.kv.update({"dflash.target_layers": Value(Type.ARRAY, [1, 2, 3], Type.INT64)})
    )
    yield Mutant("taps a scalar", lambda f: f.kv.update({"dflash.target_layers": Value(Type.UINT32, 1)}))
    yield Mutant("anchor flag false", write("sample_from_anchor", False))
    yield Mutant("confidence flag false", write("has_confidence_head", False))
    yield Mutant("architecture dspark", only("general.architecture", "dspark"))
    yield Mutant("architecture qwen3", only("general.architecture", "qwen3"))
    for number in (1, 7, 32):
        yield Mutant(f"file_type {number}", only("general.file_type", number))


def added_keys() -> Iterator[Mutant]:
    """Keys that llama.cpp would obey, on a draft whose checkpoint has nothing of the kind."""
    numbers = (Type.FLOAT32, Type.UINT32, Type.BOOL, Type.STRING)
    f32, u32, boolean, string = numbers
    pattern = (Type.ARRAY, [True, True, True], boolean)
    first = (Type.ARRAY, [True, False, False], boolean)
    yield Mutant("causal", add(attention__causal=(boolean, True)))
    yield Mutant("half of the dimensions rotated", add(rope__dimension_count=(u32, 16)))
    yield Mutant("a quarter of the dimensions rotated", add(rope__dimension_count=(u32, 8)))
    linear = {"rope__scaling__type": (string, "linear"), "rope__scaling__factor": (f32, 4.0)}
    yield Mutant("linear RoPE scaling", add(**linear))
    yarn = {
        "rope__scaling__type": (string, "yarn"),
        "rope__scaling__factor": (f32, 4.0),
        "rope__scaling__original_context_length": (u32, 128),
    }
    yield Mutant("yarn RoPE scaling", add(**yarn))
    yield Mutant("RoPE scale_linear of old", add(rope__scale_linear=(f32, 4.0)))
    yield Mutant("M-RoPE sections of three axes", add(rope__dimension_sections=(Type.ARRAY, [4, 6, 6, 0], Type.INT32)))
    yield Mutant("window 4", add(attention__sliding_window=(u32, 4), attention__sliding_window_pattern=pattern))
    yield Mutant(
        "window 4 in one layer", add(attention__sliding_window=(u32, 4), attention__sliding_window_pattern=first)
    )
    long = (u32, 100_000)
    yield Mutant(
        "window that no text fills", add(attention__sliding_window=long, attention__sliding_window_pattern=pattern)
    )
    yield Mutant("window without a pattern", add(attention__sliding_window=(u32, 4)))
    yield Mutant("embeddings scaled", add(embedding_scale=(f32, 11.3)))
    yield Mutant("logits scaled", add(logit_scale=(f32, 0.5)))
    yield Mutant("logits capped", add(final_logit_softcapping=(f32, 30.0)))
    yield Mutant("attention scaled", add(attention__scale=(f32, 1.0)))
    yield Mutant("values scaled", add(attention__value_scale=(f32, 0.612)))
    yield Mutant("GELU for SiLU", add(hidden_activation=(string, "gelu_pytorch_tanh")))
    yield Mutant("output width", add(embedding_length_out=(u32, 128)))


def own_meaning() -> Iterator[Mutant]:
    """The keys by which the file says what it means."""
    for key, value in {
        "backbone": "deepseek4",
        "block_size": 6,
        "target_layers": [0, 1, 2],
        "mask_token_id": 999,
        "sample_from_anchor": False,
        "markov_rank": 16,
        "markov_head_type": "gated",
        "has_confidence_head": False,
        "rope_style": "norm",
        "target.block_count": 5,
    }.items():
        yield Mutant(f"dspark.{key} {value}", only(f"dspark.{key}", value))
    for name, value in {"block_size": 6, "target_layers": [0, 1, 2], "sample_from_anchor": False}.items():
        yield Mutant(f"dflash.{name} alone {value}", only(f"dflash.{name}", value))
    yield Mutant("mask alone", only(MASK, 1001))


def mask(token: int) -> Change:
    def change(file: Copy) -> None:
        file.set(MASK, token)
        file.set("dspark.mask_token_id", token)

    return change


def tokenizer() -> Iterator[Mutant]:
    for name, token in {"+ 1": 1001, "- 1": 999, "BOS": 997, "EOS": 999, "0": 0, "beyond": 1024}.items():
        yield Mutant(f"mask {name}", mask(token))
    yield Mutant("mask missing", without(MASK))
    yield Mutant("mask of type INT32", retyped(MASK, Type.INT32))

    def tokens(change: Any) -> Change:
        return lambda file: file.set(TOKENS, change(list(file.kv[TOKENS].value)))

    yield Mutant("tokens shifted by one", tokens(lambda t: t[1:] + t[:1]))
    yield Mutant("two tokens swapped", tokens(lambda t: [*t[:300], t[301], t[300], *t[302:]]))
    yield Mutant("the last used tokens swapped", tokens(lambda t: [*t[:999], t[1000], t[999], *t[1001:]]))
    yield Mutant("one token less", tokens(lambda t: t[:-1]))
    yield Mutant("one token more", tokens(lambda t: [*t, "more"]))
    yield Mutant("tokens missing", without(TOKENS))
    yield Mutant("merges missing", without("tokenizer.ggml.merges"))
    yield Mutant("two merges swapped", swap_merges)
    yield Mutant("pre-tokenizer missing", without("tokenizer.ggml.pre"))
    yield Mutant("tokenizer model of another kind", only("tokenizer.ggml.model", "llama"))
    yield Mutant("tokenizer model missing", without("tokenizer.ggml.model"))


def swap_merges(file: Copy) -> None:
    merges = list(file.kv["tokenizer.ggml.merges"].value)
    merges[10], merges[11] = merges[11], merges[10]
    file.set("tokenizer.ggml.merges", merges)
