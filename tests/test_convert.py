"""From arguments to a path: the default name, and what is looked at first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dspark_convert.convert import Request, default_name, output_path, prepare
from dspark_convert.errors import InputError, UsageError
from dspark_convert.options import Options
from dspark_convert.plan import plan_for_directory
from dspark_convert.target import open_target_directory
from tests.checkpoints import Pair, snapshot


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Qwen3-8B", "dspark-Qwen3-8B-BF16.gguf"),
        ("Qwen3 8B (fine tune)", "dspark-Qwen3-8B-fine-tune-BF16.gguf"),
        ("../../etc/passwd", "dspark-etc-passwd-BF16.gguf"),
        ("a/b\\c:d\0e\nf", "dspark-a-b-c-d-e-f-BF16.gguf"),
        ("", "dspark-target-BF16.gguf"),
        ("...", "dspark-target-BF16.gguf"),
        ("\x1b[2J\u202e", "dspark-2J-BF16.gguf"),
        ("v1.5+x_y", "dspark-v1.5+x_y-BF16.gguf"),
        ("日本", "dspark-日本-BF16.gguf"),
        ("x" * 500, f"dspark-{'x' * 100}-BF16.gguf"),
        ("日" * 500, f"dspark-{'日' * 33}-BF16.gguf"),
    ],
    ids=ascii,
)
def test_default_name(name: str, file: str, pair: Pair) -> None:
    plan = plan_for_directory(pair.draft, open_target_directory(pair.target), Options())
    assert default_name(plan, name) == file
    assert len(file.encode()) < 255


def test_dflash2_is_called_what_llama_cpp_looks_for(pair: Pair) -> None:
    plan = plan_for_directory(pair.draft, open_target_directory(pair.target), Options())
    assert plan.draft is not None
    assert default_name(replace(plan, draft=replace(plan.draft, kind="dflash2")), "t") == "dflash-t-BF16.gguf"


def test_a_draft_without_any_markov_head_is_called_dflash(pair: Pair) -> None:
    pair.config({"markov_rank": 0, "enable_confidence_head": False, "sample_from_anchor": False})
    pair.tensors(lambda tensors: [tensors.pop(n) for n in list(tensors) if n.startswith(("markov_", "confidence_"))])
    assert prepare(request(pair)).path == Path("dflash-target-BF16.gguf")


def test_the_repositorys_name_beats_the_directorys(pair: Pair) -> None:
    cache = pair.root / "models--Qwen--Qwen3-8B" / "snapshots" / ("0" * 40)
    cache.parent.mkdir(parents=True)
    pair.target.rename(cache)
    prepared = prepare(request(pair, target_dir=cache))
    assert prepared.path == Path("dspark-Qwen3-8B-BF16.gguf")
    metadata = {kv.key: kv.value for kv in prepared.plan.metadata}
    assert metadata["general.base_model.0.repo_url"] == "https://huggingface.co/Qwen/Qwen3-8B"
    assert metadata["dspark.target.name"] == "Qwen/Qwen3-8B"


@pytest.fixture(scope="module")
def deepseek4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fixtures.deepseek4 import make_deepseek4

    return make_deepseek4(tmp_path_factory.mktemp("v4") / "DeepSeek-V4-Tiny", with_target=False)


def test_a_draft_inside_its_target_needs_no_other_directory(deepseek4: Path, pair: Pair) -> None:
    alone = Request(deepseek4, None, None, None, Options())
    prepared = prepare(alone)
    assert prepared.path == Path("dspark-DeepSeek-V4-Tiny-MXFP4_MOE.gguf")
    metadata = {kv.key: kv.value for kv in prepared.plan.metadata}
    assert metadata["dspark.target.name"] == "DeepSeek-V4-Tiny"
    assert len(metadata["tokenizer.ggml.tokens"]) == 512
    assert prepare(replace(alone, target_dir=deepseek4)).plan.metadata == prepared.plan.metadata
    with pytest.raises(InputError) as caught:  # one that is given wins
        prepare(replace(alone, target_dir=pair.target))
    assert "target-hidden-size" in {finding.rule for finding in caught.value.findings}


def test_a_draft_inside_its_target_without_the_tokenizer(deepseek4: Path, tmp_path: Path) -> None:
    for path in deepseek4.iterdir():
        if not path.name.startswith("tokenizer"):
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(UsageError, match="--target-model-dir"):
        prepare(Request(tmp_path, None, None, None, Options()))


def request(pair: Pair, **changes: object) -> Request:
    return replace(Request(pair.draft, pair.target, None, None, Options()), **changes)  # type: ignore[arg-type]


def test_preparing_writes_nothing(pair: Pair, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    prepared = prepare(request(pair, outfile=tmp_path / "out.gguf"))
    assert prepared.path == tmp_path / "out.gguf"
    assert snapshot(tmp_path) == before


def test_a_mistyped_draft_is_told_before_a_target_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the draft .*typo does not exist"):
        prepare(Request(tmp_path / "typo", None, None, None, Options()))


def test_the_directory_wins_over_the_gguf(pair: Pair) -> None:
    """With both, as for --verify, tokenizer and checks come from the directory."""
    pair.gguf.write_bytes(b"")
    prepared = prepare(request(pair, target_gguf=pair.gguf), dry_run=True)
    target = next(kv.value for kv in prepared.plan.metadata if kv.key == "dspark.target.name")
    assert target == "target"


def test_pre_tokenizer_cannot_be_named_for_a_gguf(pair: Pair) -> None:
    wanted = request(pair, target_dir=None, target_gguf=pair.gguf, options=Options(tokenizer_pre="qwen2"))
    with pytest.raises(UsageError, match="--target-model-dir"):
        prepare(wanted)


def test_dry_run_needs_no_target_and_no_place(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "out.gguf").write_text("mine")
    prepared = prepare(request(pair, target_dir=None, outfile=tmp_path / "out.gguf"), dry_run=True)
    assert prepared.plan.tensors
    assert prepare(request(pair, target_dir=None), dry_run=True).path is None


@pytest.mark.parametrize(("shared", "held"), [("omit", False), ("include", True)])
def test_the_plans_draft_says_which_tables_it_brings(shared: str, held: bool, pair: Pair) -> None:
    plan = plan_for_directory(pair.draft, None, Options(shared_tensors=shared))  # type: ignore[arg-type]
    assert plan.draft is not None
    assert plan.draft.to_json()["shared_tensors"] == {"token_embd": held, "output": held}


def test_a_tied_draft_may_bring_the_embeddings_alone(pair: Pair) -> None:
    pair.config({"tie_word_embeddings": True}, "target")
    pair.tensors(lambda tensors: tensors.pop("lm_head.weight"))
    plan = plan_for_directory(pair.draft, open_target_directory(pair.target), Options(shared_tensors="include"))
    assert plan.errors == ()
    assert [f.rule for f in plan.findings if f.severity == "warning"] == ["token-embd-alone"]
    assert plan.draft is not None
    assert plan.draft.to_json()["shared_tensors"] == {"token_embd": True, "output": False}


def test_output_that_looks_like_a_directory_has_to_be_one(tmp_path: Path) -> None:
    assert output_path(None) is None
    assert output_path(f"{tmp_path}/") == tmp_path
    assert output_path(f"{tmp_path}/new") == tmp_path / "new"
    for text in ("", f"{tmp_path}/new/"):
        with pytest.raises(UsageError, match="is no directory"):
            output_path(text)
