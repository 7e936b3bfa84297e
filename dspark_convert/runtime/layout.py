"""Layouts of llama.cpp's parameter structs: which one does this library use?

``llama_model_params`` and ``llama_context_params`` change between builds and no version number
tells which is which (some packages report build 0). The library is asked instead: it fills its own
defaults into memory that held 0xAA before, and again into memory that held 0x55. The bytes that
agree are those that it wrote, which gives the size; the defaults of the fields tell where they lie.
A layout is accepted only if it is the only one in the table that fits.
"""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from typing import Any

from dspark_convert.errors import EnvironmentFault

#: more than any parameter struct of llama.cpp needs
PROBE_BYTES = 1024
PROBE_FILLS = (0xAA, 0x55)

_POINTER, _INT, _UINT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
_FLOAT, _BOOL, _SIZE = ctypes.c_float, ctypes.c_bool, ctypes.c_size_t


@dataclass(frozen=True)
class Field:
    """``defaults`` are the values that a library may give; enums of -1 mean "decide yourself"."""

    name: str
    ctype: Any
    defaults: tuple[float, ...]


@dataclass(frozen=True)
class Layout:
    """One version of one struct; ``builds`` are llama.cpp build numbers that were seen with it."""

    struct: str
    name: str
    builds: str
    fields: tuple[Field, ...]

    def ctype(self) -> type[ctypes.Structure]:
        """A ctypes structure with these fields."""
        fields = [(field.name, field.ctype) for field in self.fields]
        return type(self.struct, (ctypes.Structure,), {"_fields_": fields})

    @property
    def field_names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)


@dataclass(frozen=True)
class Defaults:
    """What a default-params function left in memory.

    ``written`` has one flag a byte, or is None where the calling convention does not allow to
    prepare the memory.
    """

    data: bytes
    written: tuple[bool, ...] | None


def _field(name: str, ctype: Any, *defaults: float) -> Field:
    return Field(name, ctype, defaults)


_MODEL_HEAD = (
    _field("devices", _POINTER, 0),
    _field("tensor_buft_overrides", _POINTER, 0),
    _field("n_gpu_layers", _INT, -1, 0, 999),
    _field("split_mode", _INT, 1),
)
_MODEL_MIDDLE = (
    _field("main_gpu", _INT, 0),
    _field("tensor_split", _POINTER, 0),
    _field("progress_callback", _POINTER, 0),
    _field("progress_callback_user_data", _POINTER, 0),
    _field("kv_overrides", _POINTER, 0),
    _field("vocab_only", _BOOL, 0),
)
_MODEL_TAIL = (
    _field("check_tensors", _BOOL, 0),
    _field("use_extra_bufts", _BOOL, 1),
    _field("no_host", _BOOL, 0),
    _field("no_alloc", _BOOL, 0),
)
_MAPPING_FLAGS = (
    _field("use_mmap", _BOOL, 1),
    _field("use_direct_io", _BOOL, 0, 1),
    _field("use_mlock", _BOOL, 0),
)
_LOAD_MODE = _field("load_mode", _INT, -1, 0, 1, 2, 3, 4)
_LAZY_MODE = _field("lazy_mode", _INT, 0, 1, 2)
_LOAD_MTP = _field("load_mtp", _BOOL, 0, 1)

_CONTEXT_HEAD = (
    _field("n_ctx", _UINT, 512),
    _field("n_batch", _UINT, 2048),
    _field("n_ubatch", _UINT, 512),
    _field("n_seq_max", _UINT, 1),
    _field("n_rs_seq", _UINT, 0),
    _field("n_outputs_max", _UINT, 0),
)
_CONTEXT_MIDDLE = (
    _field("n_threads", _INT, 4),
    _field("n_threads_batch", _INT, 4),
    _field("ctx_type", _INT, 0),
    _field("rope_scaling_type", _INT, -1),
    _field("pooling_type", _INT, -1),
    _field("attention_type", _INT, -1),
    _field("flash_attn_type", _INT, -1),
    _field("rope_freq_base", _FLOAT, 0),
    _field("rope_freq_scale", _FLOAT, 0),
    _field("yarn_ext_factor", _FLOAT, -1),
    _field("yarn_attn_factor", _FLOAT, -1),
    _field("yarn_beta_fast", _FLOAT, -1),
    _field("yarn_beta_slow", _FLOAT, -1),
    _field("yarn_orig_ctx", _UINT, 0),
    _field("defrag_thold", _FLOAT, -1),
    _field("cb_eval", _POINTER, 0),
    _field("cb_eval_user_data", _POINTER, 0),
    _field("type_k", _INT, 1),
    _field("type_v", _INT, 1),
)
_CONTEXT_TAIL = (
    _field("abort_callback", _POINTER, 0),
    _field("abort_callback_data", _POINTER, 0),
    _field("embeddings", _BOOL, 0),
    _field("offload_kqv", _BOOL, 1),
    _field("no_perf", _BOOL, 0, 1),
    _field("op_offload", _BOOL, 1),
    _field("swa_full", _BOOL, 0, 1),
    _field("kv_unified", _BOOL, 0, 1),
    _field("samplers", _POINTER, 0),
    _field("n_samplers", _SIZE, 0),
    _field("ctx_other", _POINTER, 0),
)
_OUTPUTS_PER_SEQ = _field("n_outputs_max_per_seq", _UINT, 0, 1)
_MOE_CACHE = _field("moe_cache_size", _SIZE, 0)

