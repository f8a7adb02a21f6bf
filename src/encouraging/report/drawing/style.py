"""Colours, line styles and settings of matplotlib.

Colours are told apart by readers with any colour vision: Okabe and Ito's set, with dashes in addition, and a ramp from
light to dark of one hue for an ordered family. All have a contrast of at least 3 to white; brown and indigo are in the
place of that set's orange and sky blue, which have 2.3.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Dash = tuple[float, tuple[float, ...]]

BLACK, BLUE, VERMILION, GREEN, PURPLE, BROWN, INDIGO = (
    "#1a1a1a", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#803B00", "#2F1FB0")
RAMP = ("#449acb", "#2f84bf", "#1c69a8", "#0b4c8a", "#08265c")
GREY = "#8a8a8a"
MUTED, LINE, PAPER = "#5d6166", "#dfe1e4", "#ffffff"
STEPS = ("#d3d6da", "#9ecae1", "#4292c6", "#084594")  # from examples not learned yet to those learned best
COLOURS = (BLACK, BLUE, VERMILION, GREEN, PURPLE, BROWN, INDIGO)
DASHES: tuple[str | Dash, ...] = ("-", "--", "-.", ":")
# Colours of figures and the page's CSS variables that replace them.
VARIABLES = {BLACK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper", BLUE: "c1", VERMILION: "c2", GREEN: "c3",
             PURPLE: "c4", BROWN: "c5", INDIGO: "c6", **{colour: f"s{i}" for i, colour in enumerate(STEPS)}}


def look(index: int) -> tuple[str, str | Dash]:
    """A colour per arm; the dashes change when the colours repeat."""
    return COLOURS[index % len(COLOURS)], DASHES[(index // len(COLOURS)) % len(DASHES)]


@contextmanager
def base_style() -> Iterator[None]:
    import matplotlib

    settings: Any = {
        "font.size": 10.5, "axes.titlesize": 11.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
        "axes.titlepad": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY,
        "axes.grid": True, "grid.color": "#e9e9e9", "grid.linewidth": 0.8, "axes.axisbelow": True,
        "xtick.color": "#444444", "ytick.color": "#444444", "axes.labelcolor": "#222222",
        "legend.frameon": False, "legend.fontsize": 9.5, "legend.handlelength": 2.6,
        "svg.fonttype": "none", "svg.hashsalt": "encouraging", "savefig.facecolor": "white", "pdf.fonttype": 42,
    }
    with matplotlib.rc_context(settings):
        yield


@contextmanager
def page_style() -> Iterator[None]:
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
    """Without warnings about letters that matplotlib's font lacks: the browser sets the page's text in its own font."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*Glyph.* missing from", category=UserWarning)
        yield
