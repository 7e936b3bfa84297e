"""A checkpoint directory: its config, every tensor's place, and what is wrong with its files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError, UsageError
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.source.hub_id import meant
from dspark_convert.source.jsonfile import read_object
from dspark_convert.source.mask_embedding import FILE_NAME, MaskEmbedding, read_mask_embedding
from dspark_convert.source.provenance import Provenance, provenance
from dspark_convert.source.safetensors_header import TensorRef, read_header, read_rows
from dspark_convert.words import listed, shown

#: longer ones no file system has
MAX_FILE_NAME_BYTES = 255
#: file names in a message
MAX_LISTED = 8


#: a matrix and numbers of its rows -> their bytes; raises InputError or EnvironmentFault
Rows = Callable[[TensorRef, Sequence[int]], list[bytes]]


@dataclass(frozen=True)
class Checkpoint:
    """``tensors`` maps the checkpoint's own names to places; nothing but headers was read.

    ``names`` are those of all tensors that the index lists (``indexed``), else of those found.
    ``fetched`` is False where the tensors' bytes are still on the hub: reading them raises InputError.
    ``rows`` reads some rows of a matrix, as ``read_rows`` does; None where they cannot be read.
    ``mask_embedding``: the row of a table that lies beside the weights, if one does.
    """

    root: Path
    config: dict[str, Any]
    tensors: dict[str, TensorRef]
    provenance: Provenance
    findings: tuple[Finding, ...]
    names: tuple[str, ...]
    indexed: bool
    fetched: bool = True
    rows: Rows | None = read_rows
    mask_embedding: MaskEmbedding | None = None

    @property
    def complete(self) -> bool:
        """Whether every file could be read: else a tensor that is missing may only be unread."""
        return not any(f.severity == "error" and f.rule.startswith("shard-") for f in self.findings)


def require_directory(path: Path, role: str) -> None:
    """Raise UsageError unless ``path`` is a directory; ``role`` says which argument it is."""
    if path.is_dir():
        return
    if not path.exists():
        raise UsageError(f"{role} {path} does not exist{meant(path)}.")
    hint = f"give its directory {path.parent}" if path.suffix == ".safetensors" else "give a directory"
    if path.suffix == ".gguf":
        hint = "give a GGUF of the target with --target-gguf"
    expected = "a checkpoint directory or a GGUF" if role == "the draft" else "a checkpoint directory"
    raise UsageError(f"{role} {path} is a file, expected {expected}: {hint}.")


def read_config(root: Path, role: str) -> dict[str, Any]:
    """config.json of ``root``; raises InputError that lists what is there instead."""
    path = root / "config.json"
    if not path.is_file():
        listing = listed(sorted(p.name for p in root.iterdir()), MAX_LISTED)
        raise InputError(
            f"{role} {root} has no config.json (it holds {listing or 'nothing'}); give a checkpoint directory."
        )
    return read_object(path)


#: (config, tensor names) -> those that are read, and whether the others may be a target's
Needs = Callable[[Mapping[str, Any], Collection[str]], tuple[Collection[str], bool]]


def _everything(_: Mapping[str, Any], names: Collection[str]) -> tuple[Collection[str], bool]:
    return names, False


def open_checkpoint(root: Path, sizes: Mapping[str, int] | None = None, needs: Needs = _everything) -> Checkpoint:
    """Read config and headers of the draft checkpoint in ``root``.

    ``needs`` chooses among the tensors of an index: files that hold none of those are not looked
    for. Without an index every file is read, and one whose number is missing may be the target's.

    ``sizes``: bytes of every shard, where only the headers of the shards lie there.
    File problems are collected as findings. Raises UsageError or InputError where there is
    nothing to go on: no directory, no readable config.json, no safetensors at all.
    """
    require_directory(root, "the draft")
    config = read_config(root, "the draft")
    shards, indexes = _weight_files(root)
    findings: list[Finding] = []
    if not shards and not indexes:
        other = sorted(p.name for p in root.iterdir() if p.suffix in {".bin", ".pt", ".pth", ".gguf"})
        have = (
            f"it has {', '.join(other)}; convert these to safetensors" if other else "it holds no weights; fetch them"
        )
        raise InputError(f"{root} has no *.safetensors file: {have}.")
    if len(indexes) > 1:
        names = ", ".join(p.name for p in indexes)
        findings.append(error("shard-index", names, f"there are {len(indexes)} index files: {names}.", "keep one"))
    claimed = claims_of(indexes[0], findings) if indexes else None
    wanted = shards
    if claimed is not None:
        needed, _ = needs(config, claimed)
        wanted = _wanted(root, claimed, set(needed), shards, findings)

    tensors: dict[str, TensorRef] = {}
    twice: dict[str, list[str]] = {}
    sound = set()
    for path in wanted:
        refs, problems = read_header(path, sizes[path.name] if sizes else None)
        findings += problems
        if not problems:
            sound.add(path.name)
        for ref in refs:
            if ref.name in tensors:
                twice.setdefault(f"{tensors[ref.name].path.name} and {path.name}", []).append(ref.name)
            tensors.setdefault(ref.name, ref)
    if claimed is None:
        _, embedded = needs(config, tensors)
        findings += _families(shards, embedded)
    if not any(f.rule == "shard-families" for f in findings):
        for files, both in twice.items():
            message = f"{_some(both)} in two files: {files}."
            findings.append(error("tensor-duplicate", both[0], message, "remove the stale file"))
    if claimed is not None:
        findings += _compare(claimed, tensors, sound)
    every = tuple(tensors if claimed is None else claimed)
    source = provenance(root, config)
    rows = None if sizes else read_rows
    mask = _mask_embedding(root, findings)
    return Checkpoint(root, config, tensors, source, tuple(findings), every, claimed is not None, not sizes, rows, mask)


def _mask_embedding(root: Path, findings: list[Finding]) -> MaskEmbedding | None:
    path = root / FILE_NAME
    if not path.exists():
        return None
    try:
        return read_mask_embedding(path)
    except InputError as fault:
        message = str(fault).replace(str(path), FILE_NAME)
        findings.append(error("mask-embedding", FILE_NAME, message, "fetch it again"))
        return None


def _weight_files(root: Path) -> tuple[list[Path], list[Path]]:
    """Shards and index files by name; hidden ones are litter, such as macOS's ``._`` files."""
    shards, indexes = root.glob("[!.]*.safetensors"), root.glob("[!.]*.safetensors.index.json")
    return sorted(shards), sorted(indexes)


