"""A second opinion: does xllamacpp's own server, with the same files, write and accept the same?

It shares nothing with the decoding loop here but the library: it reads the draft's metadata, builds the blocks,
takes the features and verifies by its own code.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault
from dspark_convert.pair.llama import spec_type
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import Library
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.shape import DraftShape, context_size

WORKER = ("-P", "-m", "dspark_convert.runtime.server_worker")

#: share of the drafts that may be judged otherwise without anything being wrong: where the draft's two best logits
#: are as good as equal, the order of additions decides. On F32, BF16 and Q8_0 files none was.
ROUNDING = 0.02


@dataclass(frozen=True)
class Counts:
    """Drafts proposed and accepted while texts were written; ``behind`` more of them behind a text's end."""

    drafted: int = 0
    accepted: int = 0
    behind: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.drafted + other.drafted, self.accepted + other.accepted, self.behind + other.behind)


def find_package(library: Library) -> Path:
    """The directory of the xllamacpp package: the library's own if it is one of that, else the installed one.

    Raises EnvironmentFault if there is none.
    """
    if library.path.name.startswith("xllamacpp") and (library.path.parent / "__init__.py").is_file():
        return library.path.parent
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise EnvironmentFault(
            "--server asks the server of the Python package xllamacpp, which is not installed; install it with:"
            " pip install 'dspark-convert[validate]'."
        )
    return Path(spec.origin).parent


def ask_second_opinion(
    job: Mapping[str, Any],
    package: Path,
    run: Mapping[str, Any],
    *,
    timeout: float,
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> Check:
    """Have the server in ``package`` answer the prompts of ``job`` and compare it with what ``run`` did.

    ``job`` and ``run``: what ``worker.run_pair`` was given and returned.
    """
    shape = DraftShape(**job["shape"])
    longest = max(entry["prompt_tokens"] for entry in run["runs"])
    question = {
        "library": str(package),
        "package": str(package),
        "type": spec_type(shape.kind),
        "n_draft": shape.drafts_per_block,
        "n_ctx": context_size(shape.positions_for(longest + job["max_tokens"])),
        **{key: job[key] for key in ("target", "draft", "prompts", "max_tokens", "memory")},
    }
    outcome = run_job(question, timeout=timeout, on_phase=on_phase, arguments=WORKER)
    if outcome.result is None:
        return Check("server", "fail", outcome.fault)
    return judge_answers(run["runs"], outcome.result["answers"], job["max_tokens"])


def predict_counts(run: Mapping[str, Any], max_tokens: int) -> Counts:
    """What the server counts if it drafts as ``run`` did.

    It never proposes more tokens than may still be written behind the next one, so that the last rounds of a
    text that is cut at ``max_tokens`` are shorter than here, where rounds are whole. What is accepted behind a
    token that ends the text some builds count and others do not.
    """
    counts = Counts()
    written, length = 1, len(run["drafted"])
    for entry in run["rounds"]:
        if written >= length:
            break
        room = min(len(entry["drafts"]), max_tokens - written - 1)
        taken = min(entry["accepted"], room)
        written += taken + 1
        behind = max(0, written - length)
        counts += Counts(room, taken - behind, behind)
    return counts


def judge_answers(runs: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]], max_tokens: int) -> Check:
    """Whether the server wrote the same texts and accepted as many drafts while it did.

    As in ``verdict.judge_lossless``, which has judged the texts of ``runs``, two of them may part where the
    target's best two logits are closer than its noise; the counts say nothing then.
    """
    noise = max((run["noise"] for run in runs), default=0.0)
    here, there = Counts(), Counts()
    ties = 0
    for number, (run, answer) in enumerate(zip(runs, answers, strict=True), 1):
        at = _parting(run["drafted"], answer["tokens"], max_tokens)
        if run["plain"] != run["drafted"]:
            ties += 1
        elif at is None:
            here += predict_counts(run, max_tokens)
            there += Counts(answer["drafted"], answer["accepted"])
        elif at < len(run["gaps"]) and run["gaps"][at] < noise:
            ties += 1
        else:
            detail = f"xllamacpp's server writes another text for prompt {number} from token {at} on"
            return Check("server", "fail", detail)
    also = f" (and {here.behind} behind the texts' ends)" if here.behind else ""
    said = (
        f"xllamacpp's server accepted {there.accepted} of {there.drafted} drafts, this run {here.accepted}{also} of"
        f" {here.drafted}"
    )
    off = max(here.accepted - there.accepted, there.accepted - here.accepted - here.behind)
    if max(off, abs(there.drafted - here.drafted)) > ROUNDING * here.drafted:
        return Check("server", "fail", f"{said}: one of the two does not draft as the file says")
    same = f"{len(runs) - ties} of {len(runs)} texts are the same"
    return Check("server", "pass", f"{said}; {same}{', the others part on near-ties' if ties else ''}")


def _parting(ours: Sequence[int], theirs: Sequence[int], max_tokens: int) -> int | None:
    """Where the two texts part; None if they are the same. The server leaves the token that ends a text out."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if at is not None or len(ours) == len(theirs):
        return at
    ended = len(ours) < max_tokens and len(ours) == len(theirs) + 1
    return None if ended else min(len(ours), len(theirs))
