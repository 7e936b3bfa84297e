"""The target that a draft drafts for: Qwen3 (Qwen team 2025), computed from a Hugging Face checkpoint.

Shapes: n tokens, hidden, vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from dspark_convert.reference.config import Config, refuse_windows, require_silu
from dspark_convert.reference.qwen3 import Layer, Sizes, has_biases, head_dim, layer_shapes, rms_norm
from dspark_convert.reference.rotation import read_rotation
from dspark_convert.reference.weights import (
    EMBED,
    HEAD,
    Floats,
    Shape,
    Weights,
    check_shapes,
    read_shapes,
    read_tensors,
)


class TargetReference:
    """A ``Qwen3ForCausalLM``, ready to compute."""

    def __init__(self, n_layer: int, vocab_size: int, sizes: Sizes, weights: Weights) -> None:
        self.n_layer = n_layer
        self.vocab_size = vocab_size
        self._eps = sizes.eps
        self._weights = weights
        self._layers = [Layer(weights, i, sizes) for i in range(n_layer)]

    @classmethod
    def load(cls, directory: Path) -> TargetReference:
        """The target in ``directory``. Raises ValueError for what the reference cannot compute."""
        config = Config(directory)
        if config.architecture() != "Qwen3ForCausalLM":
            raise config.wrong("architectures", "['Qwen3ForCausalLM'], the only target known", config.architecture())
        refuse_windows(config)
        require_silu(config)
        stored = read_shapes(directory)
        heads = config.integer("num_attention_heads")
        rotation = read_rotation(config, head_dim(config, stored))
        sizes = Sizes(
            hidden=config.integer("hidden_size"),
            intermediate=config.integer("intermediate_size"),
            heads=heads,
            kv=config.integer("num_key_value_heads", default=heads),
            head_dim=head_dim(config, stored),
            eps=config.positive("rms_norm_eps"),
            theta=rotation.theta,
            rotation=rotation,
        )
        n_layer, vocab_size = config.integer("num_hidden_layers"), config.integer("vocab_size")
        tensors = read_tensors(directory)
        if EMBED in tensors and config.flag("tie_word_embeddings"):
            tensors[HEAD] = tensors[EMBED]
        shapes: dict[str, Shape] = {
            EMBED: (vocab_size, sizes.hidden),
            "norm.weight": (sizes.hidden,),
            HEAD: (vocab_size, sizes.hidden),
        }
        shapes |= layer_shapes(n_layer, sizes, has_biases(config, stored), tensors.keys())
        check_shapes(directory, tensors, shapes)
        return cls(n_layer, vocab_size, sizes, Weights(tensors))

    @torch.no_grad()
    def run(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """``tokens`` [n] at positions 0 and on -> layer inputs [n_layer + 1, n, hidden], logits [n, vocab].

        Layer input L is the residual stream that enters layer L: 0 the embeddings, n_layer what the final
        norm is given. So does DeepSpec train, which catches what the layers put out, while transformers'
        ``hidden_states`` end with the normed one. float64, or float32 for a large model.
        """
        if not tokens or not all(0 <= token < self.vocab_size for token in tokens):
            raise ValueError(f"the target takes one token or more, each below {self.vocab_size}.")
        positions = torch.arange(len(tokens))
        sees = positions[:, None] >= positions
        streams = [self._weights.rows(EMBED, torch.tensor(list(tokens)))]
        for layer in self._layers:
            x = streams[-1]
            h = layer.norm(x, "input_layernorm")
            q, k = layer.queries(h, positions), layer.keys(h, positions)
            streams.append(layer.feed_forward(x + layer.attend(q, k, layer.values(h), sees)))
        final = rms_norm(streams[-1], self._weights["norm.weight"], self._eps)
        return torch.stack(streams).numpy(), (final @ self._weights[HEAD].T).numpy()
