"""The child process: runs one job in a llama.cpp library and reports over a pipe.

Started by ``guard`` as ``python -m dspark_convert.runtime.worker``. One line of JSON on stdin is the
job; lines of JSON on stdout are {"phase": …}, then {"result": …} or {"error": {"kind", "message"}}.
stderr carries what llama.cpp says. When stdin closes, the parent is gone and so is this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dspark_convert.errors import DsparkError, EnvironmentFault, UsageError

Tell = Callable[[str], None]


def run_pair(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Load a pair and decode every prompt plainly and with the draft; what happened, unjudged.

    ``job``: library, target, draft (paths), shape (``DraftShape``), prompts, max_tokens; where
    wanted also memory (bytes) and record (directory and layers of the recordings to be made).
    """
    from dspark_convert.runtime.anchor import check_anchor_rule
    from dspark_convert.runtime.binding import Llama
    from dspark_convert.runtime.injection import probe_injection
    from dspark_convert.runtime.recording import rounds_to_keep
    from dspark_convert.runtime.session import Session
    from dspark_convert.runtime.shape import DraftShape

    tell("loading the library")
    llama = Llama(Path(job["library"]))
    shape = DraftShape(**job["shape"])
    _limit_memory(job.get("memory"))
    with Session(llama, Path(job["target"]), Path(job["draft"]), shape) as session:
        tell("loading the target")
        session.load_target()
        tell("loading the draft")
        session.load_draft()
        prompts = [session.tokenize(text) for text in job["prompts"]]
        margin = 2 * shape.block_size + 2
        n_positions = max(map(len, prompts)) + job["max_tokens"] + margin
        if n_positions > session.n_ctx_train:
            raise UsageError(
                f"The longest prompt ({max(map(len, prompts))} tokens) and --max-tokens {job['max_tokens']} need"
                f" {n_positions} positions, but the target was trained for {session.n_ctx_train}; shorten them."
            )
        tell("creating the contexts")
        session.open_contexts(n_positions)
        tell("probing how the draft takes the target's features")
        probe_injection(session)
        check_anchor_rule(session)
        record = job.get("record")
        if record:
            session.watched = tuple(sorted({*session.taps, *record["layers"]}))
            record["rounds"] = rounds_to_keep(len(prompts), shape.drafts_per_block, session.target.n_vocab)
        runs = []
        for number, prompt in enumerate(prompts):
            tell(f"decoding prompt {number + 1} of {len(prompts)}")
            runs.append(_run_prompt(session, prompt, job["max_tokens"], record, number))
        return {
            "model_params": llama.model_layout.name,
            "context_params": llama.context_layout.name,
            "injection": session.injection,
            "taps": session.taps,
            "vocab_size": session.target.n_vocab,
            "runs": runs,
        }


def _run_prompt(
    session: Any, prompt: list[int], max_tokens: int, record: dict[str, Any] | None, number: int
) -> dict[str, Any]:
    from dspark_convert.runtime.decode import decode_plain, decode_with_draft, measure_noise
    from dspark_convert.runtime.recording import make_recording

    plain = decode_plain(session, prompt, max_tokens)
    noise = measure_noise(session, prompt, plain)
    drafted = decode_with_draft(session, prompt, len(plain.tokens), record=record["rounds"] if record else 0)
    if record:
        make_recording(session, drafted, prompt).write(Path(record["directory"]), number)
    return {
        "prompt_tokens": len(prompt),
        "plain": plain.tokens,
        "gaps": [plain.gap(index) for index in range(len(plain.tokens))],
        "noise": noise,
        "drafted": drafted.tokens[: len(plain.tokens)],
        "rounds": [
            {"drafts": entry.drafts, "wanted": entry.wanted, "accepted": entry.accepted} for entry in drafted.rounds
        ],
    }


def main() -> None:
    # Whatever the library prints to stdout must not get between the lines of JSON.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _no_core_dump()
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        send({"result": run_pair(job, lambda phase: send({"phase": phase}))})
    except DsparkError as fault:
        kinds = {EnvironmentFault: "environment", UsageError: "usage"}
        send({"error": {"kind": kinds.get(type(fault), "input"), "message": str(fault)}})
    # Some builds crash in their own clean-up at exit; the result is out, so leave without it.
    os._exit(0)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def _limit_memory(limit: int | None) -> None:
    """Let this process allocate at most ``limit`` bytes; mapped model files and reserved addresses do not count.

    So a GPU's driver may reserve what it likes. Where the system has no such limit nothing happens.
    """
    if limit is None:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _no_core_dump() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
