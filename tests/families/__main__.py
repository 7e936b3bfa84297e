"""Proves families anew and writes ``results.json``, from which the README's table is made.

python -m tests.families [NAME …]    all fixtures, or those named
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.families.proofs import MAKERS, RESULTS, prove, record, recorded


def main(names: list[str]) -> int:
    if odd := [name for name in names if name not in MAKERS]:
        there = ", ".join(MAKERS)
        print(f"no fixture is called {odd[0]}; name it in MAKERS of its module in fixtures/families ({there})")
        return 2
    before, proofs = recorded(), {}
    for name in names or MAKERS:
        with tempfile.TemporaryDirectory() as root:
            proof = prove(name, Path(root))
        print(name, proof)
        if proof.proved or proof.lacks:
            proofs[name] = proof
        else:
            print(f"{name} is not proved, and not written down; if no llama.cpp runs it, its table has to say so")
    found = before | record(proofs, before)
    kept = {name: found[name] for name in MAKERS if name in found}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 0 if len(proofs) == len(names or MAKERS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
