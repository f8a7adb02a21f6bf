"""The shortest way to write a path of straight lines: tenths of a pixel, relative, with ``h`` and ``v``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

_TOKENS = re.compile(r"[A-Za-z]|-?\d+(?:\.\d+)?(?:e-?\d+)?")
_SLACK = 0.6  # pixels by which a line may leave its axes without being cut off


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def of(cls, rect: Mapping[str, str]) -> Box:
        x, y, width, height = (float(rect[key]) for key in ("x", "y", "width", "height"))
        return cls(x, y, x + width, y + height)

    def holds(self, x: float, y: float) -> bool:
        return (self.left - _SLACK <= x <= self.right + _SLACK) and (self.top - _SLACK <= y <= self.bottom + _SLACK)

    @property
    def path(self) -> str:
        left, top, right, bottom = (round(10 * end) for end in self)
        return f"M{_tenths(left)} {_tenths(top)}H{_tenths(right)}V{_tenths(bottom)}H{_tenths(left)}z"


def shorter(d: str, clip: Box | None = None) -> tuple[str, bool]:
    """A path in fewer letters, and whether all of it lies within ``clip``.

    >>> shorter("M 10 136 L 10 131.5 L 16.8 131.5 L 23.5 131.5 z")[0]
    'M10 136v-4.5h13.5z'
    """
    inside, strokes = True, []
    for line, closed in _lines(d):
        if line is None:  # curves stay as they are
            return re.sub(r"\s*([A-Za-z])\s*", r"\1", _rounded(d)), clip is None
        inside = inside and (clip is None or all(clip.holds(x, y) for x, y in line))
        strokes.append(_short(line) + ("z" if closed else ""))
    return "".join(strokes), inside


def shifted(d: str, dx: float, dy: float) -> str:
    """The path moved; every coordinate of it is absolute, as matplotlib writes them."""
    numbers = 0

    def move(match: re.Match[str]) -> str:
        nonlocal numbers
        if match[0].isalpha():
            return match[0]
        numbers += 1
        return f"{float(match[0]) + (dx if numbers % 2 else dy):.3f}"
    return _TOKENS.sub(move, d)


def circle_radius(d: str) -> float | None:
    """The radius, where the path is matplotlib's circle around 0: eight curves that start at its lowest point."""
    tokens = _TOKENS.findall(d)
    if tokens.count("C") != 8 or tokens[:2] != ["M", "0"] or "L" in tokens:
        return None
    return abs(float(tokens[2]))


def _lines(d: str) -> Iterator[tuple[list[tuple[float, float]] | None, bool]]:
    """The strokes of a path as points, and whether each is closed; None for one with curves."""
    tokens = _TOKENS.findall(d)
    line: list[tuple[float, float]] = []
    i = 0
    while i < len(tokens):
        match tokens[i]:
            case "M" | "L" as letter:
                if letter == "M" and line:
                    yield line, False
                    line = []
                line.append((float(tokens[i + 1]), float(tokens[i + 2])))
                i += 3
            case "z" | "Z":
                yield line, True
                line = []
                i += 1
            case _:
                yield None, False
                return
    if line:
        yield line, False


def _short(line: list[tuple[float, float]]) -> str:
    points = [(round(10 * x), round(10 * y)) for x, y in line]
    steps: list[list[int]] = []
    for (x0, y0), (x1, y1) in pairwise(points):
        dx, dy = x1 - x0, y1 - y0
        flat = steps and ((dy == steps[-1][1] == 0 and dx * steps[-1][0] > 0)
                          or (dx == steps[-1][0] == 0 and dy * steps[-1][1] > 0))
        if flat:  # in the same direction as the step before
            steps[-1] = [steps[-1][0] + dx, steps[-1][1] + dy]
        elif dx or dy:
            steps.append([dx, dy])
    text, letter = f"M{_tenths(points[0][0])} {_tenths(points[0][1])}", ""
    for dx, dy in steps or [[0, 0]]:
        if dy == 0 or dx == 0:
            letter = ""
            text += f"h{_tenths(dx)}" if dy == 0 else f"v{_tenths(dy)}"
        else:
            x, y = _tenths(dx), _tenths(dy)
            text += ("l" if letter != "l" else "" if x[0] == "-" else " ") + x + ("" if y[0] == "-" else " ") + y
            letter = "l"
    return text


def _rounded(d: str) -> str:
    return _TOKENS.sub(lambda match: match[0] if match[0].isalpha() else _tenths(round(10 * float(match[0]))), d)


def _tenths(value: int) -> str:
    """
    >>> _tenths(-5), _tenths(120), _tenths(1234)
    ('-.5', '12', '123.4')
    """
    units, tenth = divmod(abs(value), 10)
    text = f"{units or ''}{f'.{tenth}' if tenth else ''}" or "0"
    return f"-{text}" if value < 0 else text
