"""The child process: runs one job in a llama.cpp library and reports over a pipe.

Started by ``guard`` as ``python -m dspark_convert.runtime.worker``; ``child`` says how the two talk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dspark_convert.runtime.child import Tell, run_child


def run_pair(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Load a pair and decode every prompt plainly and with the draft; what happened, unjudged.

    ``job``: library, target, draft (paths), shape (``DraftShape``), prompts, max_tokens; where
    wanted also memory (bytes) and record (directory and layers of the recordings to be made).
    """
    from dspark_convert.runtime.opening import open_pair
    from dspark_convert.runtime.recording import rounds_to_keep

    with open_pair(job, tell) as (session, prompts):
        record = job.get("record")
        if record:
            session.watched = tuple(sorted({*session.taps, *record["layers"]}))
            record["rounds"] = rounds_to_keep(len(prompts), session.shape.drafts_per_block, session.target.n_vocab)
        runs = []
        for number, prompt in enumerate(prompts):
            tell(f"decoding prompt {number + 1} of {len(prompts)}")
            runs.append(_run_prompt(session, prompt, job["max_tokens"], record, number))
        return {
            "model_params": session.llama.model_layout.name,
            "context_params": session.llama.context_layout.name,
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


if __name__ == "__main__":
    run_child(run_pair)
