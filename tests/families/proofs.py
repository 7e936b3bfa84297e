"""What becomes of a tiny draft of every family; ``python -m tests.families`` writes it down for README.

A draft is converted to F32 with its tables left to the target where it may borrow them, run in llama.cpp beside the
tiny Qwen3 target, and compared with the PyTorch reference at every position of every block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_convert import __version__
from dspark_convert.convert import Request, prepare, write
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding
from dspark_convert.options import Options
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import validate
from dspark_convert.source.checkpoint import open_checkpoint
from dspark_convert.specs.match import match_spec
from fixtures import families
from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from fixtures.dflash2 import make_dflash2_pair
from fixtures.gemma4 import make_gemma4_pair
from fixtures.hf_pair import TinyPair
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair

RESULTS = Path(__file__).with_name("results.json")
PROMPTS = ("once upon a time there was", "the boat")
#: enough to leave the windows of the fixtures behind
MAX_TOKENS = 24


@dataclass(frozen=True)
class Proof:
    """``spec``: the family's name. ``refused``: why it is not converted, else empty, and the rest is known; ``lacks``:
    it is so because llama.cpp lacks something, not because of the checkpoint. ``unread``: keys of its config that are
    not explained.

    ``relative``: the largest difference of a logit over the deviation of its position's; ``confidence`` of a
    confidence, None without a head. ``lossless``: the text with the draft is that without. ``failed``: checks of
    ``dspark-validate`` that did not pass, "acceptance" apart, for a random draft knows nothing.
    """

    spec: str
    refused: str = ""
    lacks: bool = False
    unread: tuple[str, ...] = ()
    positions: int = 0
    relative: float | None = None
    confidence: float | None = None
    lossless: bool = False
    failed: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        return not self.refused and not self.failed and self.lossless and self.unread == MYSTERIES.get(self.spec, ())


def _family(name: str) -> Callable[[Path], TinyPair]:
    return lambda root: families.make_pair(name, root)


def _deepseek4(root: Path) -> TinyPair:
    make_deepseek4(root)
    return TinyPair(root, root)


#: rules of what cannot be mended in a checkpoint: a choice that llama.cpp does not offer is a config-value without fix
LACKS = ("family-unsupported", "tensor-unsupported", "config-unsupported", "config-value")

#: keys of which nobody says what they are for
MYSTERIES = {"mimo": ("dflash_config.backbone_rotary_base",)}

#: fixtures that tap what a Qwen3 target does not hand out: they draft for others
BEYOND = ("nemotron",)

#: fixture -> what makes its pair of checkpoints
MAKERS: dict[str, Callable[[Path], TinyPair]] = {
    "deepspec_qwen3": make_tiny_pair,
    **{name: _family(name) for name in families.NAMES if name not in BEYOND},
    "gemma4": lambda root: make_gemma4_pair(root, final_logit_softcapping=None),
    "gemma4_softcap": make_gemma4_pair,
    "dflash2": make_dflash2_pair,
    "dflash2_muse": lambda root: make_dflash2_pair(root, muse=True),
    "deepseek4": _deepseek4,
}


def prove(name: str, root: Path) -> Proof:
    """What becomes of the fixture ``name``, made in the empty directory ``root``."""
    pair = MAKERS[name](root)
    draft, target = root / "draft.gguf", root / "target.gguf"
    (write_deepseek4_gguf if name == "deepseek4" else write_target_gguf)(pair.target_dir, target)
    checkpoint = open_checkpoint(pair.draft_dir)
    spec = match_spec(checkpoint.config, checkpoint.names).name
    try:
        findings = convert(pair, draft)
    except InputError as refused:
        return _refusal(spec, refused)
    unread = tuple(finding.where for finding in findings if finding.rule == "config-unread")
    report = validate(draft, target, reference=pair.draft_dir, prompts=PROMPTS, max_tokens=MAX_TOKENS, timeout=120)
    return _judge(spec, unread, report)


def _refusal(spec: str, refused: InputError) -> Proof:
    errors = [finding for finding in refused.findings if finding.severity == "error"]
    lacks = [finding for finding in errors if finding.rule in LACKS and not finding.fix]
    said = (lacks or errors)[0].message if errors else str(refused)
    return Proof(spec, refused=said, lacks=bool(lacks))


def convert(pair: TinyPair, out: Path, **options: Any) -> tuple[Finding, ...]:
    """The plan's findings."""
    chosen = Options(**{"outtype": "f32", **options})
    request = Request(pair.draft_dir, pair.target_dir, None, out, chosen, force=True)
    prepared = prepare(request)
    write(prepared, request)
    return prepared.plan.findings


def _judge(spec: str, unread: tuple[str, ...], report: ValidationReport) -> Proof:
    failed = tuple(c.name for c in report.checks if c.status != "pass" and c.name != "acceptance")
    document = report.to_json()
    parity = document["parity"] or {"positions": [], "confidence_max_abs": None}
    worst = max((position["relative"] for position in parity["positions"]), default=None)
    return Proof(
        spec,
        unread=unread,
        positions=len(parity["positions"]),
        relative=worst,
        confidence=parity["confidence_max_abs"],
        lossless=bool(report.lossless),
        failed=failed,
    )


def record(proofs: Mapping[str, Proof], before: Mapping[str, Any]) -> dict[str, Any]:
    """``proofs`` as they are written down; ``since``: the version that proved a fixture first, and every one after."""
    kept = {name: entry.get("since") for name, entry in before.items()}
    return {
        name: {**asdict(proof), "since": (kept.get(name) or __version__) if proof.proved else None}
        for name, proof in proofs.items()
    }


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    return found
