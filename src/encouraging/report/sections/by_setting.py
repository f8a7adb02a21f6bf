"""Arms of a recipe that differ in one number alone, such as a learning rate: every metric over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from ...recipes.schema import Swept
from ..arms import Arm, Group
from .parts import Section
from .sweep import Sweep, order, sweep_section

LEAST = 3  # values that one line must have to be drawn without being asked for
_PARTS = ("objectives", "train", "options", "model_options")  # where arms have their settings
_NOTE = ("Where a line is best was seen on the same test data. What was asked beforehand stands under the claims.")


def sections(group: Group) -> list[Section]:
    """One section per number of which a group of arms has several values and which tells nothing else apart."""
    own = replace(group, arms=[arm for arm in group.arms if arm.swept is None])
    found = [over(own, key) for key in _numbers(own.arms)]
    drawn = [sweep for sweep in found if _has_a_line(sweep)]
    return [sweep_section(f"setting-{number}", "What {} changes", sweep, group.metrics, _NOTE)
            for number, sweep in enumerate(drawn, 1)]


def _has_a_line(sweep: Sweep) -> bool:
    """Whether one line has enough values, and none has two arms for one."""
    counts = [(len(points), len({order(values[0]) for values, _ in points})) for points in
              map(sweep.points, sweep.bases)]
    return any(distinct >= LEAST for _, distinct in counts) and all(arms == distinct for arms, distinct in counts)


def over(group: Group, key: str) -> Sweep:
    """The arms by what they are apart from the setting, and by its value; beside them those that a claim compares with
    one of them, as points where they have the setting too."""
    together: dict[str, list[Arm]] = {}
    for arm in group.arms:
        together.setdefault(repr(_without(arm.records[0].config, key)), []).append(arm)
    split = [([arm for arm in members if at(arm.records[0].config, key) is not None], members)
             for members in together.values()]
    lines = [have for have, _ in split if len(have) > 1]
    inside = {arm.name for members in lines for arm in members}
    without = {arm.name for have, members in split if len(have) > 1 for arm in members} - inside
    claims = group.recipe.claims if group.recipe is not None else ()
    named = {name for claim in claims if not inside.isdisjoint((claim.arm, claim.beats or ""))
             for name in (claim.arm, claim.beats)} - inside | without
    others = [arm for arm in group.arms if arm.name in named]
    lines += [[arm] for arm in others if at(arm.records[0].config, key) is not None]
    arms = [replace(arm, swept=Swept(arm=base, values={key: value}))
            for base, members in zip(_bases(lines), lines, strict=True)
            for arm, value in zip(members, _values(members, key), strict=True)]
    return Sweep((key,), arms, [arm for arm in others if at(arm.records[0].config, key) is None])


def _values(arms: Sequence[Arm], key: str) -> list[Any]:
    return [at(arm.records[0].config, key) for arm in arms]


def _numbers(arms: Sequence[Arm]) -> list[str]:
    """The settings that are numbers and not the same in all arms and seeds, one value per arm."""
    every: dict[str, dict[Any, None]] = {}
    mixed: set[str] = set()
    for arm in arms:
        seen: dict[str, Any] = {}
        for record in arm.records:
            for key, value in _leaves(record.config):
                if seen.setdefault(key, value) != value:
                    mixed.add(key)
                every.setdefault(key, {})[order(value)] = None
    return [key for key, values in every.items() if len(values) > 1 and key not in mixed]


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for part in _PARTS:
        below = config.get(part)
        below = below[0] if isinstance(below, list) and below else below
        for name, value in below.items() if isinstance(below, Mapping) else ():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield (name if part == "objectives" else f"{part}.{name}"), value


def _bases(lines: Sequence[Sequence[Arm]]) -> list[str]:
    """A name per line: what the names of its arms have in common, or the first of them where others have that too."""
    stems, first = [_stem([arm.name for arm in members]) for members in lines], [members[0].name for members in lines]
    names = [stem if stems.count(stem) == 1 else name for stem, name in zip(stems, first, strict=True)]
    return names if len(set(names)) == len(names) else first


def _stem(names: Sequence[str]) -> str:
    """What the names of arms have in common.

    >>> _stem(["ce_025", "ce_1"])
    'ce'
    """
    shared = list(takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))
    return "".join(letters[0] for letters in shared).rstrip("_-.") or names[0]


def _without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Settings without one of them (of every stage), without names, and without the seed."""
    head, _, rest = _placed(config, key).partition(".")
    kept = {name: value for name, value in config.items() if name not in ("arm", "seed")}
    below = kept.get(head)
    if rest and isinstance(below, Mapping):
        return {**kept, head: _without(below, rest)}
    if rest and isinstance(below, list):
        return {**kept, head: [_without(stage, rest) if isinstance(stage, Mapping) else stage for stage in below]}
    kept.pop(head, None)
    return kept


def at(config: Mapping[str, Any], key: str) -> Any:
    """A setting; of a list of stages the first one's."""
    head, _, rest = _placed(config, key).partition(".")
    below = config.get(head)
    if rest and isinstance(below, list):
        below = below[0] if below else None
    return below if not rest else at(below, rest) if isinstance(below, Mapping) else None


def _placed(config: Mapping[str, Any], key: str) -> str:
    """The path of a setting: recipes give those of the loss to the arm itself."""
    return key if key.partition(".")[0] in config or "objectives" not in config else f"objectives.{key}"
