"""What a CHECKS.toml says, and every mistake in it by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.check.checks import Check, Expected
from dspark_convert.check.reading import read_checks
from dspark_convert.errors import InputError, UsageError
from tests.check.places import run_checks, write

WHOLE = """\
[[check]]
name = "one"
source = "draft"
target = "target.gguf"
outtypes = ["bf16", "q8_0"]
experts = "q8_0"
shared_tensors = "include"
steps = ["plan", "convert", "inspect", "validate", "diff"]
prompts = "prompts.txt"

[check.expect]
block_size = 7
taps = [1, 2, 3]
tensors = 40
plan = "plan-{outtype}.json"
golden = "golden-{outtype}.gguf"
acceptance = [0.5, 0.25]
mean_accepted_length = 2
parity = 0.1
max_size = "2M"
warnings = ["config-unread"]

[[check]]
name = "hub"
source = "org/name@main"

[[check]]
name = "file"
source = "target.gguf"
dequantize = true
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "draft").mkdir()
    for name in ("target.gguf", "prompts.txt", *(f"{x}-{t}" for t in ("bf16", "q8_0") for x in ("plan", "golden"))):
        suffix = {"plan": ".json", "gold": ".gguf"}.get(name[:4], "")
        (tmp_path / f"{name}{suffix}").touch()
    return tmp_path


def mistakes(root: Path, text: str) -> list[tuple[str, int, str]]:
    path = write(root / "CHECKS.toml", text)
    with pytest.raises(InputError) as fault:
        read_checks(path)
    found = []
    for finding in fault.value.findings:
        file, _, line = finding.where.rpartition(":")
        assert file == str(path)
        assert finding.message.endswith(".") and finding.fix
        found.append((finding.rule, int(line), finding.message))
    return found


def test_all_that_can_be_said(root: Path) -> None:
    first, hub, file = read_checks(write(root / "CHECKS.toml", WHOLE))
    assert first == Check(
        name="one",
        source=root / "draft",
        steps=("plan", "convert", "inspect", "validate", "diff"),
        target=root / "target.gguf",
        target_gguf=root / "target.gguf",
        outtypes=("bf16", "q8_0"),
        shared_tensors="include",
        experts="q8_0",
        prompts=root / "prompts.txt",
        reference=root / "draft",
        expected=Expected(
            block_size=7,
            taps=(1, 2, 3),
            tensors=40,
            plan=str(root / "plan-{outtype}.json"),
            golden=str(root / "golden-{outtype}.gguf"),
            acceptance=(0.5, 0.25),
            mean_accepted_length=2.0,
            parity=0.1,
            max_size=2_000_000,
            warnings=frozenset({"config-unread"}),
        ),
        line=1,
    )
    assert [case.plan for case in first.cases] == [root / "plan-bf16.json", root / "plan-q8_0.json"]
    assert (str(hub.source), hub.steps, hub.line) == ("org/name@main", ("plan",), 23)
    assert (file.steps, file.is_checkpoint, file.dequantize) == (("inspect",), False, True)


def test_a_folder_on_the_hub(root: Path) -> None:
    text = '[[check]]\nname = "a"\nsource = "org/name/dflash@main"\n'
    (check,) = read_checks(write(root / "CHECKS.toml", text))
    assert (str(check.source), check.steps, check.is_checkpoint) == ("org/name/dflash@main", ("plan",), True)
    (root / "org").mkdir()
    with pytest.raises(InputError) as caught:
        read_checks(root / "CHECKS.toml")
    assert [finding.rule for finding in caught.value.findings] == ["checks-file"]


def test_a_gguf_on_the_hub(root: Path) -> None:
    text = '[[check]]\nname = "a"\nsource = "org/name:x.gguf@main"\n'
    (check,) = read_checks(write(root / "CHECKS.toml", text))
    assert (check.steps, check.is_checkpoint) == (("inspect",), False)


