"""What a CHECKS.toml says, as data: the checks, what they expect, and the cases that they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dspark_convert.options import Dialect, Experts, Outtype, SharedTensors

#: plan      plan the conversion, by headers alone
#: convert   write the file into a temporary directory
#: inspect   look at every value of the file, as dspark-inspect --strict --deep
#: validate  run the file with its target in llama.cpp, compared with its checkpoint where that is a directory
#: diff      compare the file with a golden one, values too
Step = Literal["plan", "convert", "inspect", "validate", "diff"]
STEPS: tuple[Step, ...] = ("plan", "convert", "inspect", "validate", "diff")

#: stands for the outtype in the path of a golden plan or file
PLACE = "{outtype}"


@dataclass(frozen=True)
class Expected:
    """None where the file says nothing.

    ``taps``: the target's layers whose inputs the draft reads. ``acceptance``: the smallest share of accepted of
    proposed tokens per position. ``parity``: the largest difference of logits, in standard deviations of them.
    ``max_size``: bytes of the tensors. ``warnings``: rules whose warnings are no failure.
    """

    block_size: int | None = None
    taps: tuple[int, ...] | None = None
    tensors: int | None = None
    plan: str | None = None
    plan_sha256: str | None = None
    golden: str | None = None
    acceptance: tuple[float, ...] = ()
    mean_accepted_length: float | None = None
    parity: float | None = None
    max_size: int | None = None
    warnings: frozenset[str] = frozenset()


def is_gguf(source: Path) -> bool:
    """Whether it is a GGUF, here or on the hub (``org/name:file.gguf@revision``)."""
    return not source.is_dir() and str(source).partition("@")[0].endswith(".gguf")


@dataclass(frozen=True)
class Check:
    """One ``[[check]]``; paths are absolute, or spell hub ids (``source.hub_id``).

    ``target`` gives the tokenizer and is compared with the draft; ``target_gguf`` is what runs it (None: nothing).
    ``reference``: the checkpoint that the running file is compared with.
    ``line``: where it begins in the file.
    """

    name: str
    source: Path
    steps: tuple[Step, ...]
    target: Path | None = None
    target_gguf: Path | None = None
    outtypes: tuple[Outtype, ...] = ("auto",)
    dialect: Dialect = "dflash"
    shared_tensors: SharedTensors = "omit"
    experts: Experts = "keep"
    dequantize: bool = False
    prompts: Path | None = None
    reference: Path | None = None
    expected: Expected = Expected()
    line: int = 1

    @property
    def is_checkpoint(self) -> bool:
        return not is_gguf(self.source)

    @property
    def cases(self) -> Iterator[Case]:
        for outtype in self.outtypes:
            yield Case(self, outtype)


@dataclass(frozen=True)
class Case:
    """A check with one of its outtypes: what is run, cached and reported."""

    check: Check
    outtype: Outtype

    @property
    def plan(self) -> Path | None:
        """The golden plan."""
        path = self.check.expected.plan
        return None if path is None else Path(path.replace(PLACE, self.outtype))

    @property
    def golden(self) -> Path | None:
        """The golden file."""
        path = self.check.expected.golden
        return None if path is None else Path(path.replace(PLACE, self.outtype))

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Everything on this machine that the results depend on; directories as a whole."""
        check = self.check
        named = (check.source, check.target, check.target_gguf, check.prompts, self.plan, self.golden, check.reference)
        return tuple(dict.fromkeys(path for path in named if path is not None and path.is_absolute() and path.exists()))

    @property
    def on_hub(self) -> tuple[str, ...]:
        """The hub ids among its inputs."""
        named = (self.check.source, self.check.target)
        return tuple(str(path) for path in named if path is not None and not path.is_absolute())
