"""Panels of one width, as SVG inside the page or together as a file for papers and slides.

A picture is a row of panels. In the page every panel is an SVG of its own, so that a phone stacks what a wide screen
shows side by side, and text keeps its size; colours become the page's CSS variables, so that light and dark both work.
As a file the panels share one canvas with titles and a legend.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from .style import MUTED, VARIABLES, Dash, page_style, quiet
from .svg import tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 344  # of a panel in CSS pixels: what a phone has room for, so that text is never scaled down
_TOP, _RIGHT, _BOTTOM = 20, 10, 34


@dataclass(frozen=True)
class Panel:
    """One set of axes. ``x`` and ``y`` say in words what they show; ``left`` is the room for the labels there, and
    ``below`` further room for long ones of the x axis. ``svg`` is what the page shows instead of the axes, where that
    is ready-made; ``tag`` is that of its one arm, where the reader picks arms."""

    draw: Callable[[Axes], None]
    title: str = ""
    x: str = ""
    y: str = ""
    height: int = 228
    left: int = 42
    svg: Markup | None = None
    below: int = 0
    tag: str | None = None


@dataclass(frozen=True)
class Key:
    """A line of the legend."""

    label: str
    colour: str
    dashes: str | Dash = "-"
    kind: str = "line"
    tag: str | None = None  # of the lines that it stands for, where the reader picks some

    @property
    def variable(self) -> str:
        return VARIABLES[self.colour]

    @property
    def stroke(self) -> str:
        """The dashes as SVG has them."""
        return _DASHES.get(self.dashes, "") if isinstance(self.dashes, str) else " ".join(map(str, self.dashes[1]))


_DASHES = {"--": "6 3", "-.": "7 3 2 3", ":": "2 3"}


@dataclass(frozen=True)
class Picture:
    """Panels with the words that belong to them; ``alt`` states the finding for those who do not see it."""

    name: str
    alt: str
    caption: str
    panels: Sequence[Panel]
    keys: Sequence[Key] = ()
    columns: int = 3

    def parts(self) -> Iterator[tuple[Panel, Markup]]:
        """Every panel with its SVG, for the page."""
        for panel in self.panels:
            yield panel, inline(panel) if panel.svg is None else panel.svg

    def svg(self) -> bytes:
        """The picture alone, on white: the same bytes for the same numbers."""
        import matplotlib

        buffer = io.BytesIO()
        with page_style(), quiet(), matplotlib.rc_context({"svg.hashsalt": self.name}):
            _sheet(self).savefig(buffer, format="svg", metadata={"Title": self.alt, "Date": None})
        return buffer.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Write the picture alone, as .svg and as .png on white."""
        paths = [folder / f"{self.name}.{kind}" for kind in ("svg", "png")]
        with page_style(), quiet():
            figure = _sheet(self)
            for path in paths:
                figure.savefig(path, dpi=200, metadata={"Title": self.alt} | ({"Date": None} if path.suffix == ".svg"
                                                                              else {}))
        return paths


def inline(panel: Panel) -> Markup:
    """A panel as SVG for the page: without a background, with CSS variables for colours, with ids of its own."""
    from matplotlib.figure import Figure

    with page_style(), quiet():
        figure = Figure(figsize=(WIDTH / 72, panel.height / 72), dpi=72)
        figure.patch.set_visible(False)
        _fill(figure, panel, 0, 0, WIDTH, panel.height)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return tidy(buffer.getvalue())


def within(limits: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    """The limits of an axis, cut off a little beyond the smallest and the largest number that can occur.

    >>> within((-0.055, 0.055), 0, 100)
    (-0.0044, 0.055)
    """
    room = 0.04 * (limits[1] - limits[0])
    return max(limits[0], low - room), min(limits[1], high + room)


def printable(name: str) -> str:
    """A name fit for SVG, which allows no control characters."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def _fill(figure: Figure, panel: Panel, x: float, y: float, width: float, height: float) -> Axes:
    """Draw a panel into a rectangle of the canvas, given in pixels from the lower left corner."""
    wide, tall = figure.get_size_inches() * 72
    bottom = (_BOTTOM if panel.x else 20) + panel.below
    top = _TOP if panel.y else 8
    axes = figure.add_axes(((x + panel.left) / wide, (y + bottom) / tall, (width - panel.left - _RIGHT) / wide,
                            (height - bottom - top) / tall))
    panel.draw(axes)
    if panel.x:
        axes.set_xlabel(panel.x, labelpad=3)
    if panel.y:  # read like a heading; turned text is slow to read
        axes.annotate(panel.y, (0, 1), (-panel.left + 1, 8), xycoords="axes fraction", textcoords="offset points",
                      color=MUTED, fontsize=11)
    return axes


def _sheet(picture: Picture) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    columns = min(picture.columns, len(picture.panels))
    rows = math.ceil(len(picture.panels) / columns)
    row, legend = picture.panels[0].height + 30, 8 + 20 * math.ceil(len(picture.keys) / (3 * columns))
    wide, tall = columns * (WIDTH + 20) + 16, rows * row + legend + 8
    with page_style():
        figure = Figure(figsize=(wide / 72, tall / 72), dpi=72)
        for number, panel in enumerate(picture.panels):
            down, right = divmod(number, columns)
            bottom = tall - (down + 1) * row - 4
            axes = _fill(figure, panel, right * (WIDTH + 20) + 8, bottom, WIDTH, panel.height)
            axes.annotate(printable(panel.title), (0, 1), (-panel.left + 1, 26 if panel.y else 12),
                          xycoords="axes fraction", textcoords="offset points", fontweight="bold")
        handles = [Line2D([], [], color=key.colour, ls=key.dashes, lw=2) if key.kind == "line"
                   else Patch(facecolor=key.colour) for key in picture.keys]
        if handles:
            figure.legend(handles, [printable(key.label) for key in picture.keys], loc="lower left",
                          ncols=min(len(handles), 3 * columns), bbox_to_anchor=(0, 0), handlelength=1.8,
                          columnspacing=1.4)
    return figure
