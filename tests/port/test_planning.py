"""A draft GGUF ported: bytes and meaning, against the oracle's files and conversions of the same checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import gguf
import jsonschema
import numpy as np
import pytest

from tests import oracle
from tests.checkpoints import Pair, Tensors
from tests.conftest import Convert, Ended
from tests.old_files import MASK, bare, early, fork, ik, prism, write_plain
from tests.oracle import Expected, read

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "convert-1.json").read_text())

Change = Callable[[Expected], Expected]

LAYOUTS: dict[str, Change] = {"early": early, "fork": fork, "prism": prism, "ik": ik, "bare": bare}


@pytest.fixture
def port(pair: Pair, convert: Convert) -> Callable[..., Ended]:
    """Port a file with the pair's target as donor."""

    def call(path: Path, *args: str | Path, donor: bool = True) -> Ended:
        target = ("--target-gguf", pair.gguf) if donor else ()
        return convert(path, *target, "-o", "out.gguf", "--force", "--json", *args)

    return call


def of_checkpoint(pair: Pair, convert: Convert, name: str, *args: str) -> Path:
    """The file that a conversion of the checkpoint gives."""
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", name, "--force", "--json", *args)
    assert ended.code == 0, ended.told
    return Path(name)


def mainline(pair: Pair) -> Expected:
    """The draft without what our converter adds."""
    return oracle.expected(pair.draft, pair.target, "bf16")


@pytest.mark.parametrize("outtype", ["q8_0", "f16", "f32", "q4_0", "q4_k", "q6_k", "mxfp4", "auto", "bf16"])
def test_a_bf16_file_gives_what_the_checkpoint_gives(
    pair: Pair, convert: Convert, port: Callable[..., Ended], outtype: str
) -> None:
    direct = of_checkpoint(pair, convert, "direct.gguf", "--outtype", outtype)
    ended = port(of_checkpoint(pair, convert, "bf16.gguf"), "--outtype", outtype)
    assert ended.code == 0, ended.told
    assert ended.findings("warning") == []
    assert Path("out.gguf").read_bytes() == direct.read_bytes()


def test_the_donor_may_be_a_directory(pair: Pair, convert: Convert) -> None:
    target = ("--target-model-dir", pair.target)
    assert convert(pair.draft, *target, "--outtype", "q8_0", "-o", "direct.gguf").code == 0
    assert convert(pair.draft, *target, "-o", "bf16.gguf", "--no-chat-template").code == 0
    assert convert("bf16.gguf", *target, "--outtype", "q8_0", "-o", "out.gguf").code == 0
    assert Path("out.gguf").read_bytes() == Path("direct.gguf").read_bytes()
    assert convert("direct.gguf", "--no-chat-template", "-o", "bare.gguf").code == 0
    assert not [key for key in read(Path("bare.gguf")).kv if "chat_template" in key]


def test_a_file_keeps_its_own_vocabulary_where_no_other_is_given(
    pair: Pair, convert: Convert, port: Callable[..., Ended]
) -> None:
    direct = of_checkpoint(pair, convert, "direct.gguf", "--outtype", "q8_0")
    ended = port(of_checkpoint(pair, convert, "bf16.gguf"), "--outtype", "q8_0", donor=False)
    assert ended.code == 0, ended.told
    assert read(Path("out.gguf")) == read(direct)


@pytest.mark.parametrize("case", LAYOUTS)
def test_every_layout_becomes_mainlines(pair: Pair, port: Callable[..., Ended], tmp_path: Path, case: str) -> None:
    want = mainline(pair)
    old = write_plain(LAYOUTS[case](want), tmp_path / "old.gguf")
    ended = port(old)
    assert ended.code == 0, ended.told
    got = read(Path("out.gguf"))
    assert want.kv.items() <= got.kv.items()
    assert got.kv["dflash.sample_from_anchor"] == ("BOOL", True)
    assert got.kv["dflash.has_confidence_head"] == ("BOOL", True)
    assert got.tensors == want.tensors
    assert list(got.tensors) == list(want.tensors)
    donor = read(pair.gguf).kv
    assert {k: v for k, v in got.kv.items() if k.startswith("tokenizer.") and k != MASK} == {
        k: v for k, v in donor.items() if k.startswith("tokenizer.") and k != MASK
    }
    assert not [key for key in got.kv if key.startswith(("dspark.dspark.", "dflash-draft.", "dspark.block_count"))]


