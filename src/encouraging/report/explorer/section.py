"""The part of the report that answers to the reader: any curve, moved by its parameters, against cross-entropy."""

from __future__ import annotations

import inspect
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ... import curves

GROUPS = {
    "With a bonus": {
        "encouraging": "encouraging loss, LE from 0 to 1",
        "normal": "normal bonus",
        "conservative": "conservative bonus",
        "aggressive": "aggressive bonus",
        "power": "power of p",
        "poly": "poly loss",
    },
    "Without one": {
        "cross_entropy": "cross-entropy",
        "focal": "focal loss",
        "halted_focal": "halted focal loss",
    },
}


class Slider(NamedTuple):
    """One parameter, in the range worth looking at. That of ``eps`` is its decimal exponent, whose lowest means 0."""

    param: str
    words: str
    low: float
    high: float
    step: float
    value: float


def _default(curve: str, param: str) -> float:
    number: float = inspect.signature(getattr(curves, curve)).parameters[param].default
    return number


SLIDERS = (
    Slider("log_end", "LE: where the log becomes a line", 0, 1, 0.01, _default("encouraging", "log_end")),
    Slider("start", "start: p from which it rewards", 0, 0.95, 0.01, _default("aggressive", "start")),
    Slider("exponent", "exponent: the power of p", 0, 6, 0.1, _default("power", "exponent")),
    Slider("weight", "weight: the size of the bonus", 0, 4, 0.1, _default("power", "weight")),
    Slider("epsilon", "ε: weight of 1 − p", -1, 4, 0.1, _default("poly", "epsilon")),
    Slider("gamma", "γ: how far the learned is turned down", 0, 5, 0.1, _default("focal", "gamma")),
    Slider("halt", "halt: p at which focal ends", 0, 1, 0.01, _default("halted_focal", "halt")),
    Slider("eps", "eps: clamp of 1 − p", -8, -2, 1, -5),
)


def explorer() -> Markup:
    """The section as HTML that needs nothing beside itself.

    It takes its colours from the page's ``--ink``, ``--muted``, ``--line``, ``--paper`` and ``--accent``, and stands on
    its own without them. There is room for one on a page.

    >>> explorer().startswith('<section id="explorer"')
    True
    """
    script = resources.files(__package__).joinpath("explorer.js").read_text(encoding="utf-8")
    pages = Environment(loader=PackageLoader("encouraging.report.explorer", "."), autoescape=True,
                        undefined=StrictUndefined, trim_blocks=True)
    return Markup(pages.get_template("explorer.html.j2").render(groups=GROUPS, sliders=SLIDERS, script=Markup(script)))
