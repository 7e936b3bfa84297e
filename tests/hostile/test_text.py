"""Names and texts that would drive a terminal, forge lines or command a CI runner: in every place, from every command.

Rows G30 and G38 of failures.md.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.ggufio.reader import open_gguf
from tests.checkpoints import Pair, zeros
from tests.conftest import Convert
from tests.draft_file import DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.hostile.raw import Raw

EVIL = "::set-output name=a::b\x1b[2J\x1b]0;x\x07\r\n::error::c\u202ed\u2028##[error]e##vso[f]; touch g `h` $(i)"


def assert_plain(*texts: str) -> None:
    """Nothing but lines of visible text, none of them a command."""
    for text in texts:
        for line in text.split("\n"):
            assert line.isprintable(), repr(line)
            assert not line.lstrip().startswith("::"), line
            assert not re.search(r"##[A-Za-z]*\[", line), line


def evil_draft(change: Callable[[DraftFile], None] | None = None) -> bytes:
    """A draft that says it wherever a text can stand."""
    file = DraftFile()
    for key in ("general.name", "dspark.source", "tokenizer.chat_template", "tokenizer.ggml.pre"):
        file.kv[key] = (STRING, EVIL, None)
    file.kv["dspark.target.name"] = file.kv["dspark.backbone"] = file.kv["dspark.rope_style"] = (STRING, EVIL, None)
    file.kv["dspark.markov_head_type"] = file.kv["dspark.revision"] = (STRING, EVIL, None)
    file.kv["tokenizer.ggml.model"] = (STRING, EVIL, None)
    file.kv["tokenizer.ggml.tokens"] = (ARRAY, [EVIL] * 80, STRING)
    file.kv["dflash.rope.scaling." + EVIL] = (STRING, EVIL, None)
    file.kv[EVIL] = (ARRAY, [EVIL, EVIL], STRING)
    file.tensors[EVIL[:40]] = ("F32", (8,))
    if change:
        change(file)
    return Raw(file).encode()


def put(key: str, value: Any, kind: int = STRING) -> Callable[[DraftFile], None]:
    return lambda file: file.kv.update({key: (kind, value, None)})


#: what else is wrong, so that every kind of message has to name something
DRAFTS: dict[str, Callable[[DraftFile], None] | None] = {
    "a draft": None,
    "architecture": put("general.architecture", EVIL),
    "architecture and type": lambda file: file.kv.update(
        {"general.architecture": (STRING, EVIL, None), "general.type": (STRING, EVIL, None)}
    ),
    "early layout": lambda file: file.kv.update(
        {key.replace("dflash.", "dspark."): value for key, value in file.kv.items()}
        | {"general.architecture": (STRING, "dspark", None)}
    ),
    "texts for numbers": lambda file: file.kv.update(
        {key: (STRING, EVIL, None) for key in file.kv if key.startswith("dflash.")}
    ),
    "text for a tensor": lambda file: file.tensors.update({EVIL[:30]: ("I64", (0, 3))}),
    "split": lambda file: file.kv.update(
        {
            "split.count": (STRING, EVIL, None),
            "split.no": (STRING, EVIL, None),
            "split.tensors.count": (STRING, EVIL, None),
        }
    ),
}


@pytest.fixture(params=DRAFTS)
def evil(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A draft whose name says it too."""
    directory = tmp_path / EVIL.replace("/", "")
    directory.mkdir()
    path = directory / f"{EVIL}.gguf"
    path.write_bytes(evil_draft(DRAFTS[request.param]))
    return path


@pytest.mark.parametrize("flags", [(), ("--tensors",), ("--deep",), ("--quiet",), ("--strict",), ("--verify-hash",)])
def test_g30_inspect(evil: Path, inspect: Convert, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (evil, evil.relative_to(evil.parent)):
        monkeypatch.chdir(evil.parent)
        ended = inspect(*flags, "--", name)
        assert_plain(ended.out, ended.err)
        assert ended.code in (0, 1, 3)


def test_g30_inspect_as_json(evil: Path, inspect: Convert) -> None:
    ended = inspect("--json", evil)
    assert ended.out.isascii()
    assert_plain(ended.out, ended.err)
    # and whoever decodes it gets the text itself
    assert json.dumps(EVIL)[1:-1] in json.dumps(ended.document)


def test_g30_inspect_compares(evil: Path, inspect: Convert, tmp_path: Path) -> None:
    good = tmp_path / "dspark-good.gguf"
    good.write_bytes(Raw().encode())
    for flags in (("--diff", evil, good), ("--diff", good, evil), ("--target", evil, good), ("--target", good, evil)):
        ended = inspect("--tensors", *flags)
        assert_plain(ended.out, ended.err)
        assert ended.code in (0, 1, 2, 3)


def test_g30_validate(evil: Path, validate: Convert) -> None:
    ended = validate(evil, "--target", evil)
    assert_plain(ended.out, ended.err)
    assert ended.code in (1, 2, 3)


def test_g30_convert(evil: Path, convert: Convert, pair: Pair) -> None:
    """A checkpoint for a target that is such a file, such a file for a target, and one into the other."""
    for args in (
        (pair.draft, "--target-gguf", evil),
        (evil, "--target-gguf", evil),
        (evil, "--target-model-dir", pair.target),
        (pair.draft, "--target-model-dir", pair.target, "-o", evil, "--force"),
        (evil, "--target-model-dir", pair.target, "--dry-run"),
    ):
        ended = convert(*args)
        assert_plain(ended.out, ended.err)
        assert ended.code in (0, 1, 2, 3, 4)
        assert not [path for path in Path().iterdir() if path.is_dir()]


def test_g30_convert_a_checkpoint_that_says_it(convert: Convert, pair: Pair) -> None:
    for key in ("architectures", "model_type", "rope_parameters", "markov_head_type", "hidden_act", EVIL):
        for value in (EVIL, [EVIL], {EVIL: EVIL}):
            pair.config({key: value})
            ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "x.gguf", "--force", "--strict")
            assert_plain(ended.out, ended.err)
            assert ended.code in (0, 1, 2, 3)
    pair.tensors(lambda tensors: tensors.update({EVIL: zeros("F32", 3)}))
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "y.gguf")
    assert_plain(ended.out, ended.err)
    assert ended.code == 3


@pytest.mark.parametrize(
    "name", ["x; touch g.gguf", "$(touch g) `h`.gguf", "it's \"$HOME\" ''.gguf", "-o.gguf", "a\\.gguf"]
)
def test_g38_the_command_line_is_one_for_a_shell(tmp_path: Path, inspect: Convert, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(Raw().encode())
    (line,) = [line for line in inspect(path).out.splitlines() if line.strip().startswith("llama-server")]
    assert str(path) in shlex.split(line)


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", "a\0b", "x; touch g", EVIL, "", "." * 300])
def test_g38_a_file_is_not_named_by_what_a_file_says(convert: Convert, pair: Pair, name: str) -> None:
    """The target's name becomes part of the output's."""
    data = pair.gguf.read_bytes()
    with open_gguf(pair.gguf) as file:
        entry = file.metadata.entries["general.name"]
        start, end = entry.start, entry.end
    padding = name.encode().ljust(end - start - 8, b" ")[: end - start - 8]
    pair.gguf.write_bytes(data[: start + 8] + padding + data[end:])
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--json")
    assert ended.code == 0
    (written,) = Path().iterdir()
    assert re.fullmatch(r"dspark-[\w.+-]+\.gguf", written.name)
