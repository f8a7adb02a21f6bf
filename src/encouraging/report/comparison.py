"""Compare the numbers of any script over seeds, with the verdicts and the page that recipes have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..engine.metric import Metric
from ..engine.outputs import write_output
from ..errors import ArgumentError, DataError, did_you_mean
from ..judge.claims import FAILED, ClaimRow, judge_claims, number_at
from ..judge.metric_book import MetricBook
from ..judge.numbers import Numbers, Reader
from ..judge.stats import Mean, mean_of
from ..recipes.claim import Claim
from .board import ScoreRow, scoreboard_of
from .compared_runs import numbers_of_runs
from .comparison_settings import Direction, directions_of, expected_of, positive, usually_lower
from .drawing.style import VARIABLES
from .numbers import MOST_DIGITS, between, listed, plural, show, signed
from .sections.claim_words import namer, needed_words
from .sections.claims import Claims, claim_key, view_claims
from .templates import template


@dataclass(frozen=True)
class Comparisons:
    """What :func:`compare` found: one row per claim, in the order of metrics and arms.

    A row has ``verdict``, ``claim``, ``comparison`` (n, mean, low, high, level, p values, differences, skewed), and
    ``needed`` (the seeds that would decide). ``notes`` are warnings: about missing numbers, and about a metric that is
    usually better when lower. Printing it shows all of it; :meth:`write` makes the page. ``seeds`` has the names of the
    seeds as they were given.
    """

    title: str
    rows: Sequence[ClaimRow]
    numbers: Numbers
    book: MetricBook
    baseline: str
    notes: Sequence[str] = ()
    seeds: Mapping[int, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ClaimRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, arm: str) -> ClaimRow:
        """The first claim about an arm."""
        for row in self.rows:
            if row.claim.arm == arm:
                return row
        raise KeyError(arm)

    def __str__(self) -> str:
        return "\n".join([*(_line(row, self.missing(row)) for row in self.rows), *self.notes])

    def missing(self, row: ClaimRow) -> str:
        """Why a claim has no difference, with the seeds that each side has; nothing where it has one."""
        if row.comparison.n:
            return ""
        theirs, ours = (_seed_words(self._seeds_of(arm, row.claim.metric)) for arm in (self.baseline, row.claim.arm))
        return f"no seed has been run with both arms ({self.baseline} has {theirs}, {row.claim.arm} {ours})"

    def _seeds_of(self, arm: str, metric: str) -> list[str]:
        return [self.seeds.get(seed, str(seed)) for seed, values in sorted(self.numbers[arm].items())
                if metric in values]

    def mean(self, arm: str, metric: str) -> Mean:
        """What an arm reached, over all of its seeds."""
        return mean_of([number_at(values, metric) for values in self.numbers[arm].values()])

    def page(self) -> str:
        """The scoreboard, the claims with their pictures, and the table of arms, as one HTML page that needs no other
        files."""
        name = namer(self.book)
        board = scoreboard_of(ScoreRow(row, row.claim.sentence(name), href=f"#{claim_key(number)}",
                                       missing=self.missing(row)) for number, row in enumerate(self.rows, 1))
        metrics = list(self.book.metrics.values())
        arms = [(arm, [_cell(self.mean(arm, metric.path), metric) for metric in metrics]) for arm in self.numbers]
        return template("comparison.html.j2").render(
            title=self.title, board=board, claims_here=self._claims(), notes=self.notes, arms=arms, metrics=metrics,
            colours=list(VARIABLES.values()), made=f"Made with encouraging {__version__}.")

    def _claims(self) -> Claims:
        """The claims with the seeds of both sides where there is no difference."""
        claims = view_claims(self.rows, self.book)
        views = [replace(view, facts=[("seeds", f"0: {missing}")]) if (missing := self.missing(row)) else view
                 for view, row in zip(claims.views, self.rows, strict=True)]
        return replace(claims, views=views)

    def write(self, path: str | Path) -> Path:
        """Write the page."""
        write_output(Path(path), self.page().encode(errors="replace"))
        return Path(path)


def compare(numbers: Any, metric: str | Sequence[str] | None = None, *, baseline: str | None = None,
            better: Direction | Mapping[str, Direction] | None = None,
            expected: float | Mapping[str, float | None] | None = None, overlap: float | None = None, title: str = "",
            arm: str | Sequence[str] = "arm", seed: str = "seed", only: Sequence[str] = ()) -> Comparisons:
    """Judge over seeds whether one way to train beats another, by the rules for the claims of a recipe.

    Differences are taken seed by seed, against the baseline. Their 95% t interval decides, Holm-adjusted over all
    claims: *holds*, *fails*, *no difference* (closer to 0 than half of ``expected``) or *undecided*.

    Args:
        numbers: numbers per arm and seed: ``{"ce": [92.1, 91.8], "el": [92.6, 92.4]}``, indexed by seed;
            the same with ``{seed: number}`` or ``{seed: {metric: number}}`` for each arm; a DataFrame or a dict of
            columns with one row per arm and seed; rows as dicts; the path of a .csv, .tsv, .jsonl or .json file; or a
            folder with the runs or records of one recipe, in which case ``metric`` is any number of their
            ``final.json``.
        metric: the column with the numbers, or several. For plain lists it is only the name that is shown.
        baseline: the arm that the others are compared with; by default the first one.
        better: ``"lower"`` where smaller numbers are better; with several metrics ``{"loss": "lower"}``, higher for
            those that are not named.
        expected: the difference that would matter: for *no difference*, and for the number of seeds that would decide;
            with several metrics ``{"accuracy": 0.3, "loss": 0.02}``.
        overlap: test over training examples, where the runs are random splits of one dataset.
        title: of the page.
        arm, seed: the names of the columns that have the arm and the seed; ``arm="ce,el"``, or a list, for a table
            with one column per arm.
        only: compare only these arms with the baseline; by default all.

    Returns:
        The claims with their verdicts; print it, iterate over it, or write its page.

    Raises:
        DataError: the numbers cannot be read, or no seed has two arms.
        ArgumentError: an argument has a wrong value.

    >>> result = compare({"ce": [92.1, 91.8, 92.0, 91.9], "el": [92.6, 92.4, 92.7, 92.3]}, "accuracy")
    >>> print(result)
    el beats ce on accuracy: holds; mean difference +0.55, interval 0.34 to 0.76 at 95%, 4 seeds
    >>> result["el"].verdict
    'holds'
    """
    metrics = list(metric) if isinstance(metric, Sequence) and not isinstance(metric, str) else [metric]
    metrics = [name for name in metrics if name is not None] or ["number"]
    _check_metrics(metrics)
    runs = numbers_of_runs(Path(numbers)) if isinstance(numbers, str | Path) and Path(numbers).is_dir() else None
    if runs is not None and not isinstance(better, str):
        better = {**{path: "lower" for path in metrics if path in runs.lower}, **(better or {})}
    directions, differences = directions_of(better, metrics), expected_of(expected, metrics)
    overlap = positive(overlap, "overlap")
    reader = Reader(metrics, arm if isinstance(arm, str) else ",".join(arm), seed)
    by_arm = reader.read(numbers if runs is None else runs.numbers)
    diverged = {} if runs is None else runs.diverged
    for name, _ in diverged:
        by_arm.setdefault(name, {})
    if len(by_arm) < 2:
        source = f"{numbers}: " if isinstance(numbers, str | Path) else ""
        received = f"numbers of the arm {next(iter(by_arm))} alone" if by_arm else "no numbers"
        raise DataError(f"{source}{received}; expected two arms or more, with one row per arm and seed.")
    base = next(iter(by_arm)) if baseline is None else str(baseline)
    for name, words in [(base, "baseline"), *((name, "only") for name in only)]:
        if name not in by_arm:
            raise ArgumentError(f"{words} {name!r}: expected one of the arms {', '.join(by_arm)}."
                                f"{did_you_mean(name, by_arm)}")
    if only:
        by_arm = {name: seeds for name, seeds in by_arm.items() if name == base or name in only}
        if len(by_arm) < 2:
            raise ArgumentError(f"only {base!r} is the baseline itself: expected another arm to compare with it.")
    claims = [Claim(metric=path, arm=name, beats=base, better=directions[path], expected=differences[path])
              for path in metrics for name in by_arm if name != base]
    book = MetricBook(_metric_of(path, by_arm, directions[path], index == 0) for index, path in enumerate(metrics))
    finals: dict[str, dict[int, Mapping[str, Any]]] = {name: {**seeds} for name, seeds in by_arm.items()}
    for (name, number), message in diverged.items():
        finals.setdefault(name, {})[number] = {FAILED: message}
    rows = judge_claims(claims, finals, book, overlap=overlap, plan=None if runs is None else runs.plan)
    compared = listed([row.claim.arm for row in rows[: len(by_arm) - 1]])
    unclear = [name for name in metrics
               if directions[name] == "higher" and usually_lower(name) and not _direction_given(better, name)]
    notes = [*(runs.notes if runs is not None else ()), *_shortened(reader.empty), *map(_direction_note, unclear)]
    comparisons = Comparisons(title or f"{compared} against {base}", rows, by_arm, book, base, notes, reader.seed_names)
    if not any(row.comparison.n for row in rows):
        raise DataError(f"no seed has numbers of {base} and of another arm: differences are taken seed by seed, so "
                        f"both must have been run with the same ones; {comparisons.missing(rows[0])}.")
    return comparisons


def _check_metrics(metrics: Sequence[str]) -> None:
    for name in metrics:
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"metric: {name!r}: expected the name of a column.")
    if len(set(metrics)) < len(metrics):
        raise ArgumentError(f"metric: {', '.join(metrics)}: expected each name once.")


def _metric_of(path: str, numbers: Numbers, better: Direction, primary: bool) -> Metric:
    """A metric under the name that was given, with as many decimals as its spread over seeds makes meaningful."""
    spreads = [mean_of([values.get(path) for values in seeds.values()]).std for seeds in numbers.values()]
    smallest = min((spread for spread in spreads if 0 < spread < math.inf), default=1.0)
    digits = min(max(2, 1 - math.floor(math.log10(smallest))), MOST_DIGITS)
    return Metric(path, path, digits=digits, better=better, primary=primary)


def _cell(mean: Mean, metric: Metric) -> tuple[str, str, int]:
    """A mean, its interval and the number of seeds, for the table of arms."""
    interval = between(mean.low, mean.high, metric.digits) if mean.n > 1 else ""
    return show(mean.value, metric.digits), interval, mean.n


def _direction_given(better: Any, name: str) -> bool:
    return name in better if isinstance(better, Mapping) else better is not None


def _direction_note(name: str) -> str:
    return (f"{name} is judged as higher is better. Where lower is better, say so: --metric {name}:lower, in Python "
            f"better={{{name!r}: 'lower'}}")


def _shortened(lines: Sequence[str], limit: int = 5) -> list[str]:
    return [*lines[:limit], *([f"and {len(lines) - limit} more empty numbers"] if len(lines) > limit else [])]


def _seed_words(seeds: Sequence[str], limit: int = 6) -> str:
    """
    >>> _seed_words(["0", "1", "2", "3"]), _seed_words(["0", "7"]), _seed_words([])
    ('0 to 3', '0 and 7', 'none')
    """
    if len(seeds) > 2 and all(seed.isdecimal() for seed in seeds):
        numbers = [int(seed) for seed in seeds]
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return f"{seeds[0]} to {seeds[-1]}"
    return listed([*seeds[:limit], *([f"{len(seeds) - limit} more"] if len(seeds) > limit else [])]) or "none"


def _line(row: ClaimRow, missing: str) -> str:
    """A claim in one line of plain text."""
    comparison, digits = row.comparison, row.metric.digits
    if not comparison.n:
        return f"{row.claim.sentence()}: {row.verdict}: {missing}"
    interval = (f"interval {between(comparison.low, comparison.high, digits)} at {100 * comparison.level:.4g}%"
                if math.isfinite(comparison.low) else "no interval")
    needed = f"; {needed_words(row.needed)} seeds would decide" if row.needed is not None else ""
    skewed = "; the differences look skewed" if row.comparison.skewed else ""
    return (f"{row.claim.sentence()}: {row.verdict}; mean difference {signed(comparison.mean, digits)}, {interval}, "
            f"{plural(comparison.n, 'seed')}{needed}{skewed}")
