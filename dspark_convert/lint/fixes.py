"""What to do about findings of many rules, and how many names they show."""

from __future__ import annotations

CORRECT = "correct the checkpoint's config and convert again"
AGAIN = "convert the published checkpoint again"
#: of what a port puts right
REWRITE = "rewrite the file: dspark-convert FILE"
VALIDATE = "validate the draft before relying on it"

#: names shown of a list; the rest is counted
SHOWN_NAMES = 6
