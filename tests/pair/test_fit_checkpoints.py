"""A draft that is still a checkpoint, side by side with its target: by the plan of its conversion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.pair.fit import Fit
from dspark_convert.pairing import inspect_elsewhere
from dspark_convert.remote import Silent, open_target
from tests.checkpoints import Pair
from tests.pair.test_fit import marks


def of_directory(pair: Pair, target: Path) -> tuple[Fit, list[tuple[str, str]]]:
    _, fit = inspect_elsewhere(pair.draft, None, open_target(target, Silent()), Silent())
    assert fit is not None
    return fit, [(finding.rule, finding.severity) for finding in fit.findings]


@pytest.mark.parametrize("which", ["target", "target.gguf"])
def test_a_checkpoint_that_fits(which: str, pair: Pair) -> None:
    fit, found = of_directory(pair, pair.root / which)
    assert (fit.verdict, found, marks(fit)) == ("fits", [], {})
    table = {field.name: field.draft for field in fit.fields}
    assert table["tokens"] == "(the target's)"


@pytest.mark.parametrize(
    ("change", "rule", "verdict"),
    [
        ({"hidden_size": 64}, "target-hidden-size", "does not fit"),
        ({"vocab_size": 600}, "target-vocabulary", "does not fit"),
        ({"num_hidden_layers": 3}, "target-layers", "does not fit"),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, "target-rope-base", "fits with remarks"),
        ({"model_type": "mamba2"}, "target-untappable", "fits with remarks"),
        ({"max_position_embeddings": 10**6}, "target-context", "fits"),
    ],
)
def test_other_directories_as_target(change: dict[str, Any], rule: str, verdict: str, pair: Pair) -> None:
    pair.config(change, "target")
    fit, found = of_directory(pair, pair.target)
    assert rule in [name for name, _ in found]
    assert fit.verdict == verdict


def test_directory_without_a_tokenizer(pair: Pair) -> None:
    (pair.target / "tokenizer.json").unlink()
    fit, found = of_directory(pair, pair.target)
    assert found == [("target-tokens-unknown", "warning")]
    assert fit.verdict == "fits with remarks"


def test_a_tokenizer_beside_the_draft_is_compared(pair: Pair) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (pair.draft / name).write_bytes((pair.target / name).read_bytes())
    assert of_directory(pair, pair.gguf)[1] == []
    path = pair.draft / "tokenizer.json"
    model = json.loads(path.read_text())
    first, second = list(model["model"]["vocab"])[:2]
    model["model"]["vocab"][first], model["model"]["vocab"][second] = 1, 0
    path.write_text(json.dumps(model))
    fit, found = of_directory(pair, pair.gguf)
    assert found == [("target-tokens", "error")]
    assert fit.findings[0].message.startswith("2 tokens differ, the first is 0: '")


def test_the_card_of_a_draft_names_its_target(pair: Pair) -> None:
    (pair.draft / "README.md").write_text("---\nbase_model: acme/Other-8B\n---\n")
    assert of_directory(pair, pair.gguf)[1] == [("target-name", "warning")]
    (pair.draft / "README.md").write_text("---\nbase_model: acme/target\n---\n")
    assert of_directory(pair, pair.gguf)[1] == []


def test_another_model_of_the_same_shape_shows_in_its_embeddings(pair: Pair) -> None:
    from tests.checkpoints import zeros

    pair.tensors(lambda tensors: tensors.update({"model.embed_tokens.weight": zeros("BF16", 512, 128)}), "target")
    fit, found = of_directory(pair, pair.target)
    assert (("shared-differs", "error") in found, fit.verdict) == (True, "does not fit")
