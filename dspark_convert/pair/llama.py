"""What llama.cpp does with a target and a draft, as far as two headers tell.

Architectures are spelled without "-" and "_", so that GGUF and Hugging Face names meet.
"""

from __future__ import annotations

from dspark_convert.draft import Draft

#: which pairs of a head's values are rotated (``llama_model_rope_type``, src/llama-model.cpp) in those targets whose
#: graph publishes layer inputs for taps (res->t_layer_inp in src/models); of a llama's weights the converter
#: turned q and k, so that it computes what neox does unturned
STYLES = {
    "neox": "gemma4 gptoss hunyuanvl lfm2 mimo2 mimov2 minimax01 minimaxm2 qwen3 qwen3moe qwen3next",
    "neox, several axes": "qwen35 qwen35moe qwen4exp",
    "norm": "bailingmoe3 deepseek4 deepseekv4 museglimmer nanbeige",
    "norm, weights turned": "llama",
    "none": "nemotronh",
}
_BY_NAME = {name: style for style, names in STYLES.items() for name in names.split()}
#: of these, the ones that also publish the residual behind the last layer (L = n_layer)
TAPPABLE_AT_END = frozenset("deepseek4 deepseekv4 mimo2 mimov2 nemotronh".split())

#: what loads a draft of mainline's layout, by whether embeddings and head are in it (measured, b10335 to b11739)
BUILDS = {
    (False, False): "llama.cpp from b10335 on",
    (True, True): "llama.cpp from b10952 on",
    (True, False): "llama.cpp from b10434 on, if the target is tied",
}
#: and what came with builds in between: all of it was in this one
LATER = "recent llama.cpp, e.g. b11549"


def plain_name(architecture: str) -> str:
    """A ``general.architecture`` or ``model_type`` in the spelling of this module."""
    return architecture.replace("-", "").replace("_", "")


def builds_for(draft: Draft) -> str:
    """Which builds run a draft of mainline's layout, as far as that was measured."""
    came_later = (
        draft.deepseek4,
        draft.dflash2,
        draft.has_sinks,
        draft.shared_kv,
        draft.causal,
        draft.value_scale,
        draft.embedding_scale,
        draft.draft_vocab_size != draft.vocab_size,
        # b10335 wants a confidence head behind a Markov head, and reads slot 0 whatever the file says
        draft.kind == "dspark" and not (draft.has_confidence_head and draft.sample_from_anchor),
    )
    return LATER if any(came_later) else BUILDS.get((draft.has_token_embd, draft.has_output), LATER)


def spec_type(kind: str) -> str:
    """llama-server's ``--spec-type`` for a kind of draft: DFlash2's selector is a part of DFlash there."""
    return "draft-dspark" if kind == "dspark" else "draft-dflash"


def is_tappable(architecture: str) -> bool:
    """Whether layer inputs of such a target are handed out at all."""
    return plain_name(architecture) in _BY_NAME


def offered_inputs(architecture: str, n_layer: int) -> range:
    """The layer inputs that llama.cpp hands out of a target of ``n_layer`` layers."""
    return range(n_layer + (plain_name(architecture) in TAPPABLE_AT_END))


def style_of(architecture: str) -> str | None:
    """How such a target rotates; None where that is not known."""
    return _BY_NAME.get(plain_name(architecture))
