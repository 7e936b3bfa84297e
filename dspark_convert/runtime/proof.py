"""What the checkpoint adds to a validation: does the file say, hold and compute what the checkpoint does?

``judge_files`` needs the two files alone, ``judge_run`` also what llama.cpp computed (``recording``).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.ggufio.reader import GGUFFile, open_gguf
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.pair.llama import offered_inputs
from dspark_convert.runtime.choices import UNREAD
from dspark_convert.runtime.departures import as_llama_computes, departures, describe_departure
from dspark_convert.runtime.parity import compare_blocks, compare_features
from dspark_convert.runtime.recording import Recording, read_recording
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.rounding import dequantise
from dspark_convert.runtime.stated import check_stated
from dspark_convert.runtime.tables import MASK_ROW
from dspark_convert.runtime.values import Values, compare_values
from dspark_convert.source.checkpoint import open_checkpoint
from dspark_convert.source.classify import describe, is_full_model
from dspark_convert.specs.load import flat_name
from dspark_convert.target import open_target_gguf

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.deepseek4_facts import StageFacts
    from dspark_convert.reference.draft import Reference
    from dspark_convert.reference.facts import Facts
    from dspark_convert.runtime.parity_verdict import Parity

#: checks of the run that a reference adds
RUN_CHECKS = ("features", "parity", "confidence")

#: begins the names of the draft within a DeepSeek-V4 checkpoint
STAGES = "mtp."

#: what the reference needs, all in the extra ``validate``
NEEDED = ("torch", "safetensors", "gguf")


def why_not_compared(directory: Path) -> str:
    """Why the checkpoint in ``directory`` cannot be computed here, in a few words; empty if it can."""
    if text := _missing_packages():
        return text
    try:
        _read_checkpoint(directory)
    except ValueError as fault:
        return str(fault).rstrip(".")
    return ""


def require_packages() -> None:
    """Raise EnvironmentFault unless there is PyTorch and what else a comparison needs."""
    if missing := _missing_packages():
        raise EnvironmentFault(f"the file cannot be compared with its checkpoint: {missing}.")


def _missing_packages() -> str:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return f"{', '.join(missing)} not installed; get all with: pip install 'dspark-convert[validate]'"


def _read_checkpoint(directory: Path) -> tuple[Facts, dict[str, torch.Tensor]]:
    """Facts and tensors (mapped, not read) of a checkpoint; ValueError if the reference cannot compute it."""
    from dspark_convert.reference.draft import expected_shapes, tie
    from dspark_convert.reference.facts import read_facts
    from dspark_convert.reference.tables import read_mask_row
    from dspark_convert.reference.weights import EMBED, HEAD, check_shapes, read_tensors

    facts = read_facts(directory)
    if facts.stages is not None:
        return facts, _read_stages(directory, facts, facts.stages)
    tensors = read_tensors(directory)
    tie(directory, tensors)
    shapes = expected_shapes(facts, tensors)
    # Its tables may be left to the target.
    wanted = {name: shapes[name] for name in shapes if name in tensors or name not in (EMBED, HEAD)}
    check_shapes(directory, tensors, wanted)
    if (row := read_mask_row(directory, facts)) is not None:
        tensors[MASK_ROW] = row
    return facts, tensors


def _read_stages(directory: Path, facts: Facts, stages: StageFacts) -> dict[str, torch.Tensor]:
    """The tensors of a DeepSeek-V4 checkpoint's draft, as stored; the target's two tables may be away."""
    from dspark_convert.reference.deepseek4_stages import expected_stage_shapes
    from dspark_convert.reference.deepseek4_weights import read_stage_tensors, values_shapes
    from dspark_convert.reference.weights import EMBED, HEAD, compare_shapes

    tensors = read_stage_tensors(directory)
    shapes = expected_stage_shapes(facts, stages)
    wanted = {name: shapes[name] for name in shapes if name in tensors or name not in (EMBED, HEAD)}
    compare_shapes(directory, values_shapes(directory, tensors, stages.tile), wanted)
    return tensors


def _stages_of(names: Collection[str]) -> list[str]:
    return [name for name in names if name.startswith(STAGES)]


def _needed(_config: Mapping[str, Any], names: Collection[str]) -> tuple[Collection[str], bool]:
    """Of a checkpoint that holds the target too, the draft's tensors; their shards have to be there."""
    stages = _stages_of(names)
    return stages or names, bool(stages)


def _require_sound(directory: Path) -> None:
    """Tell of files that are damaged or no draft as dspark-convert does, before the reference stumbles over them."""
    checkpoint = open_checkpoint(directory, needs=_needed)
    names = {flat_name(name) for name in checkpoint.names}
    if is_full_model(names) and not _stages_of(names):
        what = describe(checkpoint.config, names)
        raise InputError(f"the reference {directory} is {what}; give the checkpoint that the draft was made from.")
    if errors := [finding for finding in checkpoint.findings if finding.severity == "error"]:
        raise InputError(f"the reference {directory} is damaged.", findings=errors)


