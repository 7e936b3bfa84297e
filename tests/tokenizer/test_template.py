from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from tests.tokenizer.making import read, rules, save, tokenizer, values

NAMED = [
    {"name": "tool-use", "template": "tools"},
    {"name": "default", "template": "plain"},
    {"name": "rag", "template": "documents"},
]


def templates(directory: Path) -> dict[str, Any]:
    return {key: value for key, value in values(read(directory)).items() if key.startswith("chat_template")}


def test_none(tmp_path: Path) -> None:
    assert templates(save(tmp_path, tokenizer(), {})) == {}


def test_in_the_config(tmp_path: Path) -> None:
    assert templates(save(tmp_path, tokenizer(), {"chat_template": "{{ x }}"})) == {"chat_template": "{{ x }}"}


def test_in_a_file_of_its_own(tmp_path: Path) -> None:
    import gguf

    directory = save(tmp_path, tokenizer(), {"bos_token": None})
    (directory / "chat_template.jinja").write_bytes("a\r\nü {{ x }}".encode())
    assert templates(directory) == {"chat_template": "a\nü {{ x }}"}
    assert gguf.SpecialVocab(directory).chat_template == "a\nü {{ x }}"


def test_in_a_file_without_any_config(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer())
    (directory / "chat_template.jinja").write_text("x")
    assert templates(directory) == {"chat_template": "x"}


def test_in_json(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(), {"chat_template": None})
    (directory / "chat_template.json").write_text('{"chat_template": "j"}')
    assert templates(directory) == {"chat_template": "j"}


def test_the_config_wins_over_files_as_in_gguf_py(tmp_path: Path) -> None:
    import gguf

    directory = save(tmp_path, tokenizer(), {"chat_template": "config"})
    (directory / "chat_template.jinja").write_text("file")
    assert templates(directory) == {"chat_template": "config"}
    assert gguf.SpecialVocab(directory).chat_template == "config"


def test_several_are_written_as_gguf_py_writes_them(tmp_path: Path) -> None:
    import gguf

    directory = save(tmp_path, tokenizer(), {"chat_template": NAMED})
    writer = gguf.GGUFWriter(None, "llama")
    writer.add_chat_template(NAMED)
    theirs = {k: v.value for k, v in writer.kv_data[0].items() if k.startswith("tokenizer.")}
    ours = {f"tokenizer.{k}": v for k, v in templates(directory).items()}
    assert list(ours) == list(theirs)
    assert sorted(theirs.pop("tokenizer.chat_templates")) == sorted(ours.pop("tokenizer.chat_templates"))
    assert ours == theirs
    assert ours["tokenizer.chat_template.tool_use"] == "tools"


def test_several_in_files(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(), {})
    (directory / "chat_template.jinja").write_text("plain")
    (directory / "additional_chat_templates").mkdir()
    for name in ("rag", "code"):
        (directory / "additional_chat_templates" / f"{name}.jinja").write_text(name)
    assert templates(directory) == {
        "chat_template.code": "code",
        "chat_template.rag": "rag",
        "chat_templates": ["code", "rag"],
        "chat_template": "plain",
    }


@pytest.mark.parametrize("template", [5, {"a": "b"}, ["x"], [{"name": "x"}], [{"template": "x"}]])
def test_no_text_is_an_error_that_tells_how_to_go_without(tmp_path: Path, template: Any) -> None:
    directory = save(tmp_path, tokenizer(), {"chat_template": template})
    with pytest.raises(InputError, match=r"neither a text nor a list of named texts; .*--no-chat-template"):
        read(directory)
    assert "tokenizer.chat_template" not in {kv.key for kv in read(directory, chat_template=False).kvs}


@pytest.mark.parametrize(
    ("template", "rule", "words"),
    [
        ("{% for x in ().__class__.__base__.__subclasses__() %}", "chat-template-attribute", "__class__"),
        ("{{ x['__globals__'] }}", "chat-template-attribute", "__globals__"),
        ("{{ x | attr('y') }}", "chat-template-attribute", "| attr"),
        ("{{ x['__ｃlass__'] }}", "chat-template-attribute", "__ｃlass__"),
        ("a\u200bb", "chat-template-control", "U+200B at 1"),
        ("a\x1b[2Jb", "chat-template-control", "U+001B at 1"),
        ("a\u202eb", "chat-template-control", "U+202E at 1"),
        ("{{ messages }}\r\n\t__ __init", None, ""),
    ],
)
def test_what_no_template_needs_is_a_warning(tmp_path: Path, template: str, rule: str | None, words: str) -> None:
    result = read(save(tmp_path, tokenizer(), {"chat_template": template}))
    assert [r for r in rules(result) if r != "tokenizer-padding"] == ([rule] if rule else [])
    if rule:
        assert words in result.findings[-1].message
        assert result.findings[-1].severity == "warning"


def test_half_a_surrogate_pair_and_bad_bytes_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="half a surrogate pair at character 1"):
        read(save(tmp_path, tokenizer(), {"chat_template": "a\ud800"}))
    directory = save(tmp_path / "b", tokenizer(), {})
    (directory / "chat_template.jinja").write_bytes(b"ab\xff")
    with pytest.raises(InputError, match=r"chat_template.jinja is not UTF-8 text \(byte 2\)"):
        read(directory)
