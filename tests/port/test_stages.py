"""DeepSeek-V4 drafts ported: to ds4 and back, and experts in other types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from tests import stage_oracle
from tests.conftest import Convert, Ended
from tests.old_files import ds4, write_plain
from tests.oracle import Expected, read


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("v4")
    make_deepseek4(root / "v4")
    write_deepseek4_gguf(root / "v4", root / "target.gguf")
    return root


@pytest.fixture
def run(files: Path, convert: Convert) -> Callable[..., Ended]:
    def call(model: Path, out: str, *args: str, donor: bool = True) -> Ended:
        target = ("--target-gguf", files / "target.gguf") if donor else ()
        return convert(model, *target, "-o", out, "--json", *args)

    return call


def test_to_ds4_and_back(files: Path, run: Callable[..., Ended]) -> None:
    assert run(files / "v4", "direct.gguf").code == 0
    there = run(Path("direct.gguf"), "there.gguf", "--dialect", "ds4")
    assert there.code == 0, there.told
    assert [rule for rule, _ in there.findings("info")] == ["layout-types"]
    assert all(loss["max_abs"] == 0 for loss in there.document["output"]["losses"].values())
    direct, over = read(Path("direct.gguf")), read(Path("there.gguf"))
    documented = ds4(direct)
    assert documented.kv.items() <= over.kv.items()
    assert over.kv["dspark.noise_token_id"] == direct.kv["tokenizer.ggml.mask_token_id"]
    assert not [key for key in over.kv if key.startswith(("tokenizer.", "dflash."))]
    back = run(Path("there.gguf"), "back.gguf")
    assert back.code == 0, back.told
    got = read(Path("back.gguf"))
    assert got.kv == direct.kv
    assert got.tensors.keys() == direct.tensors.keys()
    for name, tensor in direct.tensors.items():
        # ds4 knows no BF16; F32 holds the same values
        assert got.tensors[name] == (widened(tensor) if tensor[0] == "BF16" else tensor), name


def widened(tensor: tuple[str, tuple[int, ...], bytes]) -> tuple[str, tuple[int, ...], bytes]:
    _, shape, data = tensor
    return "F32", shape, (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).tobytes()


def test_a_ds4_file_without_its_target_is_refused(files: Path, run: Callable[..., Ended], tmp_path: Path) -> None:
    """The tiny stages are none of the published ones, whose sizes are known."""
    old = write_plain(ds4(stage_oracle.expected(files / "v4")), tmp_path / "old.gguf")
    ended = run(old, "out.gguf", donor=False)
    assert ended.code == 3
    assert "layout-sizes" in [rule for rule, _ in ended.findings("error")]
    assert "--target-gguf" in ended.told


@pytest.mark.parametrize("experts", ["q8_0", "f16", "q4_0"])
def test_experts_become_what_the_checkpoint_gives(files: Path, run: Callable[..., Ended], experts: str) -> None:
    """MXFP4 holds the published values exactly, so nothing is lost on the way over it."""
    assert run(files / "v4", "direct.gguf", "--experts", experts).code == 0
    assert run(files / "v4", "auto.gguf").code == 0
    ended = run(Path("auto.gguf"), "out.gguf", "--experts", experts)
    assert ended.code == 0, ended.told
    assert Path("out.gguf").read_bytes() == Path("direct.gguf").read_bytes()


@pytest.mark.parametrize("outtype", ["q4_0", "q4_k", "bf16"])
def test_types_are_those_of_a_conversion(files: Path, run: Callable[..., Ended], outtype: str) -> None:
    assert run(files / "v4", "direct.gguf", "--outtype", outtype).code == 0
    assert run(files / "v4", "wide.gguf", "--outtype", "f32").code == 0
    ended = run(Path("wide.gguf"), "out.gguf", "--outtype", outtype)
    assert ended.code == 0, ended.told
    want, got = read(Path("direct.gguf")), read(Path("out.gguf"))
    differ = {name for name in want.tensors if want.tensors[name] != got.tensors[name]}
    # Routers are kept at 16 bits: of F32 ones that is F16, of the checkpoint's BF16 those.
    routers = {name for name in want.tensors if "ffn_gate_inp" in name}
    assert differ == (set() if outtype == "bf16" else routers)
    assert {got.tensors[name][0] for name in differ} <= {"F16"}


def test_early_dialect_has_no_stages(files: Path, run: Callable[..., Ended]) -> None:
    assert run(files / "v4", "direct.gguf").code == 0
    ended = run(Path("direct.gguf"), "out.gguf", "--dialect", "dspark")
    assert (ended.code, ended.findings("error")) == (3, [("dialect", "backbone")])
    assert run(files / "v4", "out.gguf", "--dialect", "dspark").findings("error") == [("dialect", "backbone")]


def test_a_checkpoint_becomes_the_same_ds4_file(files: Path, run: Callable[..., Ended]) -> None:
    assert run(files / "v4", "mainline.gguf").code == 0
    assert run(files / "v4", "direct.gguf", "--dialect", "ds4").code == 0
    assert run(Path("mainline.gguf"), "out.gguf", "--dialect", "ds4").code == 0
    assert read(Path("out.gguf")) == read(Path("direct.gguf"))


def test_published_sizes_are_not_taken_for_others(files: Path, run: Callable[..., Ended]) -> None:
    """A mainline file says all sizes itself; nothing of the target's is put in their place."""
    assert run(files / "v4", "direct.gguf").code == 0
    file = read(Path("direct.gguf"))
    changed = Expected(file.kv | {"dflash.hyper_connection.sinkhorn_iterations": ("UINT32", 3)}, file.tensors)
    write_plain(changed, Path("changed.gguf"))
    assert run(Path("changed.gguf"), "out.gguf").code == 0
    assert read(Path("out.gguf")).kv["dflash.hyper_connection.sinkhorn_iterations"] == ("UINT32", 3)
    ended = run(Path("changed.gguf"), "ds4.gguf", "--dialect", "ds4")
    assert ended.findings("error") == [("port-changes-meaning", "deepseek4")]


def test_mxfp4_is_moved(files: Path, run: Callable[..., Ended]) -> None:
    assert run(files / "v4", "auto.gguf").code == 0
    ended = run(Path("auto.gguf"), "out.gguf", "--outtype", "q6_k")
    assert ended.code == 0, ended.told
    before, after = read(Path("auto.gguf")).tensors, read(Path("out.gguf")).tensors
    experts = [name for name in before if "_exps" in name]
    assert {before[name][0] for name in experts} == {"MXFP4"}
    assert all(after[name] == before[name] for name in experts)
    assert gguf.GGMLQuantizationType.MXFP4.name not in {after[n][0] for n in after if n not in experts}
