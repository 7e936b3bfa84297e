"""Where drafts and targets come from: checkpoint directories, safetensors headers, target facts."""
