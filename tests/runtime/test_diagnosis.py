"""What is picked out of llama.cpp's log."""

from __future__ import annotations

import pytest

from dspark_convert.runtime.diagnosis import add_complaint, explain_death


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("llama_model_load: error loading model: missing tensor 'fc.weight'", ": missing tensor 'fc.weight'."),
        ("E x: error loading model: tensor 'a' has shape    128,      1", ": tensor 'a' has shape 128, 1."),
        ("init: failed to allocate buffer for kv cache", ": failed to allocate buffer for kv cache."),
        ("load_tensors: loading model tensors, this can take a while", "."),
        ("print_info: rope_finetuned        = unknown", "."),
    ],
)
def test_complaint(line: str, told: str) -> None:
    assert add_complaint("Refused", ["print_info: arch = dflash", line, "later: nothing"]) == f"Refused{told}"


def test_whole_sentence_gets_no_complaint() -> None:
    assert add_complaint("It is wrong.", ["x: error loading model: y"]) == "It is wrong."


@pytest.mark.parametrize(("role", "got", "hinted"), [("draft", 40, True), ("draft", 39, False), ("target", 40, False)])
def test_two_tensors_too_many_are_the_tables(role: str, got: int, hinted: bool) -> None:
    log = [
        f"llama_model_load: error loading model: done_getting_tensors: wrong number of tensors; expected 42, got {got}"
    ]
    told = add_complaint(f"llama.cpp refused to load the {role} d.gguf", log)
    assert f"wrong number of tensors; expected 42, got {got}" in told
    assert ("--shared-tensors omit" in told) == hinted
    assert told.endswith(".")


def test_uncaught_exception_s_text_is_told() -> None:
    log = ["terminate called after throwing an instance of 'std::runtime_error'", "  what():  block size is 0"]
    told = explain_death(-6, "loading the draft", log)
    assert told.startswith("while loading the draft, llama.cpp stopped on an assertion")
    assert told.endswith(": block size is 0.")


def test_assertion_without_the_callback_is_found_in_the_log() -> None:
    log = ["/build/src/llama-context.cpp:42: GGML_ASSERT(lid <= n_layer) failed"]
    assert explain_death(-6, "decoding", log).endswith(": llama-context.cpp:42: GGML_ASSERT(lid <= n_layer) failed.")


def test_signal_from_outside_has_no_text_of_the_library_s() -> None:
    log = ["/build/src/a.cpp:42: GGML_ASSERT(x) failed", "init: failed to find a GPU"]
    assert explain_death(-9, "decoding", log).endswith("(SIGKILL): most likely the memory ran out.")
    assert explain_death(-15, "decoding", log).endswith("was ended by SIGTERM.")


def test_unknown_signal_number() -> None:
    assert "ended by signal 63" in explain_death(-63, "decoding", [])