MODEL_LAYOUTS = (
    Layout(
        "llama_model_params",
        "A",
        "b10069",
        (*_MODEL_HEAD, *_MODEL_MIDDLE, *_MAPPING_FLAGS, *_MODEL_TAIL),
    ),
    Layout(
        "llama_model_params",
        "B",
        "b10229 to b10566",
        (*_MODEL_HEAD, _LOAD_MODE, *_MODEL_MIDDLE, *_MODEL_TAIL, _LOAD_MTP),
    ),
    Layout(
        "llama_model_params",
        "C",
        "b10809 to b11739",
        (*_MODEL_HEAD, _LOAD_MODE, _LAZY_MODE, *_MODEL_MIDDLE, *_MODEL_TAIL, _LOAD_MTP),
    ),
)
CONTEXT_LAYOUTS = (
    Layout(
        "llama_context_params",
        "A",
        "b10069 to b10335",
        (*_CONTEXT_HEAD, *_CONTEXT_MIDDLE, *_CONTEXT_TAIL),
    ),
    Layout(
        "llama_context_params",
        "B",
        "b10434 to b11227",
        (*_CONTEXT_HEAD, _OUTPUTS_PER_SEQ, *_CONTEXT_MIDDLE, *_CONTEXT_TAIL),
    ),
    Layout(
        "llama_context_params",
        "C",
        "b11549 to b11739",
        (*_CONTEXT_HEAD, _OUTPUTS_PER_SEQ, *_CONTEXT_MIDDLE, _MOE_CACHE, *_CONTEXT_TAIL),
    ),
)


def read_defaults(library: ctypes.CDLL, function: str) -> Defaults:
    """Call ``function`` (``llama_*_default_params``) and return what it wrote.

    On x86-64 a struct this large is returned through a hidden first pointer, so the function can
    be handed prepared memory. Other machines pass that pointer elsewhere: there it is called by
    value and what lies behind the struct is unknown.
    """
    fill = library[function]
    if platform.machine().lower() not in ("x86_64", "amd64"):
        memory = type("Memory", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_uint8 * PROBE_BYTES)]})
        fill.restype, fill.argtypes = memory, ()
        return Defaults(bytes(fill()), None)
    fill.restype, fill.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    runs = []
    for byte in PROBE_FILLS:
        buffer = ctypes.create_string_buffer(bytes([byte]) * PROBE_BYTES, PROBE_BYTES)
        fill(ctypes.addressof(buffer))
        runs.append(buffer.raw)
    written = tuple(first == second for first, second in zip(*runs, strict=True))
    return Defaults(runs[0], written)


def detect(layouts: tuple[Layout, ...], defaults: Defaults, library: str) -> Layout:
    """The one of ``layouts`` that fits ``defaults``; EnvironmentFault if none or several do."""
    fits = [layout for layout in layouts if _fits(layout, defaults)]
    if len(fits) == 1:
        return fits[0]
    struct = layouts[0].struct
    known = ", ".join(f"{layout.name} ({layout.builds})" for layout in layouts)
    found = f"{len(fits)} layouts fit" if fits else f"none fits ({_size_found(defaults)})"
    raise EnvironmentFault(
        f"the llama.cpp library {library} lays out {struct} in a way that is not known here: of the layouts"
        f" {known}, {found}; use a llama.cpp build of that range with --lib, or a newer dspark-convert."
    )


def _size_found(defaults: Defaults) -> str:
    if defaults.written is None:
        return "its size is unknown"
    size = max((i + 1 for i, flag in enumerate(defaults.written) if flag), default=0)
    return f"the library fills {size} bytes"


def _fits(layout: Layout, defaults: Defaults) -> bool:
    struct = layout.ctype()
    size = ctypes.sizeof(struct)
    if defaults.written is not None and any(defaults.written[size:]):
        return False
    values = struct.from_buffer_copy(defaults.data[:size])
    for field in layout.fields:
        place = getattr(struct, field.name)
        if defaults.written is not None and not all(defaults.written[place.offset : place.offset + place.size]):
            return False
        # A bool that is neither 0 nor 1 would read as true: look at the byte.
        value = defaults.data[place.offset] if field.ctype is _BOOL else (getattr(values, field.name) or 0)
        if value not in field.defaults:
            return False
    return True
