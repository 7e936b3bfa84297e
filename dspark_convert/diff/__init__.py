"""Two drafts side by side, files or checkpoints: what differs in meaning, metadata, tensors and values."""
