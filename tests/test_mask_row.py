"""An embedding of the mask token that is the draft's own: the target's tables are written with it, and read anew here
with ``gguf``, safetensors' torch loader and torch.load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fixtures import families
from fixtures.hf_pair import TinyPair
from fixtures.target_gguf import write_target_gguf
from tests.conftest import Convert, Ended
from tests.hub_place import REPO, HubPlace, repository_of
from tests.oracle import encode, read

MASK = 507
EMBED, HEAD = "token_embd.weight", "output.weight"
PT = "mask_embedding.pt"


@pytest.fixture
def mimo(tmp_path: Path) -> TinyPair:
    return families.make_pair("mimo", tmp_path / "pair")


def rename(pair: TinyPair, key: str, value: Any) -> None:
    path = pair.draft_dir / "config.json"
    config = json.loads(path.read_text())
    config["dflash_config"][key] = value
    path.write_text(json.dumps(config))


def row_of(pair: TinyPair) -> torch.Tensor:
    held = torch.load(pair.draft_dir / PT, weights_only=True)
    return held if isinstance(held, torch.Tensor) else held.get("embedding", held.get("mask_embedding"))


def with_row(table: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    patched = table.clone()
    patched[MASK] = row
    assert not torch.equal(patched, table)
    return patched


def written(ended: Ended) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    assert ended.code == 0, ended.told
    assert ("mask-embedding-written", PT) in ended.findings("info")
    return read(Path("out.gguf")).tensors


@pytest.mark.parametrize("name", ["mimo", "mimo_bare", "mimo_keyed"])
@pytest.mark.parametrize("outtype", ["f32", "bf16", "q8_0"])
def test_the_tables_of_a_directory(name: str, outtype: str, tmp_path: Path, convert: Convert) -> None:
    pair = families.make_pair(name, tmp_path / "pair")
    args = ("--target-model-dir", pair.target_dir, "-o", "out.gguf", "--outtype", outtype, "--json")
    tensors = written(convert(pair.draft_dir, *args))
    target = load_file(pair.target_dir / "model.safetensors")
    assert tensors[EMBED] == encode(with_row(target["model.embed_tokens.weight"], row_of(pair)), outtype)
    assert tensors[HEAD] == encode(target["lm_head.weight"], outtype)


def test_a_tied_target_has_one_table_for_both(mimo: TinyPair, convert: Convert) -> None:
    shard, config = mimo.target_dir / "model.safetensors", mimo.target_dir / "config.json"
    target = load_file(shard)
    del target["lm_head.weight"]
    save_file(target, shard)
    config.write_text(json.dumps({**json.loads(config.read_text()), "tie_word_embeddings": True}))
    args = ("--target-model-dir", mimo.target_dir, "-o", "out.gguf", "--outtype", "f32", "--json")
    tensors = written(convert(mimo.draft_dir, *args))
    table = target["model.embed_tokens.weight"]
    assert tensors[EMBED] == encode(with_row(table, row_of(mimo)), "f32")
    assert tensors[HEAD] == encode(table, "f32")  # the head keeps the row that the target has


def test_tables_of_its_own_come_first(mimo: TinyPair, convert: Convert) -> None:
    shard = mimo.draft_dir / "dflash_draft_model.safetensors"
    own = torch.arange(512 * 128).reshape(512, 128).remainder(251).to(torch.bfloat16)
    save_file({**load_file(shard), "embed_tokens.weight": own}, shard)
    (mimo.draft_dir / "model.safetensors.index.json").unlink()
    args = ("--target-model-dir", mimo.target_dir, "-o", "out.gguf", "--shared-tensors", "include", "--json")
    tensors = written(convert(mimo.draft_dir, *args))
    assert tensors[EMBED] == encode(with_row(own, row_of(mimo)), "bf16")
    assert tensors[HEAD] == encode(load_file(mimo.target_dir / "model.safetensors")["lm_head.weight"], "bf16")


@pytest.mark.parametrize("stored", ["f32", "bf16"])
def test_the_tables_of_a_gguf(stored: str, mimo: TinyPair, tmp_path: Path, convert: Convert) -> None:
    path = tmp_path / "target.gguf"
    write_target_gguf(mimo.target_dir, path, stored)
    tensors = written(convert(mimo.draft_dir, "--target-gguf", path, "-o", "out.gguf", "--json", "--outtype", "f16"))
    target = load_file(mimo.target_dir / "model.safetensors")
    assert tensors[EMBED] == encode(with_row(target["model.embed_tokens.weight"], row_of(mimo)), "f16")
    assert tensors[HEAD] == encode(target["lm_head.weight"], "f16")


def quantised(path: Path, out: Path, kind: gguf.GGMLQuantizationType) -> dict[str, bytes]:
    """``path`` with its two tables in ``kind``, and their bytes."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, "qwen3")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            item = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], item)
    tables = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name not in (EMBED, HEAD):
            writer.add_tensor(tensor.name, values.astype(np.float32))
            continue
        packed = gguf.quants.quantize(values, kind)
        tables[tensor.name] = packed.tobytes()
        writer.add_tensor(tensor.name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tables


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_blocks_of_a_gguf_stay_as_they_are(kind: str, mimo: TinyPair, tmp_path: Path, convert: Convert) -> None:
    write_target_gguf(mimo.target_dir, tmp_path / "f32.gguf", "f32")
    stored = gguf.GGMLQuantizationType[kind]
    tables = quantised(tmp_path / "f32.gguf", tmp_path / "target.gguf", stored)
    args = ("--target-gguf", tmp_path / "target.gguf", "-o", "out.gguf", "--json", "--outtype", "bf16")
    tensors = written(convert(mimo.draft_dir, *args))
    size = len(tables[EMBED]) // 512
    row = gguf.quants.quantize(row_of(mimo).float().numpy()[None], stored).tobytes()
    wanted = tables[EMBED][: MASK * size] + row + tables[EMBED][(MASK + 1) * size :]
    assert tensors[EMBED] == (kind, (128, 512), wanted)
    assert tensors[HEAD] == (kind, (128, 512), tables[HEAD])
    assert tensors["fc.weight"][0] == "BF16"


def refused(pair: TinyPair, convert: Convert, *args: Any) -> list[tuple[str, str]]:
    target = args or ("--target-model-dir", pair.target_dir)
    ended = convert(pair.draft_dir, *target, "-o", "out.gguf", "--json")
    assert ended.code == 3
    assert not Path("out.gguf").exists()
    return ended.findings("error")


def test_a_target_without_weights_is_none(mimo: TinyPair, convert: Convert) -> None:
    (mimo.target_dir / "model.safetensors").unlink()
    assert refused(mimo, convert) == [("mask-embedding-target", EMBED)]
    ended = convert(mimo.draft_dir, "--dry-run", "--json")
    assert ended.findings("error") == [("mask-embedding-target", EMBED)]
    assert "--target-gguf" in ended.told


def test_the_target_needs_its_head_too(mimo: TinyPair, convert: Convert) -> None:
    target = load_file(mimo.target_dir / "model.safetensors")
    del target["lm_head.weight"]
    save_file(target, mimo.target_dir / "model.safetensors")
    assert refused(mimo, convert) == [("mask-embedding-target", HEAD)]


def test_tables_of_another_size(mimo: TinyPair, convert: Convert) -> None:
    target = load_file(mimo.target_dir / "model.safetensors")
    target["model.embed_tokens.weight"] = target["model.embed_tokens.weight"][:500].clone()
    save_file(target, mimo.target_dir / "model.safetensors")
    assert refused(mimo, convert) == [("mask-embedding-target", EMBED)]


@pytest.mark.parametrize(
    "held",
    [
        {"mask_token_id": 506, "embedding": torch.zeros(128)},
        {"mask_token_id": MASK, "embedding": torch.zeros(64)},
        {"mask_token_id": MASK},
        [torch.zeros(128)],
    ],
    ids=["another token", "another size", "nothing", "a list"],
)
def test_a_row_that_does_not_fit(held: Any, mimo: TinyPair, convert: Convert) -> None:
    torch.save(held, mimo.draft_dir / PT)
    assert refused(mimo, convert) == [("mask-embedding", PT)]


def test_a_file_that_is_none(mimo: TinyPair, convert: Convert) -> None:
    (mimo.draft_dir / PT).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refused(mimo, convert) == [("mask-embedding", PT)]


def test_the_config_decides_which_token_it_is(tmp_path: Path, convert: Convert) -> None:
    pair = families.make_pair("mimo_bare", tmp_path / "pair")  # its file does not say
    rename(pair, "mask_token_id", 100)
    args = ("--target-model-dir", pair.target_dir, "-o", "out.gguf", "--outtype", "f32", "--json")
    _, _, data = written(convert(pair.draft_dir, *args))[EMBED]
    assert data[100 * 512 : 101 * 512] == row_of(pair).float().numpy().tobytes()


def test_the_early_layout_has_no_place_for_it(mimo: TinyPair, convert: Convert) -> None:
    found = refused(mimo, convert, "--target-model-dir", mimo.target_dir, "--dialect", "dspark")
    assert ("dialect", EMBED) in found


def test_on_the_hub(mimo: TinyPair, hub: HubPlace, convert: Convert) -> None:
    hub.server.files = repository_of(mimo.draft_dir)
    target = ("--target-model-dir", mimo.target_dir, "--json")
    planned = convert(REPO, *target, "--dry-run")
    assert planned.code == 0, planned.told
    assert written(convert(REPO, *target, "-o", "out.gguf"))[EMBED][0] == "BF16"
    from_hub = Path("out.gguf").read_bytes()
    local = convert(hub.snapshot, *target, "-o", "local.gguf")
    assert planned.document["plan"] == local.document["plan"]
    assert Path("local.gguf").read_bytes() == from_hub