@pytest.mark.parametrize(
    ("old", "new", "rule", "line", "said"),
    [
        ("experts =", "expert =", "checks-key", 6, "'expert' is not known"),
        ("[check.expect]", "[check.expects]", "checks-key", 11, "'expects' is not known"),
        ("tensors = 40", "tensor = 40", "checks-key", 14, "'tensor' is not known"),
        ('name = "one"\n', "", "checks-key", 1, "no name"),
        ('source = "org/name@main"', "", "checks-key", 23, "no source"),
        ('name = "one"', "name = 1", "checks-value", 2, "must be a name"),
        ('name = "one"', 'name = "../up"', "checks-value", 2, "must be a name"),
        ('name = "hub"', 'name = "One"', "checks-value", 24, "another check's"),
        ('"bf16", ', '"bf17", ', "checks-value", 5, "must be a list of some of auto"),
        ('"bf16", ', '"q8_0", ', "checks-value", 5, "names each once"),
        ('"bf16", "q8_0"', "", "checks-value", 5, "must be a list"),
        ('"inspect", ', '"look", ', "checks-value", 8, "plan, convert, inspect, validate, diff"),
        ("block_size = 7", "block_size = true", "checks-value", 12, "a whole number"),
        ("taps = [1, 2, 3]", "taps = [1, -2]", "checks-value", 13, "a list of whole numbers"),
        ("acceptance = [0.5, 0.25]", "acceptance = [50]", "checks-value", 17, "a share from 0 to 1"),
        ("parity = 0.1", "parity = nan", "checks-value", 19, "a number above 0"),
        ("parity = 0.1", f"parity = 1{'0' * 400}", "checks-value", 19, "a number above 0"),
        ('"2M"', '"two"', "checks-value", 20, "bytes, or a text"),
        ("config-unread", "config-unreed", "checks-value", 21, "'config-unreed' is not"),
        ('"plan-{outtype}.json"', '"plan-bf16.json"', "checks-value", 15, "{outtype}"),
        ('"plan-{outtype}.json"', '"plans-{outtype}.json"', "checks-file", 15, "plans-bf16.json is not there"),
        ('source = "draft"', 'source = "draft/other"', "checks-file", 3, "'draft/other' is not there"),
        ('source = "draft"', 'source = "draught"', "checks-file", 3, "'draught' is not there"),
        ('"prompts.txt"', '"prompt.txt"', "checks-file", 9, "'prompt.txt' is not there"),
        ('target = "target.gguf"', 'target = "draft"', "checks-key", 1, "runs the target"),
        ('experts = "q8_0"', 'dequantize = "yes"', "checks-value", 6, "true or false"),
        ('experts = "q8_0"', 'dialect = "ds4"', "checks-value", 6, "cannot run ds4"),
        ('"plan", "convert", ', '"plan", ', "checks-key", 1, "look at a file"),
        ('"validate", ', "", "checks-key", 17, "looked at by the step validate"),
        ('golden = "golden-{outtype}.gguf"', "", "checks-key", 1, "the step diff needs"),
        ('experts = "q8_0"', "reference = false", "checks-value", 19, "parity needs a reference"),
        ('"org/name@main"', '"org/name:x.gguf"\nsteps = ["plan"]', "checks-value", 23, "only the header is read"),
    ],
)
def test_each_mistake_is_found_by_its_line(root: Path, old: str, new: str, rule: str, line: int, said: str) -> None:
    assert WHOLE.count(old)
    found = mistakes(root, WHOLE.replace(old, new, 1))
    assert any((r, n) == (rule, line) and said in message for r, n, message in found), found


def test_all_mistakes_are_told_together_in_order(root: Path) -> None:
    text = (
        WHOLE.replace("taps =", "tap =").replace('name = "one"', "name = 1").replace("[[check]]", "x = 1\n[[check]]", 1)
    )
    assert [(rule, line) for rule, line, _ in mistakes(root, text)] == [
        ("checks-key", 1),
        ("checks-value", 3),
        ("checks-key", 14),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[[check]\n", "is no TOML: .*at line 1, column 8"),
        (b"a = 1\nb = \xff", ":2: this is not UTF-8"),
        (b"a = " + b"[" * 100_000, "is no"),
        (b"a = 1" + b"0" * 5000, "thousands of digits"),
        (b"#" * (2**20 + 1), "larger than 1 MiB"),
        (b"check = 1", "1 mistake"),
        (b"", "1 mistake"),
    ],
)
def test_what_is_no_file_of_checks(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "CHECKS.toml"
    path.write_bytes(data)
    with pytest.raises(InputError, match=said):
        read_checks(path)


def test_no_file() -> None:
    with pytest.raises(UsageError, match="dspark-check init"):
        read_checks(Path("nothing.toml"))


def test_the_command_ends_with_3_and_the_lines(root: Path) -> None:
    path = write(root / "CHECKS.toml", WHOLE.replace("taps =", "tap ="))
    ended = run_checks(path)
    assert (ended.code, ended.out) == (3, "")
    assert f"{path}:13: 'tap' is not known [checks-key]\n  fix: did you mean taps?" in ended.err
    assert run_checks(root / "nothing.toml").code == 2
    write(path, '[[check]]\nname = "a"\nsource = "draft"\n')
    ended = run_checks(path, "--only", "b")
    assert ended.code == 2
    assert "--only b names none of the checks" in ended.err


@pytest.mark.parametrize("key", ["prompts", "reference"])
def test_what_only_validate_reads_is_not_passed_over(root: Path, key: str) -> None:
    named = "prompts.txt" if key == "prompts" else "draft"
    path = write(root / "CHECKS.toml", f'[[check]]\nname = "a"\nsource = "draft"\n{key} = "{named}"\n')
    with pytest.raises(InputError) as fault:
        read_checks(path)
    (finding,) = fault.value.findings
    assert (finding.rule, finding.where) == ("checks-key", f"{path}:4")
    assert finding.message == f"{key} is looked at by the step validate."
