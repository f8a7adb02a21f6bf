"""How the report draws: panels of one width, as lean SVG inside the page or as files for papers and slides.

A picture is a row of panels. In the page every panel is an SVG of its own, so that a phone stacks what a wide screen
sets side by side and text keeps its size; colours become the page's CSS variables, so that light and dark both work.
As a file the panels share one canvas with titles and a legend.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from .figures import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, Dash, base_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MUTED, LINE, PAPER = "#5d6166", "#dfe1e4", "#ffffff"
STEPS = ("#d3d6da", "#9ecae1", "#4292c6", "#084594")  # from what is not learned yet to what is learned best
COLOURS = (BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
VARIABLES = {BLACK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper", BLUE: "c1", VERMILION: "c2", GREEN: "c3",
             PURPLE: "c4", ORANGE: "c5", SKY: "c6", **{colour: f"s{i}" for i, colour in enumerate(STEPS)}}
WIDTH = 344  # of a panel in CSS pixels: what a phone has room for, so that text is never scaled down
_TOP, _RIGHT, _BOTTOM = 20, 10, 34


@dataclass(frozen=True)
class Panel:
    """One set of axes. ``x`` and ``y`` say in words what they show; ``left`` is the room for the labels there."""

    draw: Callable[[Axes], None]
    title: str = ""
    x: str = ""
    y: str = ""
    height: int = 228
    left: int = 42


@dataclass(frozen=True)
class Key:
    """A line of the legend."""

    label: str
    colour: str
    dashes: str | Dash = "-"
    kind: str = "line"

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

    def parts(self) -> Iterator[tuple[str, Markup]]:
        """Title and SVG of every panel, for the page."""
        for panel in self.panels:
            yield panel.title, inline(panel)

    def save(self, folder: Path) -> list[Path]:
        """Write the picture alone, as .svg and as .png on white."""
        paths = [folder / f"{self.name}.{kind}" for kind in ("svg", "png")]
        with style(), quiet():
            figure = _sheet(self)
            for path in paths:
                figure.savefig(path, dpi=200, metadata={"Title": self.alt} | ({"Date": None} if path.suffix == ".svg"
                                                                              else {}))
        return paths


@contextmanager
def style() -> Iterator[None]:
    import matplotlib

    settings: Any = {
        "font.size": 11, "axes.edgecolor": MUTED, "axes.facecolor": "none", "axes.linewidth": 0.8, "grid.color": LINE,
        "grid.linewidth": 0.8, "axes.spines.left": False, "xtick.color": MUTED, "ytick.color": MUTED,
        "xtick.major.size": 0, "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0,
        "xtick.labelsize": 11, "ytick.labelsize": 11, "axes.labelcolor": MUTED, "axes.labelsize": 11,
        "axes.titlesize": 11.5, "axes.unicode_minus": True, "text.parse_math": False, "text.color": BLACK,
        "lines.solid_capstyle": "round", "path.simplify": True, "path.simplify_threshold": 0.3,
        "axes.formatter.use_mathtext": False, "axes.formatter.useoffset": False,
    }
    with base_style(), matplotlib.rc_context(settings):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """The page's text is set by the browser: that a font here lacks a letter of some name is of no interest."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*Glyph.* missing from", category=UserWarning)
        yield


def inline(panel: Panel) -> Markup:
    """A panel as SVG for the page: without a background, with CSS variables for colours, with ids of its own."""
    from matplotlib.figure import Figure

    with style(), quiet():
        figure = Figure(figsize=(WIDTH / 72, panel.height / 72), dpi=72)
        figure.patch.set_visible(False)
        _fill(figure, panel, 0, 0, WIDTH, panel.height)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return tidy(buffer.getvalue())


def printable(name: str) -> str:
    """A name fit for SVG, which allows no control characters."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def _fill(figure: Figure, panel: Panel, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place of the canvas given in pixels from its lower left corner, drawn."""
    wide, tall = figure.get_size_inches() * 72
    bottom = _BOTTOM if panel.x else 20
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
    with style():
        figure = Figure(figsize=(wide / 72, tall / 72), dpi=72)
        for place, panel in enumerate(picture.panels):
            down, right = divmod(place, columns)
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


_IDS = count(1)
_NUMBERS = re.compile(r"-?\d+\.\d+")
_FONT = re.compile(r"font(?:-family|-stretch|-style)?: [^;]*;? ?")
_SIZE = re.compile(r"([\d.]+)px")
_USELESS = re.compile(r"stroke-linejoin: miter; ?|stroke-linecap: (?:square|butt); ?")


def tidy(svg: str) -> Markup:
    """matplotlib's SVG made fit for standing in a page, beside others and in any colour scheme."""
    root = ET.fromstring(svg)
    texts = [node.attrib.get("href") or node.attrib.get("{http://www.w3.org/1999/xlink}href", "")
             for node in root.iter()] + [" ".join(node.attrib.values()) for node in root.iter()]
    used = set(re.findall(r"url\(#([^)]+)\)", " ".join(texts))) | {text[1:] for text in texts if text.startswith("#")}
    names = {name: f"p{next(_IDS)}" for name in sorted(used)}
    root.attrib = {"viewBox": root.attrib["viewBox"], "aria-hidden": "true"}
    _clean(root, names)
    return Markup(ET.tostring(root, encoding="unicode", short_empty_elements=True))


def _clean(node: ET.Element, names: dict[str, str]) -> None:
    node.tag = node.tag.rpartition("}")[2]
    node.tail = None
    if node.tag != "text":
        node.text = None
    kept: list[ET.Element] = []
    for child in list(node):
        name = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else "comment"
        if name in ("metadata", "comment", "style"):
            continue
        child.attrib = {key.rpartition("}")[2]: _attribute(key.rpartition("}")[2], value, names)
                        for key, value in child.attrib.items() if key != "id" or value in names}
        _clean(child, names)
        if child.tag == "g" and not child.attrib:
            kept.extend(child)
        elif child.tag != "defs" or len(child):
            kept.append(child)
    node[:] = kept


def _attribute(key: str, value: str, names: dict[str, str]) -> str:
    if key == "id":
        return names[value]
    if key == "href":
        return f"#{names[value[1:]]}"
    if key == "clip-path":
        return f"url(#{names[value[5:-1]]})"
    if key == "style":
        for colour, variable in VARIABLES.items():
            value = re.sub(colour, f"var(--{variable})", value, flags=re.IGNORECASE)
        if "font" in value and (size := _SIZE.search(value)):
            bold = "font-weight: 700; " if "bold" in value or "700" in value.split("px")[0] else ""
            value = f"font-size: {size[1]}px; {bold}{_FONT.sub('', value)}"
        return _USELESS.sub("", value).strip()
    if key in ("d", "transform", "x", "y", "width", "height", "points"):
        return " ".join(_NUMBERS.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value).split())
    return value