@pytest.mark.parametrize("case", LAYOUTS)
def test_taps_are_shifted_once_however_often_a_file_is_ported(
    pair: Pair, port: Callable[..., Ended], tmp_path: Path, case: str
) -> None:
    port(write_plain(LAYOUTS[case](mainline(pair)), tmp_path / "old.gguf"))
    once = Path("out.gguf").rename("once.gguf")
    ended = port(once)
    assert ended.code == 0, ended.told
    assert Path("out.gguf").read_bytes() == once.read_bytes()


def test_the_donors_mask_does_not_win(pair: Pair, port: Callable[..., Ended], tmp_path: Path) -> None:
    donor = read(pair.gguf)
    write_plain(replace(donor, kv=donor.kv | {MASK: ("UINT32", 3)}), pair.gguf)
    want = mainline(pair)
    assert want.kv[MASK] != ("UINT32", 3)
    for change in LAYOUTS.values():
        ended = port(write_plain(change(want), tmp_path / "old.gguf"))
        assert ended.code == 0, ended.told
        assert read(Path("out.gguf")).kv[MASK] == want.kv[MASK]


@pytest.mark.parametrize("case", ["prism", "bare", "fork"])
def test_no_vocabulary_and_no_donor(pair: Pair, port: Callable[..., Ended], tmp_path: Path, case: str) -> None:
    ended = port(write_plain(LAYOUTS[case](mainline(pair)), tmp_path / "old.gguf"), donor=False)
    assert ended.code == 3
    assert ended.findings("error") == [("vocabulary-missing", "tokenizer.ggml.tokens")]
    assert "no target to take it from" in ended.told
    assert "--target-gguf" in ended.told
    assert not Path("out.gguf").exists()


def test_a_donor_of_another_model_is_refused(pair: Pair, port: Callable[..., Ended], tmp_path: Path) -> None:
    donor = read(pair.gguf)
    write_plain(replace(donor, kv=donor.kv | {"qwen3.embedding_length": ("UINT32", 96)}), pair.gguf)
    ended = port(write_plain(prism(mainline(pair)), tmp_path / "old.gguf"))
    assert ended.code == 3
    assert "target-hidden-size" in [rule for rule, _ in ended.findings("error")]


def test_what_was_rounded_is_told_when_it_is_rounded_again(
    pair: Pair, convert: Convert, port: Callable[..., Ended]
) -> None:
    eight = of_checkpoint(pair, convert, "q8.gguf", "--outtype", "q8_0")
    ended = port(eight, "--outtype", "q5_0")
    assert ended.code == 0, ended.told
    assert {rule for rule, _ in ended.findings("warning")} == {"rounded-twice"}
    jsonschema.validate(ended.document, SCHEMA)
    losses = ended.document["output"]["losses"]
    before, after = read(eight).tensors, read(Path("out.gguf")).tensors
    assert losses.keys() == {name for name in after if after[name] != before[name]}
    for name, loss in losses.items():
        old, new = values(before[name]), values(after[name])
        assert loss["relative_rms"] == pytest.approx(np.sqrt(np.mean((new - old) ** 2) / np.mean(old**2)), rel=1e-6)
        assert loss["max_abs"] == pytest.approx(np.abs(new - old).max())
        assert 0.02 < loss["relative_rms"] < 0.06
    assert port(eight, "--outtype", "q5_0", "--strict").code == 3


def values(tensor: tuple[str, tuple[int, ...], bytes]) -> np.ndarray:
    kind, _, data = tensor
    return gguf.quants.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType[kind]).astype(np.float64)


@pytest.mark.parametrize("outtype", ["f32", "bf16"])
def test_what_was_rounded_may_be_widened(
    pair: Pair, convert: Convert, port: Callable[..., Ended], outtype: str
) -> None:
    eight = of_checkpoint(pair, convert, "q8.gguf", "--outtype", "q8_0")
    ended = port(eight, "--outtype", outtype)
    assert ended.code == 0, ended.told
    assert ended.findings("warning") == []
    assert ("type-widened", "fc.weight") in ended.findings("info")
    before, after = read(eight).tensors["fc.weight"], read(Path("out.gguf")).tensors["fc.weight"]
    assert after[0] == outtype.upper()
    exact = values(before)
    assert np.abs(values(("F32", after[1], widened(after))) - exact).max() <= np.abs(exact).max() * 2.0**-8
    loss = ended.document["output"]["losses"]["fc.weight"]
    assert (loss["max_abs"] == 0) == (outtype == "f32")


