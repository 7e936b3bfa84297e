"""Run by a test in a child process: decode with the draft and report everything that a session sees."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.runtime.binding import Llama
from dspark_convert.runtime.decode import decode_plain, decode_with_draft, measure_noise
from dspark_convert.runtime.injection import probe_injection
from dspark_convert.runtime.session import Session
from dspark_convert.runtime.shape import DraftShape


def record(job: dict[str, Any]) -> dict[str, Any]:
    shape = DraftShape(**job["shape"])
    llama = Llama(Path(job["library"]))
    with Session(llama, Path(job["target"]), Path(job["draft"]), shape) as session:
        session.load_target()
        session.load_draft()
        session.open_contexts(job["n_positions"])
        protocol = probe_injection(session)
        session.watched = tuple(session.taps)
        prompt = session.tokenize(job["prompt"])
        plain = decode_plain(session, prompt, job["n_tokens"])
        noise = measure_noise(session, prompt, plain)
        run = decode_with_draft(session, prompt, job["n_tokens"], record=job["n_tokens"])
        rounds = []
        for entry in run.rounds:
            assert entry.block is not None
            assert entry.features is not None
            confidences = entry.block.confidences
            rounds.append(
                {
                    "position": entry.position,
                    "anchor": entry.anchor,
                    "drafts": entry.drafts,
                    "wanted": entry.wanted,
                    "accepted": entry.accepted,
                    "logits": entry.block.logits.tolist(),
                    "confidences": None if confidences is None else confidences.tolist(),
                    "features": entry.features.tolist(),
                }
            )
        prompt_features = run.watched[0].reshape(len(prompt), -1)
        return {
            "protocol": protocol,
            "taps": session.taps,
            "prompt": prompt,
            "plain": plain.tokens,
            "gaps": [plain.gap(index) for index in range(len(plain.tokens))],
            "plain_logits": plain.logits.tolist(),
            "noise": noise,
            "tokens": run.tokens,
            "prompt_features": prompt_features.tolist(),
            "rounds": rounds,
        }


if __name__ == "__main__":
    asked = json.loads(sys.stdin.readline())
    try:
        print(json.dumps({"result": record(asked)}), flush=True)
    except InputError as fault:
        print(json.dumps({"error": {"kind": "input", "message": str(fault)}}), flush=True)
