"""A draft and the target that it drafts for: do they fit? Judged by what stands in their headers."""
