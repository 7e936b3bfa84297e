"""Proves every family anew and writes ``results.json``, from which the README's table is made."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.families.proofs import MAKERS, RESULTS, prove, record, recorded


def main() -> None:
    proofs = {}
    for name in MAKERS:
        with tempfile.TemporaryDirectory() as root:
            proofs[name] = prove(name, Path(root))
        print(name, proofs[name])
    RESULTS.write_text(json.dumps(record(proofs, recorded()), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
