"""The trained pair: a right file is accepted as PyTorch predicts, and a wrong one shows as a fall."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from dspark_convert.runtime.report import Acceptance, ValidationReport
from dspark_convert.runtime.validation import read_prompts, validate
from fixtures import train_pair
from fixtures.dspark_torch import DSpark
from fixtures.hf_pair import TinyPair
from fixtures.qwen3_torch import Qwen3
from fixtures.target_gguf import write_target_gguf
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, config, write_gguf

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(train_pair.__file__).with_name("pair")
PROMPTS = read_prompts(ROOT / "prompts.txt")
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    """The target in F32: its arithmetic is then PyTorch's, and a text never parts on a rounding."""
    return write_gguf(tmp_path_factory.mktemp("trained"), ROOT / "target", ROOT / "draft")


def run(pair: PairFiles, draft: Path | None = None) -> ValidationReport:
    return validate(draft or pair.draft, pair.target, prompts=PROMPTS, max_tokens=MAX_TOKENS, timeout=120)


def acceptance_of(report: ValidationReport) -> Acceptance:
    assert report.acceptance is not None
    assert report.lossless is True
    return report.acceptance


@pytest.fixture(scope="module")
def right(trained: PairFiles) -> Acceptance:
    report = run(trained)
    assert report.passed, report.checks
    return acceptance_of(report)


def test_first_and_last_position(right: Acceptance) -> None:
    assert right.share(0) >= 0.5
    assert right.share(6) >= 0.2


def test_acceptance_is_what_pytorch_predicts(trained: PairFiles) -> None:
    prompts, tokens = PROMPTS[:3], 33
    report = validate(trained.draft, trained.target, prompts=prompts, max_tokens=tokens, timeout=60)
    counted = acceptance_of(report)
    target, draft = Qwen3(config(trained.target_dir)), DSpark(config(trained.draft_dir))
    target.load_checkpoint(trained.target_tensors())
    draft.load_state_dict({name: tensor.float() for name, tensor in trained.draft_tensors().items()})
    pair = TinyPair(trained.target_dir, trained.draft_dir)
    predicted = train_pair.estimate(pair, target, draft, prompts, tokens - 1)
    assert counted.rounds == len(predicted.lengths)
    # PyTorch also counts what a text's last round drafts behind its end: at most 7 positions.
    for position in range(7):
        behind = predicted.drafted[position] - counted.drafted[position]
        assert 0 <= behind <= len(prompts)
        assert predicted.accepted[position] - behind <= counted.accepted[position] <= predicted.accepted[position]


def rotate_the_other_way(want: Expected) -> None:
    """q and k permuted per head as for NORM rotation, where llama.cpp rotates as NeoX."""
    head_dim = 32
    order = np.arange(head_dim).reshape(2, head_dim // 2).T.reshape(-1)
    for name, (kind, shape, data) in want.tensors.items():
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            rows = np.frombuffer(data, np.float32).reshape(-1, head_dim, shape[0])
            want.tensors[name] = (kind, shape, rows[:, order].tobytes())


def another_mask(want: Expected) -> None:
    want.kv["tokenizer.ggml.mask_token_id"] = ("UINT32", 1001)


def another_anchor(want: Expected) -> None:
    want.kv["dflash.sample_from_anchor"] = ("BOOL", False)


def swapped_layers(want: Expected) -> None:
    for name in list(want.tensors):
        if name.startswith("blk.0."):
            other = name.replace("blk.0.", "blk.2.")
            want.tensors[name], want.tensors[other] = want.tensors[other], want.tensors[name]


@pytest.mark.parametrize("change", [rotate_the_other_way, another_mask, another_anchor, swapped_layers])
def test_wrong_file_is_seen_in_acceptance(
    trained: PairFiles, right: Acceptance, change: Callable[[Expected], Any]
) -> None:
    wrong = acceptance_of(run(trained, trained.broken(change.__name__, change)))
    assert wrong.mean_accepted_length < right.mean_accepted_length - 0.5


def test_lost_tensor_is_refused(trained: PairFiles) -> None:
    report = run(trained, trained.broken("lost", lambda want: want.tensors.pop("blk.2.ffn_up.weight")))
    assert not report.passed
    assert report.checks[0].status == "fail"
    assert "blk.2.ffn_up.weight" in report.checks[0].detail


def test_draft_of_another_target_is_seen(trained: PairFiles, tmp_path: Path) -> None:
    """Same sizes and vocabulary, other weights: only running it shows that it does not fit."""
    tensors = load_file(trained.target_dir / "model.safetensors")
    from safetensors.torch import save_file

    other = tmp_path / "target"
    other.mkdir()
    for path in trained.target_dir.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    shuffled = {name: tensor.flip(0).contiguous() if "layers" in name else tensor for name, tensor in tensors.items()}
    save_file(shuffled, other / "model.safetensors", {"format": "pt"})
    write_target_gguf(other, tmp_path / "other.gguf")
    report = validate(trained.draft, tmp_path / "other.gguf", prompts=PROMPTS[:4], max_tokens=48, timeout=60)
    assert not report.passed
    assert [check.name for check in report.checks if check.status == "fail"] == ["acceptance"]


def test_committed_target_gguf_runs(trained: PairFiles) -> None:
    """The one in BF16 that lies in the repository, as users run it."""
    report = validate(trained.draft, ROOT / "target.gguf", prompts=PROMPTS, max_tokens=MAX_TOKENS, timeout=60)
    assert report.passed, report.checks
