"""Proves families anew and writes ``results.json``, from which the README's table is made.

python -m tests.families [NAME …]    all fixtures, or those named
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.families.proofs import MAKERS, RESULTS, prove, record, recorded


def main(names: list[str]) -> None:
    before, proofs = recorded(), {}
    for name in names or MAKERS:
        with tempfile.TemporaryDirectory() as root:
            proofs[name] = prove(name, Path(root))
        print(name, proofs[name])
    found = before | record(proofs, before)
    kept = {name: found[name] for name in MAKERS if name in found}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
