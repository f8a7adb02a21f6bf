"""Pictures of the curves: the loss over p, as the paper draws it, and the pull over the gap, where they differ most.

Figures are built without pyplot, so drawing one changes nothing in the caller's session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...curves import Curve, aggressive, conservative, cross_entropy, focal, halted_focal, normal
from ...curves._curve import logit
from ...errors import ArgumentError
from .style import BLACK, BLUE, BROWN, GREEN, GREY, INDIGO, PURPLE, RAMP, VERMILION, Dash, base_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_P_TICKS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_GAPS = (logit(0.004), logit(0.999997))


class Line(NamedTuple):
    """One curve in a panel: what it is called and how its value and pull are drawn."""

    label: str
    value: Callable[[Tensor], Tensor]
    pull: Callable[[Tensor], Tensor]
    colour: str
    dashes: str | Dash = "-"
    width: float = 2.0


def paper_curves() -> Figure:
    """The paper's Figures 2 and 3 and their relatives: losses over p above, pulls over the gap below."""
    ce, el = cross_entropy(), normal(0)
    sum_of_two = [
        _line(ce, "cross-entropy, −log p", BLACK, "--"),
        Line("bonus, log(1−p)", lambda gap: el.value(gap) - ce.value(gap), torch.sigmoid, VERMILION, "-."),
        _line(el, "encouraging loss: their sum", BLUE, "-", 2.6),
    ]
    conservatives = [
        _line(ce, "no bonus (cross-entropy)", BLACK, "--"),
        *(_line(conservative(log_end), f"LE = {log_end:g}", colour) for log_end, colour in
          zip((0.0, 0.25, 0.5, 0.75), RAMP, strict=False)),
        _line(normal(), "LE = 1 (normal bonus)", RAMP[-1], "-", 2.6),
    ]
    relatives = [
        _line(normal(), "normal bonus", RAMP[-1], "-", 3.4),
        _line(aggressive(0.5), "aggressive from p = 0.5", GREEN, (0, (4, 1.2)), 2.2),
        _line(halted_focal(2.0, 0.5), "halted focal, γ = 2", VERMILION, "-", 3.0),
        _line(ce, "cross-entropy", BLACK, "--"),
        _line(focal(2.0), "focal, γ = 2", PURPLE, ":", 2.4),
    ]
    figure = _panels([
        ("The encouraging loss is\ncross-entropy plus a bonus", sum_of_two),
        ("Conservative bonuses: the log ends\nat p = LE and a line goes on", conservatives),
        ("More attention to what is\nlearned already, and less", relatives),
    ])
    clamp = figure.axes[-1]
    clamp.annotate("the clamp at\n1 − p = 0.00001", (logit(1 - 1e-5), 0.62), (-6, 0), textcoords="offset points",
                   ha="right", va="center", fontsize=9, color="#444444")
    return figure


def chosen_curves(curves: Sequence[Curve]) -> Figure:
    """Losses and pulls of any curves, named by their own ``repr``."""
    if not curves:
        raise ArgumentError("chosen_curves([]): expected at least one curve to draw.")
    colours, dashes = cycle((BLUE, VERMILION, GREEN, PURPLE, BROWN, BLACK, INDIGO)), cycle(("-", "--", "-.", ":"))
    return _panels([("", [_line(curve, repr(curve), next(colours), next(dashes)) for curve in curves])])


def save(figure: Figure, path: Path) -> None:
    """Write a figure as .svg, .png or .pdf. The same figure gives the same svg, byte for byte; its text stays text."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in {"svg", "png", "pdf"}:
        raise ArgumentError(f"{path}: expected a name that ends in .svg, .png or .pdf.")
    if not path.parent.is_dir():
        raise ArgumentError(f"{path}: there is no folder {path.parent}; create it first.")
    title = {"Title": "Losses over the label's probability, and their pulls over the gap"}
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    try:
        with base_style():
            figure.savefig(path, format=kind, metadata=title | dates[kind], dpi=160)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be written to ({error}). Choose another place.") from error


def _line(curve: Curve, label: str, colour: str, dashes: str | Dash = "-",
          width: float = 2.0) -> Line:
    return Line(label, curve.value, curve.pull, colour, dashes, width)


def _panels(columns: Sequence[tuple[str, Sequence[Line]]]) -> Figure:
    from matplotlib.figure import Figure

    with base_style():
        figure = Figure(figsize=(max(4.5 * len(columns), 6.4), 7.4), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[union-attr, call-arg]
        grid = figure.subplots(2, len(columns), squeeze=False)
        for column, (title, lines) in enumerate(columns):
            _draw_values(grid[0][column], lines, title)
            _draw_pulls(grid[1][column], lines)
            if column == 0:
                grid[0][column].set_ylabel("loss")
                grid[1][column].set_ylabel("pull = −d loss / d gap")
        for axes in grid[1]:
            axes.set_ylim(-0.05, max(1.06, *(axes.dataLim.y1 + 0.04 for axes in grid[1])))
        # Text is laid out here, under the style: savefig alone would measure it with the caller's settings.
        figure.draw_without_rendering()
    return figure


def _draw_values(axes: Axes, lines: Iterable[Line], title: str) -> None:
    p = torch.linspace(0.002, 0.998, 500, dtype=torch.float64)
    values = [line.value(torch.logit(p)) for line in lines]
    for line, value in zip(lines, values, strict=True):
        axes.plot(p.numpy(), value.numpy(), color=line.colour, ls=line.dashes, lw=line.width, label=line.label)
    axes.axhline(0, color=GREY, lw=0.8, zorder=1)
    axes.set(xlim=(0, 1), ylim=_limits(values), xlabel="probability p of the label", title=title)
    axes.legend(loc="lower left")


def _limits(values: Sequence[Tensor]) -> tuple[float, float]:
    """Where the interesting part of the losses lies: their poles at p = 0 and p = 1 are cut off."""
    low = max(min(float(value.min()) for value in values), -5.6)
    high = min(max(float(value.max()) for value in values), 3.2)
    return low - 0.05 * (high - low), high


def _draw_pulls(axes: Axes, lines: Iterable[Line]) -> None:
    gap = torch.linspace(*_GAPS, 801, dtype=torch.float64)
    for line in lines:
        axes.plot(gap.numpy(), line.pull(gap).numpy(), color=line.colour, ls=line.dashes, lw=line.width)
    axes.axhline(0, color=GREY, lw=0.8, zorder=1)
    axes.set(xlim=_GAPS, xlabel="gap = label's logit − logsumexp of its rivals")
    above = axes.secondary_xaxis("top")
    above.set_xticks([logit(p) for p in _P_TICKS], [_percent(p) for p in _P_TICKS], fontsize=8.5)
    above.set_xlabel("the same as p", fontsize=9)
    above.spines["top"].set_visible(False)


def _percent(p: float) -> str:
    """0.999 as 99.9%, with no digit more than it needs."""
    return f"{100 * p:.{max(0, -math.floor(math.log10(1 - p) + 1e-9) - 2)}f}%"