class Proof:
    """The checkpoint in ``directory`` against the file ``draft``.

    ``target_directory`` is the target's own checkpoint, or None. Raises EnvironmentFault without PyTorch,
    UsageError for a directory that does not exist, InputError for a checkpoint that the reference cannot
    compute.
    """

    def __init__(self, draft: Path, target: Path, directory: Path, target_directory: Path | None) -> None:
        require_packages()
        from dspark_convert.reference.target import TargetReference

        for path in filter(None, (directory, target_directory)):
            if not path.is_dir():
                raise UsageError(f"there is no directory {path}; name the one that holds the checkpoint.")
        self._paths = (draft, target)
        self._directory = directory
        _require_sound(directory)
        try:
            self.facts, self._tensors = _read_checkpoint(directory)
            if self.facts.stages and target_directory:
                raise UsageError(
                    "there is no PyTorch model of a DeepSeek-V4 target to compare its features with; leave"
                    " --target-reference out."
                )
            self._target = TargetReference.load(target_directory) if target_directory else None
        except ValueError as fault:
            raise InputError(str(fault)) from fault
        self._values = Values()
        self._offered = _offered_layers(target)

    def judge_files(self) -> list[Check]:
        """The checks "metadata" and "values"."""
        draft, target = self._paths
        with open_gguf(draft) as ours, open_gguf(target) as theirs:
            self._values = compare_values(ours, theirs, self._tensors, self.facts)
            self._target_types = {tensor.type for tensor in theirs.tensors if len(tensor.shape) > 1}
            checks = [check_stated(ours, self.facts), self._values.check()]
        self._proven = (checks[0].status != "fail", checks[1].status != "fail")
        return checks

    def layers_to_record(self) -> list[int]:
        """The layer inputs that the checkpoint's taps name, as far as the target offers them."""
        return sorted({tap for tap in self.facts.taps if tap in self._offered})

    def judge_run(
        self, directory: Path, n_prompts: int, drafts: int, file_taps: Sequence[int], on_phase: Callable[[str], None]
    ) -> tuple[list[Check], Parity]:
        """The checks "features", "parity" and "confidence" of the recordings in ``directory``.

        ``drafts``: the file's proposals a block.
        """
        from dspark_convert.runtime.noise import target_tolerance, tolerance_for
        from dspark_convert.runtime.parity_verdict import Parity, judge_parity

        recordings = [read_recording(directory, number) for number in range(n_prompts)]
        on_phase("computing the same in PyTorch")
        features = compare_features(recordings, file_taps, self.facts.taps, self._target)
        parity = Parity(
            facts=self.facts,
            tolerance=tolerance_for(self._values.multiplied, gelu=self.facts.gemma4 is not None),
            target_tolerance=target_tolerance(self._target_types),
            tokens=sum(len(recording.tokens) for recording in recordings),
            features=features,
            offered=self._offered,
            drafts=drafts,
            proven=self._proven,
        )
        if any(tap not in self._offered for tap in self.facts.taps):
            return judge_parity(parity, "the target does not offer the layers that the checkpoint taps"), parity
        try:
            with open_gguf(self._paths[0]) as draft:
                self._compute(parity, draft, recordings, on_phase)
        except ValueError as fault:
            return judge_parity(parity, f"it cannot be computed: {fault}"), parity
        return judge_parity(parity), parity

    def _compute(
        self, parity: Parity, draft: GGUFFile, recordings: Sequence[Recording], on_phase: Callable[[str], None]
    ) -> None:
        references = self._references(draft)
        held, *unrounded = compare_blocks(self._with_progress(recordings, on_phase), references)
        parity.held, parity.unrounded = held, unrounded[0] if unrounded else None
        if self.facts.stages and held.blocks and held.choices is None:
            parity.notes.append(UNREAD)
        for departure in departures(self.facts, self._causal(draft)):
            load = partial(self._load_held, draft)
            parity.notes.append(describe_departure(departure, recordings, references[0], load))

    def _references(self, draft: GGUFFile) -> list[Reference]:
        """The checkpoint as the file holds it, and as it is if that differs."""
        from dspark_convert.reference.weights import EMBED, HEAD

        values = self._values
        found = [self._load_held(draft)]
        if values.rounded:
            embed = None if EMBED in self._tensors else values.embed
            head = None if HEAD in self._tensors else values.head
            found.append(self._load(draft, embed=embed, head=head))
        return found

    def _load_held(self, draft: GGUFFile, **options: Any) -> Reference:
        """The checkpoint as ``draft`` holds it; experts that are too many to keep are read from it where they act."""
        values = self._values
        tensors = {tensor.name: tensor for tensor in draft.tensors}
        unkept = {name: partial(dequantise, draft, tensors[own], e) for name, (own, e) in values.unkept.items()}
        # Where rounding decides which experts or tokens are taken, it has to be the same on both sides; and a draft
        # that is published in four bits has no file that would be compared without.
        chooses = self.facts.stages is not None or self.facts.dflash2 is not None
        alike = chooses or GGMLType.NVFP4 in values.multiplied
        options |= {"weights": values.held, "roundings": values.inputs if alike else {}, "elsewhere": unkept}
        return self._load(draft, embed=values.embed, head=values.head, **options)

    def _load(self, draft: GGUFFile, **options: Any) -> Reference:
        from dspark_convert.reference.draft import Reference

        as_llama = as_llama_computes(self.facts, self._causal(draft))
        # A table of the file's has the mask token's own row, if the draft has one.
        own_row = draft.tensor("token_embd.weight") is None
        return Reference.load(self._directory, **{**as_llama, "own_mask_row": own_row, **options})

    @staticmethod
    def _causal(draft: GGUFFile) -> bool:
        return draft.metadata.get("dflash.attention.causal") is True

    @staticmethod
    def _with_progress(recordings: Sequence[Recording], on_phase: Callable[[str], None]) -> Any:
        for number, recording in enumerate(recordings, 1):
            on_phase(f"computing the same in PyTorch, prompt {number} of {len(recordings)}")
            yield recording


def _offered_layers(target: Path) -> range:
    """The layer inputs that llama.cpp hands out of this target."""
    model = open_target_gguf(target)
    return offered_inputs(model.architecture, model.n_layer or 0)
