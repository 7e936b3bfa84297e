"""What a conversion tells a reader."""

from __future__ import annotations

from pathlib import Path

from tests.checkpoints import Pair
from tests.conftest import Convert


def test_a_name_cannot_forge_a_line(pair: Pair, convert: Convert) -> None:
    name = "a.gguf\nerror: forged\x1b[2J"
    for more in ((), ("--dry-run", "--force")):
        ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", name, *more)
        assert ended.code == 0
        assert "a.gguf\\nerror: forged\\x1b[2J" in ended.out
        assert not any(line.startswith("error") for line in ended.out.splitlines())
    assert Path(name).is_file()
