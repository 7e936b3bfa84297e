"""What is picked out of llama.cpp's log."""

from __future__ import annotations

import pytest

from dspark_convert.runtime.diagnosis import explain_death, library_complaint


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("llama_model_load: error loading model: missing tensor 'fc.weight'", ": missing tensor 'fc.weight'."),
        (
            "E llama_model_load: error loading model: done_getting_tensors: wrong number",
            ": done_getting_tensors: wrong number.",
        ),
        ("init: failed to allocate buffer for kv cache", ": failed to allocate buffer for kv cache."),
        ("load_tensors: loading model tensors, this can take a while", "."),
    ],
)
def test_complaint(line: str, told: str) -> None:
    assert library_complaint(["print_info: arch = dflash", line, "later: nothing"]) == told


def test_uncaught_exception_s_text_is_told() -> None:
    log = ["terminate called after throwing an instance of 'std::runtime_error'", "  what():  block size is 0"]
    assert explain_death(-6, "loading the draft", log).endswith("while loading the draft: block size is 0.")


def test_assertion_without_the_callback_is_found_in_the_log() -> None:
    log = ["/build/src/llama-context.cpp:42: GGML_ASSERT(lid <= n_layer) failed"]
    assert "llama-context.cpp:42: GGML_ASSERT(lid <= n_layer) failed." in explain_death(-6, "decoding", log)


def test_unknown_signal_number() -> None:
    assert "ended by signal 63" in explain_death(-63, "decoding", [])
