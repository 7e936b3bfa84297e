"""Run by a test in a child process: the same blocks with and without a look at the experts that they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.child import Tell, run_child
from dspark_convert.runtime.injection import probe_injection
from dspark_convert.runtime.session import Block, Session
from dspark_convert.runtime.shape import DraftShape

ANCHORS = (11, 300, 42)


def blocks(llama: Llama, job: dict[str, Any], *, watch: bool, looks: bool) -> list[Block]:
    with Session(llama, Path(job["target"]), Path(job["draft"]), DraftShape(**job["shape"])) as session:
        session.load_target()
        session.load_draft()
        session.open_contexts(100, watch=watch)
        probe_injection(session)
        session.clear()
        session.keep_features(True)
        prompt = session.tokenize("the cat sat on the mat")
        session.decode_target(prompt, 0)
        session.inject(session.features(len(prompt)), 0)
        return [session.draft_block(anchor, len(prompt), watch=looks) for anchor in ANCHORS]


def look(job: dict[str, Any], _tell: Tell) -> dict[str, Any]:
    llama = Llama(Path(job["library"]))
    ways = {"plain": (False, True), "idle": (True, False), "seen": (True, True)}
    return {
        name: [
            {
                "logits": block.logits.tobytes().hex(),
                "confidences": block.confidences.tobytes().hex() if block.confidences is not None else "",
                "experts": None if block.experts is None else block.experts.tolist(),
            }
            for block in blocks(llama, job, watch=watch, looks=looks)
        ]
        for name, (watch, looks) in ways.items()
    }


if __name__ == "__main__":
    run_child(look)
