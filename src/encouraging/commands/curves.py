"""``encouraging curves``: draw losses and their pulls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..curves import Curve, by_name, catalogue
from ..errors import CurveError
from ..report.drawing.curves import chosen_curves, paper_curves, save


def draw_curves(specs: Sequence[str], out: Path) -> None:
    """Draw the curves of these specifications, or without any the paper's, into a .svg, .png or .pdf file."""
    chosen = [parse_curve(spec) for spec in specs]
    save(chosen_curves(chosen) if chosen else paper_curves(), out)


def parse_curve(spec: str) -> Curve:
    """The curve that an argument of the command line names.

    >>> parse_curve("halted_focal:gamma=1,halt=0.6")
    halted_focal(gamma=1.0, halt=0.6)
    """
    name, _, inside = spec.partition(":")
    params: dict[str, float | bool] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals:
            known = catalogue().get(name.strip())
            example = f", such as {known.name}:{known.parameters[0].name}=..." if known and known.parameters else ""
            raise CurveError(f"--curve {spec}: expected PARAM=VALUE after the colon{example}; got {part!r}.")
        if key in params:
            raise CurveError(f"--curve {spec}: {key} is given twice; for two curves write --curve twice.")
        if text.lower() in {"true", "false"}:
            params[key] = text.lower() == "true"
            continue
        try:
            params[key] = float(text)
        except ValueError:
            raise CurveError(f"--curve {spec}: {key} must be a number, got {text!r}.") from None
    return by_name(name.strip(), **params)
