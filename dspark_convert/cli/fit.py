"""Does a draft fit a target? The verdict and the table that dspark-inspect --target shows."""

from __future__ import annotations

from dspark_convert.cli.output import Output
from dspark_convert.cli.text import safe
from dspark_convert.pair.fit import Fit, Verdict

#: ANSI colours: green, yellow, red
COLOURS: dict[Verdict, str] = {
    "fits": "1;32",
    "fits with remarks": "1;33",
    "does not fit": "1;31",
    "cannot be run": "1;31",
    "cannot be judged": "1;31",
}


def show_fit(out: Output, fit: Fit) -> None:
    target = safe(fit.target)
    sentences: dict[Verdict, str] = {
        "fits": f"The draft fits {target}.",
        "fits with remarks": f"The draft fits {target}, with remarks.",
        "does not fit": f"The draft does not fit {target}.",
        "cannot be run": f"The draft cannot be run with {target} as it is: see the errors below.",
        "cannot be judged": f"Whether the draft fits {target} cannot be judged: its meaning cannot be read.",
    }
    out.line(sentences[fit.verdict], COLOURS[fit.verdict])
    if fit.fields:
        out.human("")
        rows = [(field.name, safe(field.draft, 60), safe(field.target, 60), field.mark) for field in fit.fields]
        out.table(["field", "draft", "target", "verdict"], rows)
