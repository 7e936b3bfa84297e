"""Shared libraries that export what a llama.cpp library does and behave badly, compiled by the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dspark_convert.runtime.binding import EXTENDED, PUBLIC
from tests.runtime.test_layout import RECORDED

_HEAD = """
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
"""


def compile_impostor(
    path: Path, *, on_load: str = "", load_model: str = "return 0;", sizes: tuple[int, int] | None = None
) -> Path:
    """A library at ``path``; ``on_load`` and ``load_model`` are C statements.

    Its parameter structs are those of b11549, or zeros of these ``sizes``; all other functions return 0.
    """
    names = [*PUBLIC, *(entry[0] for entry in EXTENDED.values()), "llama_init_from_model", "ggml_backend_load_all"]
    _, model, _, context = RECORDED["b11549"]
    data = [bytes(size) for size in sizes] if sizes else [bytes.fromhex(model), bytes.fromhex(context)]
    source = [
        _HEAD,
        *(f"void *{name}(void) {{ return 0; }}" for name in names),
        "size_t ggml_backend_dev_count(void) { return 1; }",
        f"void *llama_model_load_from_file(void) {{ {load_model} }}",
        f"__attribute__((constructor)) static void on_load(void) {{ {on_load} }}",
    ]
    for function, fill in zip(("llama_model_default_params", "llama_context_default_params"), data, strict=True):
        values = ", ".join(map(str, fill))
        source.append(
            f"struct {function} {{ unsigned char data[{len(fill)}]; }};"
            f" struct {function} {function}(void) {{ struct {function} made = {{ {{ {values} }} }}; return made; }}"
        )
    if shutil.which("cc") is None:
        pytest.fail("a C compiler (cc) is needed for the libraries that behave badly")
    command = ["cc", "-x", "c", "-O1", "-w", "-shared", "-fPIC", "-o", str(path), "-"]
    subprocess.run(command, input="\n".join(source), text=True, check=True, timeout=60)
    return path
