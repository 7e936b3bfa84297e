"""What comes out where a family's table is read and its slip shows with a checkpoint only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from docs.family_page import sections
from dspark_convert.errors import EnvironmentFault
from dspark_convert.plan import plan_for_directory
from dspark_convert.specs import load, match
from dspark_convert.specs.load import Field, Spec, load_specs
from fixtures.families import make
from tests.checkpoints import Pair
from tests.conftest import Convert


def use(monkeypatch: pytest.MonkeyPatch, *specs: Spec) -> None:
    monkeypatch.setattr(match, "load_specs", lambda: specs)


def with_field(spec: Spec, name: str, **changes: Any) -> Spec:
    def changed() -> Iterator[Field]:
        for field in spec.fields:
            yield replace(field, **changes) if field.name == name else field

    return replace(spec, fields=tuple(changed()))


def named(name: str) -> Spec:
    return next(spec for spec in load_specs() if spec.name == name)


def test_a_slip_ends_a_command_as_a_fault_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inspect: Convert
) -> None:
    draft = make("zlab_dflash", tmp_path / "draft")
    (tmp_path / "specs" / "backbones").mkdir(parents=True)
    (tmp_path / "specs" / "zephyr.toml").write_text('titel = "Zephyr"')
    monkeypatch.setattr(match, "load_specs", lambda: load.load_folder(tmp_path / "specs"))
    ended = inspect(draft)
    assert ended.code == 4
    assert "arch_specs/zephyr.toml: the format has no key 'titel'" in ended.err
    assert "report it" not in ended.err


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("hidden_size // rows('nothing') > 0", "division"),
        ("count(hidden_size) > 0", "has no len"),
    ],
)
def test_a_formula_that_fails_with_values(
    formula: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, with_field(named("zlab-dflash"), "sample_from_anchor", sources=(), formula=formula))
    with pytest.raises(EnvironmentFault) as told:
        plan_for_directory(make("zlab_dflash", tmp_path))
    assert str(told.value).startswith(
        f"arch_specs/zlab_dflash.toml: for this checkpoint the formula {formula!r} cannot be computed: "
    )
    assert says in str(told.value)


@pytest.mark.parametrize("changes", [{"formula": "logit_softcap > 0"}, {"formula": None, "optional": True}])
def test_a_table_that_leaves_a_field_without_value_writes_no_empty_file(
    changes: dict[str, Any], pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert: Convert
) -> None:
    use(monkeypatch, with_field(named("qwen3-deepspec"), "sample_from_anchor", sources=(), **changes))
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", tmp_path / "out.gguf")
    assert ended.code == 4
    assert "qwen3_deepspec.toml: [fields]: sample_from_anchor gets no value, although nothing is wrong" in ended.err
    assert not (tmp_path / "out.gguf").exists()


def test_of_a_family_that_is_shown_only_its_reasons_come_first_and_no_unknown_tensors(tmp_path: Path) -> None:
    draft = make("bonsai", tmp_path)
    tensors = load_file(draft / "model.safetensors")
    save_file(tensors | {"layers.0.gate": torch.zeros(2, 2)}, draft / "model.safetensors")
    findings = plan_for_directory(draft).findings
    assert findings[0].rule == "family-unsupported"
    assert "tensor-unknown" not in {f.rule for f in findings}


def test_a_known_family_s_unknown_tensor_is_told(tmp_path: Path) -> None:
    draft = make("zlab_dflash", tmp_path)
    tensors = load_file(draft / "model.safetensors")
    save_file(tensors | {"layers.0.gate": torch.zeros(2, 2)}, draft / "model.safetensors")
    assert [f.rule for f in plan_for_directory(draft).errors] == ["tensor-unknown"]


def test_an_unknown_draft_is_shown_the_way(tmp_path: Path, inspect: Convert) -> None:
    draft = make("zlab_dflash", tmp_path)
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | {"architectures": ["ZephyrSparkModel"]}))
    assert "docs/adding-a-family.md says what it takes to add another." in inspect(draft).err


def test_renamed_tensors_as_the_page_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = tuple(
        replace(spec, rename=(("draft.", ""), ("spark.w1", "markov_head.markov_w1.weight")))
        if spec.name == "zlab-dflash"
        else spec
        for spec in load_specs()
    )
    monkeypatch.setattr("docs.family_page.load_specs", lambda: specs)
    page = "\n".join(sections())
    assert "`draft.x` is read as `x`, `spark.w1` is read as `markov_head.markov_w1.weight`." in page
