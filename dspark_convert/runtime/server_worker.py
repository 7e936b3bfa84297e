"""The child process of the second opinion: xllamacpp's own server, asked over loopback. See ``server``.

Started by ``guard`` as ``python -m dspark_convert.runtime.server_worker``; ``child`` says how the two talk.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.runtime.child import Tell, limit_memory, run_child
from dspark_convert.runtime.context import threads_for

LOOPBACK = "http://127.0.0.1:"


def ask_server(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Start the server with target and draft, have it answer every prompt greedily, and return the answers.

    ``job``: package (xllamacpp's directory), target, draft (paths), type (of the draft: "dspark" or "dflash"),
    n_draft (tokens a block), n_ctx, prompts, max_tokens, memory (bytes).
    """
    tell("loading the library")
    xllamacpp = _import(Path(job["package"]))
    limit_memory(job["memory"])
    tell("starting the server")
    key = secrets.token_hex(16)
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, job, key))
    except UnicodeEncodeError as fault:
        raise InputError("xllamacpp's server takes no file names but UTF-8 ones; rename the files.") from fault
    except RuntimeError as fault:
        raise InputError(f"xllamacpp's server did not start: {fault}") from fault
    address = server.listening_address
    if not address.startswith(LOOPBACK):
        raise EnvironmentFault(f"xllamacpp's server listens on {address}, not on loopback.")
    answers = []
    for number, prompt in enumerate(job["prompts"], 1):
        tell(f"asking the server for prompt {number} of {len(job['prompts'])}")
        answers.append(_complete(address.removeprefix("http://"), key, prompt, job["max_tokens"]))
    return {"answers": answers}


def _import(directory: Path) -> Any:
    """The package xllamacpp in ``directory``, whatever else is installed."""
    start = directory / "__init__.py"
    spec = importlib.util.spec_from_file_location("xllamacpp", start, submodule_search_locations=[str(directory)])
    if spec is None or spec.loader is None:
        raise EnvironmentFault(f"{start} is no Python package.")
    module = importlib.util.module_from_spec(spec)
    sys.modules["xllamacpp"] = module
    spec.loader.exec_module(module)
    return module


def _parameters(xllamacpp: Any, job: dict[str, Any], key: str) -> Any:
    """The server's parameters, such that it computes as a ``Context`` does; the rest is its own default."""
    params = xllamacpp.CommonParams()
    params.api_keys = [key]
    params.model.path = job["target"]
    params.n_ctx = job["n_ctx"]
    params.n_parallel = 1
    params.warmup = params.fit_params = False
    params.no_extra_bufts = True
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    speculative = params.speculative
    types = xllamacpp.common_speculative_type
    speculative.types = [getattr(types, f"COMMON_SPECULATIVE_TYPE_{job['type'].upper().replace('-', '_')}")]
    speculative.draft.mparams.path = job["draft"]
    speculative.draft.n_max = job["n_draft"]
    f32 = xllamacpp.ggml_type.GGML_TYPE_F32
    n_threads = threads_for(Path(job["target"]).stat().st_size)
    for caches in (params, speculative.draft):
        caches.cache_type_k = caches.cache_type_v = f32
        caches.cpuparams.n_threads = caches.cpuparams_batch.n_threads = n_threads
    return params


def _complete(address: str, key: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    """What the server's /completion says: tokens, draft_n and draft_n_accepted."""
    asked = {"prompt": prompt, "n_predict": max_tokens, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    connection = http.client.HTTPConnection(address)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection.request("POST", "/completion", json.dumps(asked), headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != http.client.OK:
        raise InputError(f"xllamacpp's server answered {response.status}: {body[:300].decode('utf-8', 'replace')}")
    answer = json.loads(body)
    timings = answer["timings"]
    return {
        "tokens": answer["tokens"],
        "drafted": timings.get("draft_n", 0),
        "accepted": timings.get("draft_n_accepted", 0),
    }


if __name__ == "__main__":
    run_child(ask_server)