def test_a_file_of_which_most_is_f32_has_no_type(
    pair: Pair, convert: Convert, port: Callable[..., Ended], tmp_path: Path
) -> None:
    eight = read(of_checkpoint(pair, convert, "q8.gguf", "--outtype", "q8_0"))
    f32 = oracle.expected(pair.draft, pair.target, "f32")
    mixed = replace(f32, tensors=f32.tensors | {"fc.weight": eight.tensors["fc.weight"]})
    for file, stated in ((f32, ("UINT32", 0)), (mixed, None)):
        ended = port(write_plain(file, tmp_path / "old.gguf"), "--strict")
        assert ended.code == 0, ended.told
        assert read(Path("out.gguf")).kv.get("general.file_type") == stated


def widened(tensor: tuple[str, tuple[int, ...], bytes]) -> bytes:
    kind, _, data = tensor
    return data if kind == "F32" else (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).tobytes()


def test_heads_that_are_rounded_already_are_not_widened(pair: Pair, port: Callable[..., Ended], tmp_path: Path) -> None:
    """A policy may keep heads at Q8_0; it cannot bring back what Q4_0 lost."""
    want = mainline(pair)
    kind, shape, data = want.tensors["fc.weight"]
    bits = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    four = gguf.quants.quantize(bits[: 32 * 512], gguf.GGMLQuantizationType.Q4_0).tobytes()
    tensors = want.tensors | dict.fromkeys(("markov_w1.weight", "markov_w2.weight"), ("Q4_0", (32, 512), four))
    del tensors["conf_proj.weight"], tensors["conf_proj.bias"]
    kv = want.kv | {"dflash.has_confidence_head": ("BOOL", False)}
    ended = port(write_plain(Expected(kv, tensors), tmp_path / "old.gguf"), "--outtype", "q5_0")
    assert ended.code == 0, ended.told
    after = read(Path("out.gguf")).tensors
    assert after["markov_w1.weight"] == tensors["markov_w1.weight"]
    assert after["fc.weight"][0] == "Q5_0"
    assert kind == "BF16" and shape == after["fc.weight"][1]


@pytest.mark.parametrize("include", [False, True])
def test_own_tables_are_borrowed_or_kept(
    pair: Pair, convert: Convert, port: Callable[..., Ended], include: bool
) -> None:
    whole = of_checkpoint(pair, convert, "whole.gguf", "--shared-tensors", "include")
    ended = port(whole, "--shared-tensors", "include" if include else "omit")
    assert ended.code == 0, ended.told
    lost = {"token_embd.weight", "output.weight"} - read(Path("out.gguf")).tensors.keys()
    assert lost == (set() if include else {"token_embd.weight", "output.weight"})
    told = [rule for rule, _ in ended.findings("info") if rule == "shared-omitted"]
    assert told == ([] if include else ["shared-omitted"])


def test_tables_that_nothing_is_known_of_are_not_left_out_silently(
    pair: Pair, convert: Convert, port: Callable[..., Ended]
) -> None:
    whole = of_checkpoint(pair, convert, "whole.gguf", "--shared-tensors", "include")
    ended = port(whole, donor=False)
    assert ended.findings("warning") == [("shared-omitted", "token_embd.weight and output.weight")]


def test_tables_of_another_target_are_not_borrowed(pair: Pair, convert: Convert, port: Callable[..., Ended]) -> None:
    whole = read(of_checkpoint(pair, convert, "whole.gguf", "--shared-tensors", "include"))
    kind, shape, data = whole.tensors["output.weight"]
    whole.tensors["output.weight"] = kind, shape, data[256:] + data[:256]
    write_plain(whole, Path("whole.gguf"))
    ended = port(Path("whole.gguf"))
    assert (ended.code, ended.findings("error")) == (3, [("shared-differs", "output.weight")])
    assert port(Path("whole.gguf"), "--shared-tensors", "include").code == 0


def test_provenance_is_kept_and_strange_keys_are_told(pair: Pair, convert: Convert, port: Callable[..., Ended]) -> None:
    file = read(of_checkpoint(pair, convert, "old.gguf"))
    said: dict[str, tuple[str, object]] = {
        "general.license": ("STRING", "mit"),
        "general.tags": ("ARRAY[STRING]", ["dspark"]),
        "dspark.revision": ("STRING", "a" * 40),
        "dspark.source": ("STRING", "org/name"),
        "dflash.rope.dimension_count": ("UINT32", 32),
        "quantize.imatrix.file": ("STRING", "x"),
    }
    write_plain(replace(file, kv=file.kv | said), Path("old.gguf"))
    ended = port(Path("old.gguf"))
    assert ended.findings("warning") == [("key-dropped", "quantize.imatrix.file")]
    got = read(Path("out.gguf")).kv
    del said["quantize.imatrix.file"]
    assert said.items() <= got.items()
    assert got["general.source.huggingface.repository"] == ("STRING", "org/name")


