"""Claims: one number beats another, over seeds. Does not import torch, as judging needs only numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ..engine.settings import Frozen


class Sides(NamedTuple):
    """The numbers on the two sides of a claim."""

    ours: float
    theirs: float


class Claim(Frozen):
    """One arm beats another on a number of ``final.json`` (``beats``); or one number of an arm beats another
    (``beats_metric``); or a number of an arm is ``over`` or ``under`` a constant.

    ``paper`` has the paper's numbers by arm, or by metric if two metrics are compared. ``paper_spread`` has their
    standard deviations, with divisor n as the paper gives them, over ``paper_seeds`` runs. ``expected`` is the
    difference that is looked for if the paper gives none. ``from_paper`` says whether the paper makes this claim; by
    default it does if ``paper`` is given.
    """

    metric: str
    arm: str
    beats: str | None = None
    beats_metric: str | None = None
    over: float | None = Field(default=None, allow_inf_nan=False)
    under: float | None = Field(default=None, allow_inf_nan=False)
    better: Literal["higher", "lower"] = "higher"
    paper: dict[str, float] = Field(default_factory=dict)
    paper_spread: dict[str, float] = Field(default_factory=dict)
    paper_seeds: int | None = Field(default=None, ge=2)
    expected: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    from_paper: bool | None = None
    source: str = ""  # the place in the paper ("Table 4"), if it is not the recipe's

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        forms = [name for name in ("beats", "beats_metric", "over", "under") if getattr(self, name) is not None]
        if len(forms) != 1:
            raise ValueError(f"a claim on {self.metric} has {' and '.join(forms) or 'no other side'}: expected one of "
                             "beats (an arm), beats_metric (a metric of the same arm), over and under (a number)")
        if self.constant is not None and "better" in self.model_fields_set:
            raise ValueError(f"a claim on {self.metric} has {forms[0]} and better: {forms[0]} already says which side "
                             "is better; leave better out")
        if self.beats_metric == self.metric or self.beats == self.arm:
            raise ValueError(f"a claim on {self.metric} compares {self.arm} with itself")
        if bool(self.paper_spread) != (self.paper_seeds is not None):
            raise ValueError(f"a claim on {self.metric} has only one of paper_spread and paper_seeds: a standard "
                             "deviation needs the number of its runs, so give both or none")
        for key, value in self.paper_spread.items():
            if key not in self.paper or not value >= 0:
                raise ValueError(f"a claim on {self.metric} has paper_spread.{key} = {value:g}: expected a standard "
                                 f"deviation of a number of paper, which has {', '.join(self.paper) or 'none'}")
        if self.beats is None:
            for key in self.paper:
                if key not in self._keys:
                    raise ValueError(f"a claim on {self.metric} has paper.{key}; there are {', '.join(self._keys)}")
        return self

    @property
    def constant(self) -> float | None:
        """The constant that the number is compared with, if there is one."""
        return self.over if self.over is not None else self.under

    @property
    def direction(self) -> Literal["higher", "lower"]:
        """Whether higher or lower numbers support the claim."""
        return "lower" if self.under is not None else self.better

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that must be trained: the one that is claimed to be better, then the other."""
        return (self.arm,) if self.beats is None else (self.arm, self.beats)

    @property
    def _keys(self) -> tuple[str, ...]:
        """The keys of the paper's numbers: ours, then theirs if it is not a constant."""
        if self.beats is not None:
            return self.arm, self.beats
        return (self.arm,) if self.beats_metric is None else (self.metric, self.beats_metric)

    @property
    def paper_numbers(self) -> Sides | None:
        """The paper's two numbers; None if it does not give both."""
        if not all(key in self.paper for key in self._keys):
            return None
        ours, *theirs = (self.paper[key] for key in self._keys)
        return Sides(ours, theirs[0] if theirs else self.constant or 0.0)

    @property
    def paper_difference(self) -> float | None:
        """The paper's difference, positive if it supports the claim."""
        if self.paper_numbers is None:
            return None
        sign = 1 if self.direction == "higher" else -1
        return sign * (self.paper_numbers.ours - self.paper_numbers.theirs)

    @property
    def sought(self) -> float | None:
        """The difference that is looked for: the paper's, or the expected one."""
        paper = self.paper_difference
        return paper if paper is not None and paper > 0 else self.expected

    @property
    def paper_variances(self) -> tuple[float, ...]:
        """The squared standard errors of the paper's means, one per side that has a spread: its deviations have
        divisor n, so they are squared and divided by n - 1."""
        if self.paper_seeds is None:
            return ()
        return tuple(self.paper_spread[key] ** 2 / (self.paper_seeds - 1) for key in self._keys
                     if key in self.paper_spread)

    @property
    def is_papers(self) -> bool:
        """Whether the paper makes this claim."""
        return bool(self.paper) if self.from_paper is None else self.from_paper

    def paper_of(self, arm: str, metric: str) -> float | None:
        """The paper's number of an arm on a metric."""
        if self.beats_metric is not None:
            return self.paper.get(metric) if arm == self.arm else None
        return self.paper.get(arm) if metric == self.metric else None

    @property
    def metrics(self) -> Iterator[str]:
        """The paths of its metrics."""
        yield self.metric
        if self.beats_metric is not None:
            yield self.beats_metric

    def sentence(self, name: Callable[[str], str] = str) -> str:
        """The claim in words; ``name`` turns the path of a metric into its name.

        >>> Claim(metric="accuracy", arm="el", beats="ce").sentence()
        'el beats ce on accuracy'
        >>> Claim(metric="ratio", arm="el", over=5).sentence("the {}".format)
        'the ratio of el is over 5'
        """
        if self.beats is not None:
            return f"{self.arm} beats {self.beats} on {name(self.metric)}"
        if self.beats_metric is not None:
            return f"{name(self.metric)} beats {name(self.beats_metric)} in {self.arm}"
        side = "over" if self.over is not None else "under"
        return f"{name(self.metric)} of {self.arm} is {side} {self.constant:g}"
