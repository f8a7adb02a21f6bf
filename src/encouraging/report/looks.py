"""Which colour and dashes each arm of a recipe has: the same ones in all of its figures, on the page and in Markdown.

Black is for the baseline alone. Arms that are lines of one figure have different colours, as far as there are enough;
arms that share a colour differ by their dashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain

from ..engine.records import Record
from ..recipes import Recipe
from .arms import Arm, Group, for_picking, groups_of
from .drawing.style import COLOURS, DASHES, Dash
from .sections import by_setting
from .sections.sweep import Sweep, sweeps_of

Look = tuple[str, str | Dash]


def drawn_groups(records: Iterable[Record], recipes: Mapping[str, Recipe]) -> list[Group]:
    """Runs by recipe and arm, with tags where the reader picks arms, and with the looks of all figures."""
    return [with_looks(for_picking(group)) for group in groups_of(records, recipes)]


def with_looks(group: Group) -> Group:
    """The same group with a look per arm."""
    swept = by_setting.all_sweeps(group) + sweeps_of(group)
    figures = [[arm.name for arm in group.picked or group.shown[: len(COLOURS)]], *map(_lines_of, swept)]
    names = dict.fromkeys(chain([_baseline(group)], *figures[:1], [arm.name for arm in (*group.shown, *group.arms)]))
    looks = choose_looks(list(names), figures)
    return replace(group, arms=[replace(arm, colour=looks[arm.name][0], dashes=looks[arm.name][1])
                                for arm in group.arms])


def choose_looks(names: Collection[str], figures: Iterable[Collection[str]]) -> dict[str, Look]:
    """A look per name: black for the first one, and for each of the others the colour that is used least among those
    that no line of its figures has.

    >>> choose_looks(["ce", "el", "poly"], [["ce", "el"]])["el"]
    ('#0072B2', '-')
    """
    beside: dict[str, Counter[str]] = {name: Counter() for name in names}
    for figure in figures:
        for name in figure:
            beside[name].update(other for other in figure if other != name)
    looks: dict[str, Look] = {}
    used: Counter[str] = Counter()
    for name in names:
        taken: Counter[str] = Counter()
        for other, times in beside[name].items():
            if other in looks:
                taken[looks[other][0]] += times
        palette = COLOURS[1:] if looks else COLOURS[:1]
        colour = min(palette, key=lambda each: (taken[each], used[each]))
        looks[name] = colour, DASHES[used[colour] % len(DASHES)]
        used[colour] += 1
    return looks


def _lines_of(sweep: Sweep) -> list[str]:
    return [arm.name for arm in (*map(sweep.line, sweep.bases), *sweep.references)]


def _baseline(group: Group) -> str:
    """The first arm with cross-entropy and nothing else; without one, the first arm."""
    return next((arm.name for arm in group.shown if _is_cross_entropy(arm)), group.shown[0].name)


def _is_cross_entropy(arm: Arm) -> bool:
    for record in arm.records:
        losses = record.config.get("objectives")
        return isinstance(losses, list) and len(losses) == 1 and isinstance(losses[0], Mapping) \
            and losses[0].get("curve") == "cross_entropy"
    return False
