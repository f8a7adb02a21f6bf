"""Figures in a Markdown page, drawn from the records: metrics of a recipe's arms over a setting in which they differ.

A figure stands between ``<!-- figure: RECIPE over KEY: METRIC METRIC ... -->`` and ``<!-- end of figure -->``; KEY is a
setting such as ``train.lr``, ``model_options.head_scale`` or, of the loss, ``log_end``. It is the picture (in
``images/`` beside the page), the numbers as a table, and what the claims say about the setting. ``over epsilon`` draws
accuracy under attacks, which are named instead of metrics (``markdown_attacks.py``).
``encouraging results --update FILE`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from ..engine import Metric
from ..engine.records import Record
from ..errors import ArgumentError, did_you_mean
from ..recipes import kept_recipes, names, read_recipe
from ..recipes.sweep import value_word
from .arms import Arm, Group
from .board import ScoreRow
from .looks import drawn_groups
from .markdown_attacks import attack_figure
from .markdown_table import cells, plain_text, table
from .numbers import PLAIN, listed, plus_minus, show
from .scoreboard import score_rows
from .sections.by_setting import setting_at, sweep_over
from .sections.sweep import Sweep, lines_over, sort_key

_BLOCK = re.compile(r"(<!-- figure: *(\S+) over (\S+?): *([^>]*?) *-->\n)(.*?)(<!-- end of figure -->)", re.DOTALL)
_OPENING = re.compile(r"<!-- figure:")


def with_figures(text: str, records: Sequence[Record], source: str) -> tuple[str, dict[str, bytes]]:
    """The page with its figures drawn from the records, and their pictures by path relative to the page.

    Raises:
        ArgumentError: a marker is not closed or names no recipe with records, no setting in which its arms differ, or
            no metric of it.
    """
    pictures: dict[str, bytes] = {}

    def fill(match: re.Match[str]) -> str:
        path = next(path for number in count(1)  # each figure of a recipe has a picture of its own
                    if (path := f"images/{match[2]}{f'-{number}' if number > 1 else ''}.svg") not in pictures)
        lines, pictures[path] = _figure(match[2], match[3], match[4].split(), records,
                                        f"{source}: {match[1].strip()}", path)
        return match[1] + "\n" + "\n".join(lines) + "\n\n" + match[6]
    written, number = _BLOCK.subn(fill, text)
    if number != len(_OPENING.findall(text)):
        raise ArgumentError(f"{source}: expected <!-- figure: RECIPE over KEY: METRIC METRIC ... --> on a line of its "
                            "own and, below it, <!-- end of figure -->; what is between them is replaced.")
    return written, pictures


def _figure(name: str, key: str, paths: Sequence[str], records: Sequence[Record], source: str,
            picture_path: str) -> tuple[list[str], bytes]:
    mine = [record for record in records if record.recipe == name]
    if not mine:
        suggestions = sorted({record.recipe for record in records})
        raise ArgumentError(f"{source}: there are no records of {name}.{did_you_mean(name, suggestions)}")
    recipe = read_recipe(name) if name in names() else kept_recipes(mine).get(name)
    groups = drawn_groups(mine, {} if recipe is None else {name: recipe})
    if not groups:
        raise ArgumentError(f"{source}: all runs of {name} diverged, and there is nothing to draw.")
    group = groups[0]
    if key == "epsilon":
        return attack_figure(group, paths, [] if recipe is None else score_rows(recipe, mine), source, picture_path)
    sweep = _sweep(group, key, source)
    for path in paths:
        if not any(arm.values(path) for arm in sweep.arms):
            suggestions = [metric.path for metric in group.metrics.shown(lambda path: True)]
            raise ArgumentError(f"{source}: no run of {name} has {path}.{did_you_mean(path, suggestions)}")
    metrics = [group.metrics[path] for path in paths]
    picture = lines_over(name, sweep, metrics)
    if picture is None:
        raise ArgumentError(f"{source}: expected metrics after the colon.")
    picture = replace(picture, columns=2)  # a page of text has room for two
    members = {arm.name: arm.swept.arm for arm in sweep.arms if arm.swept}
    verdicts = [_verdict(row) for row in (score_rows(recipe, mine) if recipe is not None else ())
                if row.measured and members.get(row.row.claim.arm, "") == members.get(row.row.claim.beats or "")]
    lines = [f"![{plain_text(picture.alt)}]({picture_path})", "", *_table(sweep, metrics), *_range(sweep, metrics[0]),
             *(["", *verdicts] if verdicts else [])]
    return lines, picture.svg()


def _verdict(row: ScoreRow) -> str:
    interval = row.interval_words(PLAIN)
    return (f"- {plain_text(row.sentence)}: {row.difference_words(PLAIN)}, "
            f"{f'interval {interval}' if interval else 'no interval'}, n = {row.n}: **{row.verdict.word}**")


def _sweep(group: Group, key: str, source: str) -> Sweep:
    """The arms by what they are apart from the setting, and by its value."""
    sweep = sweep_over(group, key)
    if not any(len(sweep.points(base)) > 1 for base in sweep.bases):
        raise ArgumentError(f"{source}: expected arms of {group.name} that differ in {key} alone.")
    for arm in sweep.arms:
        if len({repr(setting_at(record.config, key)) for record in arm.records}) > 1:
            raise ArgumentError(f"{source}: the runs of {arm.name} have several values of {key} among them; expected "
                                "one for all seeds.")
    points = [(arm.swept.arm, sort_key(arm.swept.values[key])) for arm in sweep.arms if arm.swept]
    if len(set(points)) < len(points):
        raise ArgumentError(f"{source}: several arms of {group.name} have the same {key} and differ in nothing else.")
    return sweep


def _range(sweep: Sweep, m: Metric) -> list[str]:
    """How much the first metric depends on the setting, in words; nothing where it has one value alone."""
    words = []
    for base in sweep.bases:
        means = [arm.mean(m.path).value for _, arm in sweep.points(base) if arm.values(m.path)]
        if len(means) > 1:
            words.append(f"by {show(max(means) - min(means), m.digits, style=PLAIN)} with {base}")
    if not words:
        return []
    verb = "falls" if m.better == "higher" else "rises"
    return ["", f"From its best to its worst `{sweep.keys[0].rpartition('.')[2]}` the mean {m.words} {verb} "
                f"{listed(words)}."]


def _table(sweep: Sweep, metrics: Sequence[Metric]) -> list[str]:
    """A line per value, a column per metric and group of arms. Arms without the setting have no value, so beside them
    every arm has a line of its own."""
    key = sweep.keys[0].rpartition(".")[2]
    values = sweep.values(0)
    short = len({value_word(value) for value in values}) == len(values)
    words = {sort_key(value): plain_text(value_word(value) if short else str(value)) for value in values}
    if sweep.references:
        points = [(words[sort_key(point[0])], arm) for base in sweep.bases for point, arm in sweep.points(base)]
        return [*table(["arm", f"`{key}`", "n", *(m.words for m in metrics)]),
                *(cells([plain_text(arm.name), word, str(len(arm.finals)), *(_mean(arm, m) for m in metrics)])
                  for word, arm in (*points, *(("", arm) for arm in sweep.references)))]
    by_value = {base: {sort_key(point[0]): arm for point, arm in sweep.points(base)} for base in sweep.bases}
    return [*table([f"`{key}`", *(f"{m.words}, {base}" for m in metrics for base in sweep.bases)]),
            *(cells([words[sort_key(value)], *(_mean(by_value[base].get(sort_key(value)), m)
                                               for m in metrics for base in sweep.bases)]) for value in values)]


def _mean(arm: Arm | None, m: Metric) -> str:
    mean = arm.mean(m.path) if arm else None
    return plus_minus(mean.value, mean.std, m.digits, PLAIN) if mean and mean.n else ""
