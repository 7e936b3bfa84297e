"""The child process that measures; started by ``runtime.guard`` like the one that validates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from dspark_convert.runtime.child import Tell, run_child

if TYPE_CHECKING:
    from dspark_convert.runtime.session import Session

#: tokens of the runs that warm the library up: buffers are made for each size of batch
WARM_UP_TOKENS = 12


def run_bench(job: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Load a pair and measure every prompt in turns of plain decoding and decoding with the draft.

    ``job``: library, target, draft (paths), shape (``DraftShape``), prompts, max_tokens, seconds, exact, threads (or
    None), memory (bytes), sweep (pairs of n_max and p_min, maybe empty). First comes a turn a prompt with the whole
    block, then, if there is a sweep, one a prompt with all of its settings. After ``seconds`` no turn is begun.
    """
    from dspark_convert.runtime.opening import open_pair

    with open_pair(job, tell, exact=job["exact"], n_threads=job["threads"]) as (session, prompts):
        shape = session.shape
        whole = [(shape.drafts_per_block, 0.0)]
        sweep = [tuple(setting) for setting in job["sweep"]]
        tell("warming up")
        _turn(session, prompts[0], min(WARM_UP_TOKENS, job["max_tokens"]), [*whole, *sweep])
        turns = []
        for text, number, settings in _plan(len(prompts), job["seconds"], whole, sweep):
            tell(text)
            turn = _turn(session, prompts[number], job["max_tokens"], settings)
            turns.append({"prompt": number, "sweep": settings is not whole, **turn})
        return {
            "model_params": session.llama.model_layout.name,
            "context_params": session.llama.context_layout.name,
            "injection": session.injection,
            "threads": session.n_threads,
            "turns": turns,
        }


def _plan(n_prompts: int, seconds: float, whole: list[Any], sweep: list[Any]) -> Iterator[tuple[str, int, list[Any]]]:
    """What to say, the prompt and the settings of each turn, as long as there is time; one turn always."""
    end = monotonic() + seconds
    for number in range(n_prompts):
        if number and monotonic() > end:
            return
        yield f"decoding prompt {number + 1} of {n_prompts}", number, whole
    for number in range(n_prompts if sweep else 0):
        if monotonic() > end:
            return
        first = number % len(sweep)  # no setting is always measured first
        yield f"trying settings on prompt {number + 1} of {n_prompts}", number, sweep[first:] + sweep[:first]


def _turn(session: Session, prompt: Sequence[int], max_tokens: int, settings: Sequence[Any]) -> dict[str, Any]:
    """One prompt plainly, then with the draft at each of ``settings``: what a ratio of speeds is made of."""
    from dspark_convert.bench.loop import time_drafted, time_plain

    shape = session.shape
    plain = time_plain(session, prompt, max_tokens)
    drafted = []
    for n_max, p_min in settings:
        # llama.cpp decodes only the slots that are asked for, and fewer slots are another block
        session.shape = replace(shape, block_size=n_max if shape.reads_anchor else n_max + 1)
        run = time_drafted(session, prompt, len(plain["tokens"]), p_min)
        drafted.append({"n_max": n_max, "p_min": p_min, **run})
    return {**plain, "drafted": drafted}


if __name__ == "__main__":
    run_child(run_bench)