def test_a_mask_that_the_user_names_counts(pair: Pair, port: Callable[..., Ended], tmp_path: Path) -> None:
    old = write_plain(prism(mainline(pair)), tmp_path / "old.gguf")
    assert port(old, "--mask-token-id", "500").code == 0
    assert read(Path("out.gguf")).kv[MASK] == ("UINT32", 500)
    ended = port(old, "--mask-token-id", "512")
    assert ended.code == 3
    assert [rule for rule, _ in ended.findings("error")] == ["target-mask-range"]


@pytest.mark.parametrize("outtype", ["bf16", "q8_0", "q4_k"])
@pytest.mark.parametrize("dialect", ["dspark", "dflash-draft", "dspark-prism"])
def test_there_and_back_again_loses_nothing(
    pair: Pair, convert: Convert, port: Callable[..., Ended], dialect: str, outtype: str
) -> None:
    tables = ("--shared-tensors", "include" if dialect == "dspark-prism" else "omit")
    direct = of_checkpoint(pair, convert, "direct.gguf", "--outtype", outtype, *tables)
    there = port(direct, "--dialect", dialect, *tables)
    assert there.code == 0, there.told
    over = Path("out.gguf").rename("there.gguf")
    assert read(over).kv["general.architecture"] == ("STRING", dialect.removesuffix("-prism"))
    again = port(over, *tables)
    assert again.code == 0, again.told
    want, got = read(direct), read(Path("out.gguf"))
    if dialect == "dflash-draft":  # which says what mainline takes for granted
        assert got.kv.pop("dflash.attention.causal") == ("BOOL", False)
    assert got == want
    assert list(got.tensors) == list(want.tensors)


@pytest.mark.parametrize("case", ["early", "ik", "prism"])
def test_what_is_written_is_the_layout_as_it_is_documented(
    pair: Pair, port: Callable[..., Ended], tmp_path: Path, case: str
) -> None:
    dialect = {"early": "dspark", "ik": "dflash-draft", "prism": "dspark-prism"}[case]
    tables = ("--shared-tensors", "include" if case == "prism" else "omit")
    plain = oracle.expected(pair.draft, pair.target, "bf16", shared=tables[1])
    old = write_plain(replace(plain, kv=plain.kv | tokens(pair)), tmp_path / "old.gguf")
    ended = port(old, "--dialect", dialect, *tables)
    assert ended.code == 0, ended.told
    want, got = LAYOUTS[case](plain), read(Path("out.gguf"))
    assert got.tensors == want.tensors
    # A width that is the default needs no key.
    assert {k: v for k, v in want.kv.items() if k != "dflash-draft.rope.dimension_count"}.items() <= got.kv.items()


def tokens(pair: Pair) -> dict[str, tuple[str, object]]:
    return {key: value for key, value in read(pair.gguf).kv.items() if key.startswith("tokenizer.") and key != MASK}


@pytest.mark.parametrize("dialect", ["dspark", "dspark-prism", "dflash-draft"])
def test_a_checkpoint_becomes_the_same_in_one_step(
    pair: Pair, convert: Convert, port: Callable[..., Ended], dialect: str
) -> None:
    tables = ("--shared-tensors", "include" if dialect == "dspark-prism" else "omit")
    direct = of_checkpoint(pair, convert, "direct.gguf", "--dialect", dialect, *tables)
    assert port(of_checkpoint(pair, convert, "mainline.gguf", *tables), "--dialect", dialect, *tables).code == 0
    assert read(Path("out.gguf")) == read(direct)


