"""Arch specs (``arch_specs``) meet a checkpoint: which one is its own, what its config means, where its tensors go."""
