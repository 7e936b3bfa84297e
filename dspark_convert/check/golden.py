"""Golden plans: what a conversion writes, but for values, as a JSON file that is kept beside the checks.

What changes nothing that is computed (names, origin, versions) is left out. Long texts and lists, of which the
vocabulary has some, stand as their count and hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_convert.diff.metadata import LABELS, KeyDiff, compare_metadata
from dspark_convert.diff.sides import Side, SideTensor
from dspark_convert.diff.tensors import by_name, compare_tensors
from dspark_convert.document import plain
from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import KV, GGMLType, ValueType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.words import count_up, listed, shown

if TYPE_CHECKING:
    from dspark_convert.plan import Plan

SCHEMA = "dspark-plan/1"
#: lists and texts up to here stand in full
SHORT_LIST, SHORT_TEXT = 64, 200
#: differences that are told
TOLD = 12


def golden_plan(plan: Plan) -> dict[str, Any]:
    """The document of ``plan``, which has a draft; shapes in ggml order, those of its sources as in PyTorch."""
    return {
        "schema": SCHEMA,
        "dialect": plan.dialect,
        "metadata": {
            kv.key: {"type": kv.type.name, **({"items": kv.item_type.name} if kv.item_type else {}), **_value(kv.value)}
            for kv in plan.metadata
            if not kv.key.startswith(LABELS)
        },
        "tensors": [
            {"name": job.name, "type": job.type.name, "shape": list(job.shape), "from": origin(job)}
            for job in plan.tensors
        ],
    }


def plan_text(document: Mapping[str, Any]) -> str:
    """The document as it is written and hashed: a key or a tensor a line, so that a diff of it is short."""
    lines = ["{", f'"schema": {json.dumps(document["schema"])},', f'"dialect": {json.dumps(document["dialect"])},']
    keys = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document["metadata"].items()]
    tensors = [json.dumps(tensor) for tensor in document["tensors"]]
    lines += ['"metadata": {', ",\n".join(keys), "},", '"tensors": [', ",\n".join(tensors), "]", "}"]
    return "\n".join(lines) + "\n"


def plan_hash(document: Mapping[str, Any]) -> str:
    """SHA-256 of ``plan_text``, in hexadecimal."""
    return hashlib.sha256(plan_text(document).encode()).hexdigest()


def read_plan(path: Path) -> dict[str, Any]:
    """The golden plan in ``path``; raises InputError if it is none."""
    try:
        document = json.loads(path.read_text("utf-8"))
        if document["schema"] != SCHEMA:
            raise InputError(f"{path} has the schema {shown(document['schema'])}, not {SCHEMA}: write it anew.")
        _side(path, document)
        _origins(document)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as fault:
        raise InputError(f"{path} is no golden plan ({type(fault).__name__}: {fault}); write it anew.") from fault
    assert isinstance(document, dict)  # noqa: S101 - it has members
    return document


def differences(path: Path, found: Mapping[str, Any]) -> list[str]:
    """How the plan ``found`` differs from the golden one in ``path``, a line each; raises as ``read_plan`` does."""
    golden = read_plan(path)
    a, b = _side(path, golden), _side(path, found)
    told = [f"layout: {a.dialect} -> {b.dialect}"] if a.dialect != b.dialect else []
    told += [_key(key) for key in compare_metadata(a, b)]
    for tensor in compare_tensors(by_name(a), by_name(b)):
        told.append(
            _change(tensor.name, *(None if s is None else f"{s.type} {list(s.shape)}" for s in (tensor.a, tensor.b)))
        )
    ours, theirs = _origins(golden), _origins(found)
    told += [
        _change(f"{name} is made from", ours[name], theirs[name])
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
    names = [list(ours), list(theirs)]
    if not told and names[0] != names[1]:
        told.append("the tensors stand in another order")
    more = len(told) - TOLD
    return told[:TOLD] + ([f"and {more} more differences"] if more > 0 else [])


def _key(key: KeyDiff) -> str:
    a, b = (
        None if kind is None else f"{shown(value)} ({kind})"
        for kind, value in zip(key.types, (key.a, key.b), strict=True)
    )
    if key.items is not None:
        at = listed([f"[{index}] {shown(x)} -> {shown(y)}" for index, x, y in key.items.first], 3)
        return (
            f"{key.key}: {key.items.lengths[0]} -> {key.items.lengths[1]} items, {key.items.different} different: {at}"
        )
    return _change(key.key, a, b)


def _change(name: str, a: str | None, b: str | None) -> str:
    if b is None:
        return f"- {name}: {a}"
    return f"+ {name}: {b}" if a is None else f"{name}: {a} -> {b}"


def origin(job: TensorJob) -> str:
    """What the tensor is made from, in one line: names (numbers that count up as {first-last}), type, shape."""
    if not job.sources:
        return f"literal, {hashlib.sha256(job.literal).hexdigest()}" if job.transform == "literal" else job.transform
    first = job.sources[0]
    what = _read(job.sources)
    if first.scales is not None:
        what += f", {first.encoding} with {_names([source.scales for source in job.sources])}"
    if first.tensor_scale is not None:
        what += f" and {_names([source.tensor_scale for source in job.sources])}"
    return what if job.transform == "copy" else f"{what}, {_done(job)}"


def _done(job: TensorJob) -> str:
    if job.transform == "unpair":
        return f"unpair heads of {job.head_dim}"
    if job.transform == "patch_row":
        return f"row {job.row} from {_read(job.inputs[1:])}"
    return job.transform


def _read(sources: Sequence[Source]) -> str:
    values = sources[0].values
    return f"{_names([source.values for source in sources])} {values.dtype} {list(values.shape)}"


def _names(refs: Sequence[TensorRef | None]) -> str:
    return counted([ref.name if ref is not None else "" for ref in refs])


def counted(names: Sequence[str]) -> str:
    """One name, or one with {first-last} in place of the number that counts up; else all of them."""
    span = count_up(names)
    return "{}{{{}-{}}}{}".format(*span) if span else ", ".join(names)


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return (
            {"value": value}
            if len(value) <= SHORT_TEXT
            else _digest(value.encode("utf-8", "surrogatepass"), len(value))
        )
    if isinstance(value, Sequence) or hasattr(value, "tolist"):
        items = plain(value)
        return {"value": items} if len(items) <= SHORT_LIST else _digest(json.dumps(items).encode(), len(items))
    return {"value": plain(value)}


def _digest(data: bytes, count: int) -> dict[str, Any]:
    return {"count": count, "sha256": hashlib.sha256(data).hexdigest()}


def _side(path: Path, document: Mapping[str, Any]) -> Side:
    """The document as one side of a diff."""
    return Side(
        path=path,
        kind="checkpoint",
        dialect=document["dialect"],
        draft=None,
        metadata={key: _compared(entry) for key, entry in document["metadata"].items()},
        tensors=tuple(_tensors(document["tensors"])),
        findings=(),
        kvs={
            key: KV(key, ValueType[e["type"]], None, ValueType[e["items"]] if "items" in e else None)
            for key, e in document["metadata"].items()
        },
    )


def _origins(document: Mapping[str, Any]) -> dict[str, str]:
    return {tensor["name"]: tensor["from"] for tensor in document["tensors"]}


def _compared(entry: Mapping[str, Any]) -> Any:
    return entry["value"] if "value" in entry else f"{entry['count']} with SHA-256 {entry['sha256']}"


def _tensors(tensors: Sequence[Mapping[str, Any]]) -> Iterator[SideTensor]:
    for tensor in tensors:
        kind, shape = GGMLType[tensor["type"]], tuple(int(size) for size in tensor["shape"])
        name = str(tensor["name"])
        yield SideTensor(name, kind.name, kind, shape, 0, TensorJob(name, kind, shape))