@pytest.mark.parametrize(
    ("dialect", "change", "told"),
    [
        ("dspark", {"dflash.attention.causal": ("BOOL", True)}, ""),
        ("dflash-draft", {"dflash.attention.causal": ("BOOL", True)}, "causal"),
        ("dflash-draft", {"dflash.sample_from_anchor": ("BOOL", False)}, "sample_from_anchor"),
        ("dspark-prism", {}, "shared_tensors"),
        ("ds4", {}, "backbone"),
    ],
)
def test_what_a_layout_cannot_hold_is_refused(
    pair: Pair, convert: Convert, port: Callable[..., Ended], dialect: str, change: dict[str, object], told: str
) -> None:
    file = read(of_checkpoint(pair, convert, "old.gguf"))
    kv = {key: value for key, value in file.kv.items() if key != "dspark.sample_from_anchor"}
    write_plain(Expected(kv | change, file.tensors), Path("old.gguf"))  # type: ignore[operator]
    ended = port(Path("old.gguf"), "--dialect", dialect)
    assert ended.findings("error") == ([("dialect", told)] if told else [])
    assert ended.code == (3 if told else 0)


def test_dry_run_writes_nothing(pair: Pair, convert: Convert, tmp_path: Path) -> None:
    old = write_plain(prism(mainline(pair)), tmp_path / "old.gguf")
    ended = convert(old, "--target-gguf", pair.gguf, "--dry-run", "--json", "--ctx", "4096")
    assert ended.code == 0, ended.told
    assert list(Path.cwd().iterdir()) == []
    document = ended.document
    assert document["output"] is None
    assert document["plan"]["metadata"]["dflash.target_layers"] == mainline(pair).kv["dflash.target_layers"][1]
    assert document["memory"]["context"] == 4096
    assert document["memory"]["weights_total"] == sum(tensor["bytes"] for tensor in document["plan"]["tensors"])
    assert ("layout-mask", "dspark.dspark.mask_token_id") in ended.findings("info")


def test_default_name_and_the_source_is_not_replaced(pair: Pair, convert: Convert) -> None:
    ended = convert(pair.draft, "--target-gguf", pair.gguf)
    assert ended.code == 0, ended.err
    (first,) = Path.cwd().iterdir()
    assert convert(first, "--outtype", "q8_0").code == 0
    assert sorted(path.name for path in Path.cwd().iterdir()) == [first.name, first.name.replace("BF16", "Q8_0")]
    before = first.read_bytes()
    ended = convert(first, "-o", first, "--force")
    assert ended.code == 2
    assert first.read_bytes() == before


def test_a_split_file_is_ported_whole(pair: Pair, convert: Convert, port: Callable[..., Ended]) -> None:
    direct = of_checkpoint(pair, convert, "direct.gguf")
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", "parts.gguf", "--split-max-size", "300K")
    assert ended.code == 0, ended.err
    (first,) = Path.cwd().glob("parts-00001-of-*.gguf")
    assert port(first).code == 0
    assert Path("out.gguf").read_bytes() == direct.read_bytes()


def test_what_is_told_to_people(pair: Pair, convert: Convert) -> None:
    of_checkpoint(pair, convert, "bf16.gguf")
    ended = convert("bf16.gguf", "--outtype", "q8_0", "-o", "q8.gguf")
    assert ended.code == 0
    assert "relative RMS" in ended.out
    assert "blk.0.ffn_up.weight" in ended.out
    assert "Memory: " in ended.out
    assert "at 1,024 positions" in ended.out


def test_a_head_of_zeros_is_no_damage(pair: Pair, convert: Convert, port: Callable[..., Ended]) -> None:
    pair.config({"markov_rank": 0})
    pair.tensors(lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("markov_")])
    pair.config({"confidence_head_with_markov": False})
    pair.tensors(shortened)
    direct = of_checkpoint(pair, convert, "direct.gguf", "--outtype", "q8_0")
    ended = port(of_checkpoint(pair, convert, "bf16.gguf"), "--outtype", "q8_0", "--strict")
    assert ended.code == 0, ended.told
    assert Path("out.gguf").read_bytes() == direct.read_bytes()
    file = read(Path("bf16.gguf"))
    kind, shape, data = file.tensors["markov_w1.weight"]
    assert not any(data)
    file.tensors["markov_w1.weight"] = kind, shape, bytes(len(data) - 2) + b"\x80\x3f"
    write_plain(file, Path("bf16.gguf"))
    assert port(Path("bf16.gguf")).code == 0  # what is there counts, not what it is called
    assert read(Path("out.gguf")).tensors["markov_w1.weight"] == file.tensors["markov_w1.weight"]


def shortened(tensors: Tensors) -> None:
    """The confidence head without the columns of the Markov embedding."""
    name = "confidence_head.proj.weight"
    tensor = tensors[name]
    tensors[name] = tensor._replace(shape=(1, 128), data=tensor.data[:256])
