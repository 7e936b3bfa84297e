"""A small plotting area in SVG: axes, and marks that differ in shape as well as in colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 16, 60, 48

#: colours of Okabe and Ito, which colour-blind eyes tell apart, on white and on black
LIGHT = {"ink": "#1a1a1a", "soft": "#5f6368", "grid": "#dddddd", "paper": "#ffffff", "one": "#0072B2", "two": "#D55E00"}
DARK = {"ink": "#ececec", "soft": "#a8adb3", "grid": "#3a3d41", "paper": "#16181b", "one": "#56B4E9", "two": "#E69F00"}

#: what draws a PNG knows no generic family
FONTS = "'Segoe UI', 'Helvetica Neue', Arial, 'Noto Sans', 'DejaVu Sans', 'Liberation Sans', sans-serif"

#: style of the classes that the charts use; {name} stands for a colour
STYLE = """
.chart text {{ font-size: 13px; font-family: {fonts}; fill: {soft}; }}
.chart .title {{ font-size: 16px; font-weight: 600; fill: {ink}; }}
.chart .value {{ fill: {ink}; stroke: {paper}; stroke-width: 4px; paint-order: stroke; }}
.chart .grid {{ stroke: {grid}; stroke-width: 1; }}
.chart .axis {{ stroke: {soft}; stroke-width: 1; }}
.chart .rule {{ stroke: {ink}; stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }}
.chart .bar {{ fill: {one}; }}
.chart .line {{ stroke: {two}; stroke-width: 2; fill: none; }}
.chart .whisker {{ stroke: {one}; stroke-width: 2; }}
.chart .dot {{ fill: {one}; stroke: {paper}; stroke-width: 1.5; }}
.chart .diamond {{ fill: {two}; stroke: {paper}; stroke-width: 1.5; }}
"""


def style(colours: Mapping[str, str]) -> str:
    """The style sheet of all charts in ``colours``: LIGHT, DARK, or names of a page's own."""
    return STYLE.format(fonts=FONTS, **colours)


@dataclass
class Plot:
    """x runs over ``x_range``, y over ``y_range``; what is drawn is collected in ``parts``."""

    title: str
    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    description: str
    parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def x_ticks(self, ticks: Sequence[tuple[float, str]]) -> None:
        for value, label in ticks:
            self._text(self.x(value), HEIGHT - BOTTOM + 18, label, "middle")

    def y_ticks(self, ticks: Sequence[tuple[float, str]]) -> None:
        for value, label in ticks:
            self._line("grid", LEFT, self.y(value), WIDTH - RIGHT, self.y(value))
            self._text(LEFT - 8, self.y(value) + 4, label, "end")

    def bar(self, at: float, value: float, width: float, tip: str) -> None:
        left, right = self.x(at - width / 2), self.x(at + width / 2)
        top, bottom = self.y(value), self.y(self.y_range[0])
        self.parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}">'
            f"{_tip(tip)}</rect>"
        )

    def line(self, points: Sequence[tuple[float, float]], style: str = "line") -> None:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{style}" points="{path}"/>')

    def diamond(self, at: float, value: float, tip: str = "") -> None:
        self.parts.append(_diamond(self.x(at), self.y(value), tip))

    def dot(self, at: float, value: float, radius: float = 6, tip: str = "") -> None:
        self.parts.append(_dot(self.x(at), self.y(value), radius, tip))

    def whisker(self, at: float, low: float, high: float) -> None:
        self._line("whisker", self.x(at), self.y(low), self.x(at), self.y(high))

    def label(
        self, at: float, value: float, text: str, anchor: str = "middle", *, dx: float = 0, dy: float = 0
    ) -> None:
        self._text(self.x(at) + dx, self.y(value) + dy, text, anchor, "value")

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """``entries``: a mark (bar, diamond, dot, rule) and its meaning, from left to right below the title."""
        at = float(LEFT)
        for mark, text in entries:
            if mark == "bar":
                self.parts.append(f'<rect class="bar" x="{at:.1f}" y="35" width="12" height="12"/>')
            elif mark == "diamond":
                self.parts.append(_diamond(at + 6, 41, ""))
            elif mark == "dot":
                self.parts.append(_dot(at + 6, 41, 5, ""))
            else:
                self._line("rule", at - 6, 41, at + 12, 41)
            self._text(at + 18, 45, text, "start")
            at += 42 + 7.2 * len(text)

    def svg(self, extra: str = "") -> str:
        """The chart; ``extra``: attributes of its element."""
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        self._line("axis", LEFT, bottom, right, bottom)
        self._text(LEFT, 22, self.title, "start", "title")
        self._text((LEFT + right) / 2, HEIGHT - 8, self.x_label, "middle")
        middle = (TOP + bottom) / 2
        turned = f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        self.parts.append(f"{turned}{escape(self.y_label)}</text>")
        head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.description)}"'
        return f"{head}{extra}>\n" + "\n".join(self.parts) + "\n</svg>"

    def _text(self, x: float, y: float, text: str, anchor: str, style: str = "") -> None:
        name = f' class="{style}"' if style else ""
        self.parts.append(f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def _line(self, style: str, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _dot(x: float, y: float, radius: float, tip: str) -> str:
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{_tip(tip)}</circle>'


def _diamond(x: float, y: float, tip: str) -> str:
    points = f"{x:.1f},{y - 7:.1f} {x + 7:.1f},{y:.1f} {x:.1f},{y + 7:.1f} {x - 7:.1f},{y:.1f}"
    return f'<polygon class="diamond" points="{points}">{_tip(tip)}</polygon>'


def standing_alone(plots: Sequence[Plot]) -> str:
    """One SVG file of all charts, one below the other, dark on white."""
    total = HEIGHT * len(plots)
    charts = [
        plot.svg(f' x="0" y="{HEIGHT * number}" width="{WIDTH}" height="{HEIGHT}"') for number, plot in enumerate(plots)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}">'
    paper = f'<rect width="{WIDTH}" height="{total}" fill="{LIGHT["paper"]}"/>'
    return "\n".join([head, f"<style>{style(LIGHT)}</style>", paper, *charts, "</svg>"]) + "\n"
