"""Arms of a recipe that differ in one number alone, such as a learning rate: every metric over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from ...recipes.schema import Swept
from ..arms import Arm, Group
from .parts import Section
from .sweep import Sweep, sort_key, sweep_section

LEAST = 3  # values that a line needs for a section of its own
_PARTS = ("objectives", "train", "options", "model_options")  # where arms have their settings
_NOTE = ("The best value of a line was found on the same test data; whether it beats the other values is not tested. "
         "Comparisons that were planned beforehand are among the claims.")


def sections(group: Group) -> list[Section]:
    """One section per numeric setting of which some arms, equal in everything else, have several values."""
    drawn = [sweep for sweep in all_sweeps(group) if _has_a_line(sweep)]
    return [sweep_section(f"setting-{number}", "What {} changes", sweep, group.metrics, _NOTE)
            for number, sweep in enumerate(drawn, 1)]


def all_sweeps(group: Group) -> list[Sweep]:
    """The arms over every numeric setting in which they differ."""
    unswept = replace(group, arms=[arm for arm in group.arms if arm.swept is None])
    return [sweep_over(unswept, key) for key in _numbers(unswept.arms)]


def _has_a_line(sweep: Sweep) -> bool:
    """Whether one line has enough values, and none has two arms for one."""
    counts = [(len(points), len({sort_key(values[0]) for values, _ in points})) for points in
              map(sweep.points, sweep.bases)]
    return any(distinct >= LEAST for _, distinct in counts) and all(arms == distinct for arms, distinct in counts)


def sweep_over(group: Group, key: str) -> Sweep:
    """The arms grouped by all their other settings, and by the value of this one. Arms that a claim compares with one
    of these are included: as points where they have the setting, as references where they do not."""
    by_other_settings: dict[str, list[Arm]] = {}
    for arm in group.arms:
        by_other_settings.setdefault(repr(_without_setting(arm.records[0].config, key)), []).append(arm)
    split = [([arm for arm in same_otherwise if setting_at(arm.records[0].config, key) is not None], same_otherwise)
             for same_otherwise in by_other_settings.values()]
    lines = [with_setting for with_setting, _ in split if len(with_setting) > 1]
    on_a_line = {arm.name for line in lines for arm in line}
    lacking_setting = {arm.name for with_setting, same_otherwise in split if len(with_setting) > 1
                       for arm in same_otherwise} - on_a_line
    claims = group.recipe.claims if group.recipe is not None else ()
    claimed_beside = {name for claim in claims if not on_a_line.isdisjoint((claim.arm, claim.beats or ""))
                      for name in (claim.arm, claim.beats)} - on_a_line
    references = [arm for arm in group.arms if arm.name in claimed_beside | lacking_setting]
    lines += [[arm] for arm in references if setting_at(arm.records[0].config, key) is not None]
    arms = [replace(arm, swept=Swept(arm=base, values={key: value}))
            for base, line in zip(_bases(lines), lines, strict=True)
            for arm, value in zip(line, _values(line, key), strict=True)]
    return Sweep((key,), arms, [arm for arm in references if setting_at(arm.records[0].config, key) is None])


def _values(arms: Sequence[Arm], key: str) -> list[Any]:
    return [setting_at(arm.records[0].config, key) for arm in arms]


def _numbers(arms: Sequence[Arm]) -> list[str]:
    """The settings that are numbers and not the same in all arms and seeds, one value per arm."""
    values_of: dict[str, dict[Any, None]] = {}
    mixed: set[str] = set()
    for arm in arms:
        first_values: dict[str, Any] = {}
        for record in arm.records:
            for key, value in _leaves(record.config):
                if first_values.setdefault(key, value) != value:
                    mixed.add(key)
                values_of.setdefault(key, {})[sort_key(value)] = None
    return [key for key, values in values_of.items() if len(values) > 1 and key not in mixed]


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for table in _PARTS:
        settings = config.get(table)
        settings = settings[0] if isinstance(settings, list) and settings else settings
        for name, value in settings.items() if isinstance(settings, Mapping) else ():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield (name if table == "objectives" else f"{table}.{name}"), value


def _bases(lines: Sequence[Sequence[Arm]]) -> list[str]:
    """A name per line: what the names of its arms have in common, or where that is ambiguous the name of the first arm.
    """
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


def _without_setting(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Settings without one of them (of every stage), without names, and without the seed."""
    head, _, inner_key = _full_key(config, key).partition(".")
    settings = {name: value for name, value in config.items() if name not in ("arm", "seed")}
    inner = settings.get(head)
    if inner_key and isinstance(inner, Mapping):
        return {**settings, head: _without_setting(inner, inner_key)}
    if inner_key and isinstance(inner, list):
        return {**settings, head: [_without_setting(stage, inner_key) if isinstance(stage, Mapping) else stage
                                   for stage in inner]}
    settings.pop(head, None)
    return settings


def setting_at(config: Mapping[str, Any], key: str) -> Any:
    """A setting; of a list of stages the first one's."""
    head, _, inner_key = _full_key(config, key).partition(".")
    inner = config.get(head)
    if inner_key and isinstance(inner, list):
        inner = inner[0] if inner else None
    return inner if not inner_key else setting_at(inner, inner_key) if isinstance(inner, Mapping) else None


def _full_key(config: Mapping[str, Any], key: str) -> str:
    """The path of a setting: recipes give those of the loss to the arm itself."""
    return key if key.partition(".")[0] in config or "objectives" not in config else f"objectives.{key}"