def claims_of(index: Path, findings: list[Finding]) -> dict[str, str]:
    """Tensor name -> file name, as ``index`` says; what is no bare file name goes into ``findings``."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index} has no weight_map, expected an object of tensor names and file names.")
    claims: dict[str, str] = {}
    refused: dict[str, list[str]] = {}
    for tensor, file in weight_map.items():
        if _is_bare_name(file):
            claims[tensor] = file
        else:
            refused.setdefault(shown(file), []).append(tensor)
    for file, tensors in refused.items():
        message = f"{index.name} says that {_some(tensors)} in {file}, expected a bare file name in the same directory."
        findings.append(error("shard-index", tensors[0], message, "do not trust this checkpoint"))
    return claims


def _is_bare_name(file: Any) -> bool:
    """A name with a path in it would let a repository read files outside its own directory."""
    if not isinstance(file, str) or not 0 < len(file.encode("utf-8", "surrogatepass")) <= MAX_FILE_NAME_BYTES:
        return False
    return Path(file).name == file != ".." and "\0" not in file and "\\" not in file


def _some(tensors: list[str]) -> str:
    """Subject and verb: "tensor 'a' stands", "tensor 'a' and 3 more stand"."""
    more = len(tensors) - 1
    return f"tensor {tensors[0]!r} and {more} more stand" if more else f"tensor {tensors[0]!r} stands"


def _wanted(
    root: Path, claims: dict[str, str], needed: set[str], shards: list[Path], findings: list[Finding]
) -> list[Path]:
    names = sorted({claims[tensor] for tensor in needed if tensor in claims})
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        held = Counter(claims[tensor] for tensor in needed if tensor in claims)
        files = listed([f"{name} ({held[name]:,} tensor{'s' * (held[name] > 1)})" for name in missing], MAX_LISTED)
        in_all = len(set(claims.values()))
        of = f"{len(names):,} file{'s' * (len(names) > 1)}"
        if in_all > len(names):
            of += f" that hold{'s' * (len(names) == 1)} the draft (of {in_all:,} in all)"
        some = len(missing) < len(names)
        how_many = f"{len(missing):,} of the" if some else "the" if len(names) == 1 else "all"
        are = "is" if len(missing) == 1 else "are"
        message = f"{how_many} {of} {are} missing: {files}."
        findings.append(
            error(
                "shard-missing",
                listed(missing, MAX_LISTED),
                message,
                f"fetch {'it' if are == 'is' else 'them'} into the same directory",
            )
        )
    stray = sorted({p.name for p in shards} - set(claims.values()))
    if stray:
        where = listed(stray, MAX_LISTED)
        message = f"{where}: in the directory but not in the index, so not read."
        findings.append(warning("shard-unlisted", where, message, "remove what is stale"))
    return [root / name for name in sorted(set(names) - set(missing))]


def _compare(claims: dict[str, str], tensors: dict[str, TensorRef], sound: set[str]) -> list[Finding]:
    absent: dict[str, list[str]] = {}
    for tensor, file in claims.items():
        if file in sound and (tensor not in tensors or tensors[tensor].path.name != file):
            absent.setdefault(file, []).append(tensor)
    unlisted: dict[str, list[str]] = {}
    for tensor, ref in tensors.items():
        if tensor not in claims:
            unlisted.setdefault(ref.path.name, []).append(tensor)
    fix = "fetch index and shards of one revision"
    findings = []
    for file, names in absent.items():
        message = f"the index says that {_some(names)} in {file}, which is not so."
        findings.append(error("shard-index", names[0], message, fix))
    for file, names in unlisted.items():
        message = f"{_some(names)} in {file}, and the index does not list it there."
        findings.append(error("shard-index", names[0], message, fix))
    return findings


def _families(shards: list[Path], embedded: bool) -> list[Finding]:
    """Without an index, shards of two different splits must not be mixed, nor one be missing.

    ``embedded``: the draft lies among the target's tensors, so those missing may be the target's alone.
    """
    totals: dict[int, set[int]] = {}
    for path in shards:
        if match := re.search(r"-(\d{5})-of-(\d{5})\.safetensors$", path.name):
            totals.setdefault(int(match[2]), set()).add(int(match[1]))
    if len(totals) > 1:
        sets = " and ".join(f"-of-{total:05d}" for total in sorted(totals))
        message = f"the directory holds shards of several splits: {sets}."
        return [error("shard-families", sets, message, "remove the stale files")]
    for total, numbers in totals.items():
        if absent := sorted(set(range(1, total + 1)) - numbers):
            if embedded:
                message = f"{len(absent)} of {total} shards are not there; without an index they count as the target's."
                return [info("shard-absent", "*.safetensors", message)]
            message = f"shards missing: {len(absent)} of {total}: numbers {', '.join(map(str, absent[:20]))}."
            return [error("shard-missing", "*.safetensors", message, "fetch them into the same directory")]
    return []


def find_tensor(root: Path, name: str) -> TensorRef | None:
    """The place of one tensor of the checkpoint in ``root``, reading as few headers as possible.

    None where the checkpoint does not hold it or its files are damaged: for checks that are worth
    making only if the tensor is at hand.
    """
    shards, indexes = _weight_files(root)
    if indexes:
        try:
            claims = claims_of(indexes[0], [])
        except InputError:
            return None
        shards = [root / claims[name]] if name in claims and (root / claims[name]).is_file() else []
    for path in shards:
        refs, problems = read_header(path)
        for ref in refs:
            if ref.name == name and not problems:
                return ref
    return None
