"""One TOML a family: how a published draft is recognised, what its fields mean, where its tensors go.

A spec is a table to hold beside a checkpoint. Its parts, in order:

``name``, ``title``
    a stable id, and what people call the family.
``extends``
    what a family shares with the others of its backbone stands in ``arch_specs/backbones``, and the
    family's file has the rest. A value of the family's wins. ``[fields]`` and ``[derived]`` are one by
    name, and of a field the family's keys win; lists are one by ``key`` (``[[require]]``), ``gguf``
    (``[[tensor]]``, ``[[zeros]]``, ``[[computed]]``) or ``source`` (``[[drop]]``, ``[[refuse]]``,
    ``[[deviation]]``), and the family's entry takes the place of the backbone's; ``inert`` adds.
    ``without``: names of what the backbone has and this family has not; of a tensor its ``gguf``, or its
    ``source``, which leaves ``[[zeros]]`` of that ``gguf``.
``backbone``, ``rope_style``
    the kind of decoder layer ("qwen3": GQA with per-head q/k norms and SwiGLU; "gemma4": values that
    are keys, norms before and after; "deepseek4": MLA with hyper-connections and experts), and the
    rotary pairs that llama.cpp turns in it: "neox" (i, i + n_rot/2) or "norm" (2i, 2i + 1). A
    checkpoint of the other kind says so in the field ``rope_neox``.
``tap_offset``
    added to a checkpoint's layer id to get llama.cpp's layer *input*: 1 where ids name layer
    outputs (Hugging Face ``hidden_states[id + 1]``), 0 where they name inputs.
``layer_name``
    what the family calls a layer, for messages (default "layer").
``unsupported``
    reasons why no llama.cpp runs this family: it is read and shown, converting it is refused.
``[recognise]``
    ``architectures``: class names; ``tensors``: one name that fits one of these patterns must be
    there (without the optional ``model.`` prefix), or one of ``or_keys``, paths in config.json;
    ``unless_tensors``: patterns that make it another family; ``keys``, ``unless_keys``: the same of
    paths in config.json; ``within``: patterns of the draft's tensors in a checkpoint that holds the
    target too. All others are the target's then: not read, and their files not needed.
``[rename]``
    the start of a tensor's name and what the rest of the spec calls it.
``[fields.NAME]``
    one field of the meaning. ``from``: config paths in order of preference ("a.b" is nested, "a.0"
    the first of a list; a leading "not " inverts a flag, "inputs " makes outputs of layer inputs, by
    taking 1); the first that is present wins, and two that disagree are an error. ``type``: int,
    float, bool, str, int_list, str_list. ``min``/``max``: inclusive bounds. ``choices``: what
    llama.cpp runs, with ``reason`` for the others, which are shown but not converted. ``formula``:
    the default, over other fields and tensor shapes (``dspark_convert.specs.formula``). Without a formula the field is
    required, unless ``optional``: then it has no value. ``check``: a formula that must be true once
    all fields are known, and ``reason``.
``[derived]``
    further names for the formulas below, in order.
``[[require]]``
    ``key`` in config must be absent, null or one of ``allow``; else ``reason`` is the refusal.
``[config]``
    ``inert``: config keys that change nothing in the file (patterns). Any other unread key is
    a warning that names it, with ``--strict`` an error. ``nested``: objects whose keys count like
    those at the top ("text_config"), for fields, requirements and inert keys alike.
``[scales]``
    the family stores numbers as codes with scales, and the dtype of a tensor tells which: F8_E4M3
    with an F8_E8M0 scale for each tile, or bytes (I8, U8) of two FP4 codes with an F8_E8M0 scale
    for 32 of a row. ``weight`` is the ending of the codes' name that ``scale`` replaces in that
    of their scales; ``tile``: the field that says rows and columns of an FP8 tile. With
    ``tensor_scale``, the ending of one more number's name, bytes are NVFP4, of F8_E4M3 scales for 16.
``[[tensor]]``
    ``source`` with ``{layer}``; ``gguf``; ``shape`` row-major, as formulas; ``when``: formula,
    default true; ``gguf_columns``: length of the rows as written, filled up with zeros;
    ``shared``: a formula over the names of tensors: then it is a copy of the target's, written only
    with ``--shared-tensors include``. ``pairs``: its outermost axis holds heads that are rotated, and
    is put in order where ``rope_neox`` is false. ``offsets``: entry i of a table of ids, less i.
    ``optional``: may be missing, if ``shared`` is given only where it is true. ``only``: "first" or
    "last", the one layer that has it.
    ``stack``: a formula; ``source`` holds ``{expert}``, and the tensors from 0 to that number, each
    of ``shape``, become one with a further outermost axis. ``role``: what a matrix is for, which
    decides how far ``--outtype`` goes (``dspark_convert.specs.policy``): "matrix" (default), "expert",
    "router", "head" (embeddings, heads) or "fixed", always F32. Vectors are F32 in any case.
``[[zeros]]``
    a tensor made of zeros: ``gguf``, ``shape``, ``when``, ``reason``.
``[[computed]]``
    a tensor that follows from sizes: ``gguf``, ``shape``, ``when``, ``how`` (a function of
    ``dspark_convert.specs.computed``), ``reason``.
``[[drop]]``
    ``source`` pattern and ``reason``: known, and left out on purpose.
``[[refuse]]``
    ``source`` pattern and ``reason``: known, and not convertible; ``unless_zero``: a tensor of
    zeros adds nothing, so it is dropped with a note instead.
``[[deviation]]``
    ``source``, what is written otherwise than by llama.cpp's own converter, and ``reason``.
"""
