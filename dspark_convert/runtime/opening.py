"""Load a pair and make it ready to decode prompts. Child process only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dspark_convert.errors import UsageError
from dspark_convert.runtime.anchor import check_anchor_rule
from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.child import Tell, limit_memory
from dspark_convert.runtime.injection import probe_injection
from dspark_convert.runtime.session import Session
from dspark_convert.runtime.shape import DraftShape


@contextmanager
def open_pair(
    job: Mapping[str, Any], tell: Tell, *, exact: bool = True, n_threads: int | None = None
) -> Iterator[tuple[Session, list[list[int]]]]:
    """A session that is ready to decode, and the tokens of the job's prompts; frees everything at the end.

    ``job``: library, target, draft (paths), shape (``DraftShape``), prompts, max_tokens, where wanted memory (bytes)
    and record (the draft's experts can then be looked at). ``exact`` and ``n_threads`` as in ``Session``. Raises
    UsageError for prompts that are too long.
    """
    tell("loading the library")
    llama = Llama(Path(job["library"]))
    shape = DraftShape(**job["shape"])
    limit_memory(job.get("memory"))
    files = Path(job["target"]), Path(job["draft"])
    with Session(llama, *files, shape, exact=exact, n_threads=n_threads) as session:
        tell("loading the target")
        session.load_target()
        tell("loading the draft")
        session.load_draft()
        prompts = [session.tokenize(text) for text in job["prompts"]]
        longest = max(map(len, prompts))
        n_positions = shape.positions_for(longest + job["max_tokens"])
        if n_positions > session.n_ctx_train:
            raise UsageError(
                f"the longest prompt ({longest} tokens) and --max-tokens {job['max_tokens']} need"
                f" {n_positions} positions, but the target was trained for {session.n_ctx_train}; shorten them."
            )
        tell("creating the contexts")
        session.open_contexts(n_positions, watch=bool(job.get("record")))
        tell("probing how the draft takes the target's features")
        probe_injection(session)
        check_anchor_rule(session)
        yield session, prompts
