"""The interactive section of the report: any curve, moved by its parameters, beside cross-entropy.

Curves, parameters, defaults and ranges come from the catalogue. A curve whose formula is in ``formulas.js`` is computed
by the page; any other curve is drawn from samples at its default parameters.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import torch
from markupsafe import Markup

from ...curves import Entry, catalogue
from ..templates import template

GROUPS = {"bonus": "With a bonus", "no bonus": "Without a bonus"}
FIRST, LAST, STEP = -10.0, 16.0, 0.1  # the gaps of samples; the pictures show -9 to 14


def explorer() -> Markup:
    """The section as HTML that needs no other files.

    It takes its colours from the page's ``--ink``, ``--muted``, ``--line``, ``--paper`` and ``--accent``, and works
    without them. A page can have one explorer.

    >>> explorer().startswith('<section id="explorer"')
    True
    """
    formulas, script = (_text(name) for name in ("formulas.js", "explorer.js"))
    entries = list(catalogue().values())
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(GROUPS.get(entry.group, entry.group.capitalize()), []).append(entry)
    with_formula = formula_names(formulas)
    params = dict.fromkeys(param.name for entry in entries if entry.name in with_formula for param in entry.parameters)
    page = template("explorer.html.j2", "encouraging.report.explorer", lstrip_blocks=False)
    return Markup(page.render(
        groups=groups, params=list(params), script=Markup(f"{formulas}\n{script}"),
        catalogue=[describe(entry, entry.name in with_formula) for entry in entries]))


def formula_names(script: str | None = None) -> set[str]:
    """The curves that the page computes by a formula of its own."""
    return set(re.findall(r"^formulas\.(\w+) = ", script or _text("formulas.js"), re.MULTILINE))


def describe(entry: Entry, has_formula: bool) -> dict[str, Any]:
    """What the script needs to know about a curve."""
    described = {"name": entry.name, "parameters": [param._asdict() for param in entry.parameters]}
    return described if has_formula else described | {"samples": samples(entry)}


def samples(entry: Entry) -> dict[str, Any]:
    """Value and pull of the curve at its defaults, on an even grid of gaps."""
    curve = entry.factory()
    gap = torch.arange(round((LAST - FIRST) / STEP) + 1, dtype=torch.float64) * STEP + FIRST
    return {"first": FIRST, "step": STEP, "value": _rounded(curve.value(gap)), "pull": _rounded(curve.pull(gap))}


def _rounded(numbers: torch.Tensor) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers.tolist()]


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
