"""The charts as one SVG or PNG file."""

from __future__ import annotations

from dspark_convert.bench.charts import charts_of
from dspark_convert.bench.report import BenchReport
from dspark_convert.bench.svg import FONTS, standing_alone
from dspark_convert.errors import EnvironmentFault

#: pixels of the PNG for each of the SVG
ZOOM = 2

_BLANK = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
_LETTER = f'<text x="2" y="15" font-family="{FONTS}">x</text>'


def svg_of(report: BenchReport) -> str:
    return standing_alone(charts_of(report))


def require_png() -> None:
    """Raise EnvironmentFault if no PNG can be drawn here: known before anything is measured."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise EnvironmentFault(
            "PNG needs the package resvg_py; get it with: pip install 'dspark-convert[plots]', or write --svg."
        ) from None
    # Without a font all text would be missing from the picture, and no message would say so.
    if svg_to_bytes(svg_string=_BLANK.format(_LETTER)) == svg_to_bytes(svg_string=_BLANK.format("")):
        raise EnvironmentFault(
            "there is no font to write a PNG's text with; install one, such as DejaVu Sans, or write --svg."
        )


def png_of(report: BenchReport) -> bytes:
    """Call ``require_png`` before."""
    from resvg_py import svg_to_bytes

    return bytes(svg_to_bytes(svg_string=svg_of(report), zoom=ZOOM))
