"""The full-size synthetic drafts that are converted: Q and q of DeepSpec's layout, D of DeepSeek-V4's.

    python -m benchmarks.drafts DIRECTORY [Q|q|D|flash ...]      makes those that are not there

flash is the whole DeepSeek-V4-Flash as a dry run sees it: the index of 72,317 tensors, and the headers of the three
shards that hold the draft.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import deepseek4
from benchmarks.shards import Layout, in_shards, write_shards
from benchmarks.vocabulary import TOKENS, write_tokenizer

PUBLISHED = Path(__file__).resolve().parent.parent / "fixtures" / "published"
Q_FACTS = PUBLISHED / "dspark_qwen3_8b_block7.json"

#: q has the sizes of a draft for Qwen3-0.6B
SMALL = {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16}


@dataclass(frozen=True)
class Draft:
    """``model`` is the checkpoint's directory, ``target`` the one with the tokenizer; ``nbytes`` of tensors."""

    model: Path
    target: Path
    nbytes: int

    @property
    def files(self) -> list[Path]:
        return sorted(self.model.glob("*.safetensors"))


def make(work: Path, name: str) -> Draft:
    """The draft ``name`` in ``work``, made if it is not there."""
    directory = work / name
    if not directory.is_dir():
        partial = work / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        MAKERS[name](partial)
        partial.rename(directory)
    embedded = name in ("D", "flash")
    model = directory if embedded else directory / "draft"
    index = json.loads((model / "model.safetensors.index.json").read_text("utf-8"))
    return Draft(model, directory if embedded else directory / "target", index["metadata"]["total_size"])


def make_qwen3(root: Path, changes: dict[str, int] | None = None, tokens: int = TOKENS) -> None:
    """DeepSpec's draft for Qwen3-8B, with ``changes`` to its config, in three shards, and its target's files."""
    fact = json.loads(Q_FACTS.read_text("utf-8"))
    config = fact["config"] | (changes or {})
    layout = _resized(fact, config)
    draft, target = root / "draft", root / "target"
    draft.mkdir()
    target.mkdir()
    _write_json(draft / "config.json", config)
    write_shards(draft, in_shards(layout, 3))
    keys = ("hidden_size", "vocab_size", "rope_parameters", "head_dim", "num_attention_heads", "model_type")
    target_config = {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": config["num_target_layers"],
        "eos_token_id": tokens + 2,
        **{key: config[key] for key in keys},
    }
    _write_json(target / "config.json", target_config)
    write_tokenizer(target, tokens)


def _resized(fact: dict[str, Any], config: dict[str, Any]) -> Layout:
    """The published tensors with each length replaced by what the config now makes it."""
    old = fact["config"]
    width, new_width = (c["num_attention_heads"] * c["head_dim"] for c in (old, config))
    lengths = {old[key]: config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")}
    taps = len(old["target_layer_ids"])
    lengths[taps * old["hidden_size"]] = taps * config["hidden_size"]
    lengths[old["hidden_size"] + old["markov_rank"]] = config["hidden_size"] + old["markov_rank"]
    layout = {}
    for name, (dtype, shape) in fact["tensors"].items():
        new = [lengths.get(length, length) for length in shape]
        # the attention's width, which for Qwen3-8B is that of the hidden state
        if name.endswith("q_proj.weight"):
            new[0] = new_width if shape[0] == width else new[0]
        elif name.endswith("o_proj.weight"):
            new[1] = new_width if shape[1] == width else new[1]
        for layer in range(fact["layers"] if "{layer}" in name else 1):
            layout[name.replace("{layer}", str(layer))] = (dtype, tuple(new))
    return layout


def make_deepseek4(root: Path, sizes: deepseek4.Sizes = deepseek4.SCALED, tokens: int | None = None) -> None:
    """A DeepSeek-V4 checkpoint of which only the draft's shards are there."""
    shards = {f"model-{i:05}-of-00003.safetensors": stage for i, stage in enumerate(deepseek4.stages(sizes), 1)}
    write_shards(root, shards)
    _write_json(root / "config.json", deepseek4.config(sizes))
    # the last 1,000 ids or so are padding, the mask token among them
    write_tokenizer(root, tokens or sizes.vocab - 1000)


def make_flash(root: Path) -> None:
    """All of DeepSeek-V4-Flash's index; of its 48 shards the headers of the last three."""
    stages = deepseek4.stages(deepseek4.FLASH)
    names = deepseek4.target_names(deepseek4.FLASH)
    elsewhere = {name: f"model-{1 + 45 * i // len(names):05}-of-00048.safetensors" for i, name in enumerate(names)}
    shards = {f"model-{i:05}-of-00048.safetensors": stage for i, stage in enumerate(stages, 46)}
    write_shards(root, shards, elsewhere=elsewhere)
    _write_json(root / "config.json", deepseek4.config(deepseek4.FLASH))
    write_tokenizer(root, deepseek4.FLASH.vocab - 1000)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value), "utf-8")


MAKERS: dict[str, Callable[[Path], None]] = {
    "Q": make_qwen3,
    "q": lambda root: make_qwen3(root, SMALL),
    "D": make_deepseek4,
    "flash": make_flash,
}


def main(arguments: list[str]) -> None:
    work, names = Path(arguments[0]), arguments[1:] or list(MAKERS)
    for name in names:
        draft = make(work, name)
        print(f"{name}: {draft.nbytes:,} bytes in {draft.model}")


if __name__ == "__main__":
    main(sys.argv[1:])
