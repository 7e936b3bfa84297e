"""A draft GGUF ported: bytes and meaning, against the oracle's files and conversions of the same checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests import oracle
from tests.checkpoints import Pair
from tests.conftest import Convert, Ended
from tests.old_files import MASK, bare, early, fork, ik, prism, write_plain
from tests.oracle import Expected, read

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
