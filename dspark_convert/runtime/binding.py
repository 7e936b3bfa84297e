"""The llama.cpp C API through ctypes. Used in the child process only: see ``guard``."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.diagnosis import ABORT_MARK
from dspark_convert.runtime.layout import CONTEXT_LAYOUTS, MODEL_LAYOUTS, Layout, detect, read_defaults

_P, _S, _I, _U, _B = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_bool

#: the token id and position types of llama.h
TOKEN = ctypes.c_int32
POSITION = ctypes.c_int32
SEQUENCE = ctypes.c_int32


class Batch(ctypes.Structure):
    """``llama_batch``: the same seven fields in every build seen."""

    _fields_ = (
        ("n_tokens", _I),
        ("token", ctypes.POINTER(TOKEN)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(POSITION)),
        ("n_seq_id", ctypes.POINTER(_I)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(SEQUENCE))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


_FLOATS = ctypes.POINTER(ctypes.c_float)

#: public C functions: name -> (result, arguments)
PUBLIC: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_model_free": (None, (_P,)),
    "llama_free": (None, (_P,)),
    "llama_model_get_vocab": (_P, (_P,)),
    "llama_model_n_embd": (_I, (_P,)),
    "llama_model_size": (ctypes.c_uint64, (_P,)),
    "llama_model_n_ctx_train": (_I, (_P,)),
    "llama_vocab_n_tokens": (_I, (_P,)),
    "llama_vocab_is_eog": (_B, (_P, TOKEN)),
    "llama_tokenize": (_I, (_P, _S, _I, ctypes.POINTER(TOKEN), _I, _B, _B)),
    "llama_n_ctx": (_U, (_P,)),
    "llama_n_batch": (_U, (_P,)),
    "llama_n_ubatch": (_U, (_P,)),
    "llama_n_seq_max": (_U, (_P,)),
    "llama_get_memory": (_P, (_P,)),
    "llama_memory_clear": (None, (_P, _B)),
    "llama_memory_seq_rm": (_B, (_P, SEQUENCE, POSITION, POSITION)),
    "llama_set_causal_attn": (None, (_P, _B)),
    "llama_decode": (_I, (_P, Batch)),
    "llama_encode": (_I, (_P, Batch)),
    "llama_get_logits": (_FLOATS, (_P,)),
}

#: functions of ggml that look into a graph; a build may keep them to itself
GRAPH: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_get_name": (_S, (_P,)),
    "ggml_nelements": (ctypes.c_int64, (_P,)),
    "ggml_nbytes": (ctypes.c_size_t, (_P,)),
    "ggml_backend_tensor_get": (None, (_P, _P, ctypes.c_size_t, ctypes.c_size_t)),
}

#: C++ functions of llama-ext.h, which DSpark needs: name -> (mangled name, result, arguments)
EXTENDED: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "llama_set_embeddings_layer_inp": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        None,
        (_P, _U, _B),
    ),
    "llama_get_embeddings_layer_inp": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        _FLOATS,
        (_P, _U),
    ),
    "llama_set_embeddings_nextn": ("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, (_P, _B, _B)),
    "llama_get_embeddings_nextn": ("_Z26llama_get_embeddings_nextnP13llama_context", _FLOATS, (_P,)),
    "llama_model_target_layer_ids": (
        "_Z28llama_model_target_layer_idsPK11llama_model",
        ctypes.POINTER(_I),
        (_P,),
    ),
    "llama_model_target_layer_ids_n": ("_Z30llama_model_target_layer_ids_nPK11llama_model", _U, (_P,)),
    "llama_get_ctx_other": ("_Z19llama_get_ctx_otherP13llama_context", _P, (_P,)),
}

#: part of the names of the tensors that make a draft a DSpark one, in llama.cpp's own table of names
MARKOV_TENSOR = b"markov_w1"

#: what to do about a library that is too old
NEWER_BUILD = "use a build of b10566 or later, for example: pip install 'dspark-convert[validate]'"

_ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class Llama:
    """An opened library: its functions as attributes, its two parameter structs with defaults.

    Raises EnvironmentFault if the file is no library, is no llama.cpp, is too old for DSpark, has an
    unknown struct layout or offers no device to compute on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cdll = _open(path)
        self._bind()
        self._catch_aborts()
        self.model_layout = self._detect(MODEL_LAYOUTS, "llama_model_default_params")
        self.context_layout = self._detect(CONTEXT_LAYOUTS, "llama_context_default_params")
        self._init_backends()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the llama.cpp functions bound here")

    def model_params(self) -> ctypes.Structure:
        """``llama_model_params`` with the library's defaults."""
        return self._defaults(self.model_layout, "llama_model_default_params")

    def context_params(self) -> ctypes.Structure:
        """``llama_context_params`` with the library's defaults."""
        return self._defaults(self.context_layout, "llama_context_default_params")

    def load_model(self, path: Path, params: ctypes.Structure) -> int | None:
        """``llama_model_load_from_file``: a handle, or None if llama.cpp refused the file."""
        load = self._cdll["llama_model_load_from_file"]
        load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p, type(params))
        handle: int | None = load(os.fsencode(path), params)
        return handle

    def new_context(self, model: int, params: ctypes.Structure) -> int | None:
        """``llama_init_from_model``: a handle, or None if llama.cpp refused the parameters."""
        create = self._cdll["llama_init_from_model"]
        create.restype, create.argtypes = ctypes.c_void_p, (ctypes.c_void_p, type(params))
        handle: int | None = create(model, params)
        return handle

    def knows_dspark(self) -> bool:
        """Whether the library's file names the Markov head's tensors; yes if the file cannot be found."""
        if not self.path.is_file():  # a bare name, which the dynamic linker resolved
            return True
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(MARKOV_TENSOR) >= 0

    def _bind(self) -> None:
        wanted = [(name, name, *signature) for name, signature in PUBLIC.items()]
        missing = [name for _, name, *_ in wanted if not hasattr(self._cdll, name)]
        if missing:
            raise EnvironmentFault(
                f"{self.path} is not a llama.cpp library that can be used here: it lacks {_some(missing)};"
                " name another with --lib."
            )
        extended = [(name, *entry) for name, entry in EXTENDED.items()]
        missing = [name for name, mangled, *_ in extended if not hasattr(self._cdll, mangled)]
        if missing:
            raise EnvironmentFault(
                f"the llama.cpp library {self.path} is too old for DSpark, or does not export the functions"
                f" that it needs: it lacks {_some(missing)}; {NEWER_BUILD}."
            )
        graph = [(name, name, *signature) for name, signature in GRAPH.items()]
        self.shows_graph = all(hasattr(self._cdll, name) for name in GRAPH)
        for name, symbol, result, arguments in (*wanted, *extended, *(graph if self.shows_graph else ())):
            function = self._cdll[symbol]
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def _catch_aborts(self) -> None:
        """Have the text of a failed assertion written to stderr in a form that can be recognised."""
        if not hasattr(self._cdll, "ggml_set_abort_callback"):
            return

        def tell(text: bytes) -> None:
            os.write(2, b"\n" + ABORT_MARK.encode() + text.replace(b"\n", b" ") + b"\n")

        self._abort_callback = _ABORT_CALLBACK(tell)  # kept: the library holds a bare pointer
        self._cdll.ggml_set_abort_callback(self._abort_callback)

    def _detect(self, layouts: tuple[Layout, ...], function: str) -> Layout:
        return detect(layouts, read_defaults(self._cdll, function), str(self.path))

    def _defaults(self, layout: Layout, function: str) -> ctypes.Structure:
        struct = layout.ctype()
        return struct.from_buffer_copy(read_defaults(self._cdll, function).data[: ctypes.sizeof(struct)])

    def _init_backends(self) -> None:
        """Start the library; load compute backends that a build keeps in files of their own."""
        self.llama_backend_init()
        if not hasattr(self._cdll, "ggml_backend_dev_count"):
            return
        count = self._cdll.ggml_backend_dev_count
        count.restype = ctypes.c_size_t
        # A bare name, which the dynamic linker resolved, has no directory: never look in the working one.
        if not count() and self.path.is_absolute() and hasattr(self._cdll, "ggml_backend_load_all_from_path"):
            self._cdll.ggml_backend_load_all_from_path(os.fsencode(self.path.parent))
        if not count() and hasattr(self._cdll, "ggml_backend_load_all"):
            self._cdll.ggml_backend_load_all()
        if not count():
            raise EnvironmentFault(
                f"the llama.cpp library {self.path} found no backend to compute with (libggml-cpu* or"
                " another one must lie beside it); complete the build or name another with --lib."
            )


def _some(names: list[str]) -> str:
    """The first names and how many more there are."""
    more = f" and {len(names) - 3} more functions" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as first:
        # Without a run path the loader does not look beside the library for the ones it needs.
        if path.is_absolute():
            _load_siblings(path.parent)
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            raise EnvironmentFault(
                f"{path} cannot be loaded as a library ({first}); name a llama.cpp library for this machine with --lib."
            ) from first


def _load_siblings(directory: Path) -> None:
    """Load ggml's own libraries in ``directory``, each as soon as those that it needs are there."""
    pattern = {"darwin": "libggml*.dylib", "win32": "ggml*.dll"}.get(sys.platform, "libggml*.so*")
    waiting = sorted(directory.glob(pattern))
    while waiting:
        failed = []
        for sibling in waiting:
            try:
                ctypes.CDLL(str(sibling), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                failed.append(sibling)
        if len(failed) == len(waiting):
            return
        waiting = failed
