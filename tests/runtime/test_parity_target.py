"""--target-reference with another model's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.errors import InputError
from dspark_convert.runtime.validation import validate
from tests.runtime.pairs import PairFiles, make_random_pair

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_checkpoint_that_cannot_read_the_tokens(random_pair: PairFiles, tmp_path: Path) -> None:
    larger = make_random_pair(tmp_path, vocab_size=1024)
    with pytest.raises(InputError, match="--target-reference is not that of the target"):
        validate(
            larger.draft,
            larger.target,
            reference=larger.draft_dir,
            target_reference=random_pair.target_dir,
            prompts=["one", "two"],
            max_tokens=24,
        )
