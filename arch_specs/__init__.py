"""One TOML a family: how a published draft is recognised, what its fields mean, where its tensors go.

A spec is a table to hold beside a checkpoint. Its parts, in order:

``name``, ``title``
    a stable id, and what people call the family.
``backbone``, ``rope_style``
    the kind of decoder layer ("qwen3": GQA with per-head q/k norms and SwiGLU), and how the
    *checkpoint* lays out rotary pairs: "neox" (i, i + n_rot/2) or "norm" (2i, 2i + 1).
``tap_offset``
    added to a checkpoint's layer id to get llama.cpp's layer *input*: 1 where ids name layer
    outputs (Hugging Face ``hidden_states[id + 1]``), 0 where they name inputs.
``[recognise]``
    ``architectures``: class names; ``tensors``: of these names one must be there (without the
    optional ``model.`` prefix); ``unless_tensors``: patterns that make it another family.
``[fields.NAME]``
    one field of the meaning. ``from``: config paths in order of preference ("a.b" is nested, a
    leading "not " inverts a flag); the first that is present wins, and two that disagree are an
    error. ``type``: int, float, bool, str, int_list. ``min``/``max``: inclusive bounds.
    ``choices``: allowed values with ``reason`` for the others. ``formula``: the default, over
    earlier fields and tensor shapes (``dspark_convert.formula``). Without a formula the field
    is required. ``check``: a formula that must be true once all fields are known, and ``reason``.
``[derived]``
    further names for the formulas below, in order.
``[[require]]``
    ``key`` in config must be absent, null or one of ``allow``; else ``reason`` is the refusal.
``[config]``
    ``inert``: config keys that change nothing in the file (patterns). Any other unread key is
    a warning that names it, with ``--strict`` an error.
``[[tensor]]``
    ``source`` with ``{layer}``; ``gguf``; ``shape`` row-major, as formulas; ``when``: formula,
    default true; ``gguf_columns``: length of the rows as written, filled up with zeros;
    ``shared``: a copy of the target's tensor, written only with ``--shared-tensors include``.
    ``optional``: may be missing. 1-D tensors become F32, others follow ``--outtype``.
``[[zeros]]``
    a tensor made of zeros: ``gguf``, ``shape``, ``when``, ``reason``.
``[[drop]]``
    ``source`` pattern and ``reason``: known, and left out on purpose.
``[[refuse]]``
    ``source`` pattern and ``reason``: known, and not convertible; ``unless_zero``: a tensor of
    zeros adds nothing, so it is dropped with a note instead.
"""
