"""A sweep: copies of an arm with other values of one or two of its keys, and the arms that they are compared with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..engine import Metric
from ..engine.settings import Train
from ..errors import RecipeError, did_you_mean
from .claim import Claim
from .grid import check_arms
from .read import apply_override, check_recipe
from .schema import Arm, Recipe, Swept

MOST_KEYS = 2


class Sweep(NamedTuple):
    """A key of an arm and the values that it gets, as written on the command line."""

    key: str
    values: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.key}={','.join(self.values)}"


def parse_sweep(text: str) -> Sweep:
    """``KEY=VALUE,VALUE,...``; commas inside brackets belong to a value.

    >>> parse_sweep("log_end=0,0.5,1")
    Sweep(key='log_end', values=('0', '0.5', '1'))
    >>> parse_sweep("train.milestones=[5,8],[9]").values
    ('[5,8]', '[9]')
    """
    key, equals, listed = text.partition("=")
    values = [value.strip() for value in re.split(r",(?![^\[]*\])", listed)]
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key.strip()) or not all(values):
        raise RecipeError(f"--sweep {text}: expected KEY=VALUE,VALUE,... for example log_end=0,0.5,1 or "
                          "train.lr=0.05,0.1.")
    return Sweep(key.strip(), tuple(dict.fromkeys(values)))


def sweep_recipe(recipe: Recipe, texts: Sequence[str], arms: Sequence[str] = ()) -> tuple[Recipe, list[str]]:
    """The recipe with a copy of ``arms`` per value, or per pair of values; and the names of the copies and of the arms
    to compare them with.

    Without ``arms``, the first arm that has the key is copied; if none has it, as with ``train.lr``, all are.

    >>> from encouraging.recipes import read_recipe
    >>> sweep_recipe(read_recipe("digits"), ["log_end=0,0.5,1"])[1]
    ['ce', 'el_05.log_end-0', 'el_05.log_end-0.5', 'el_05.log_end-1']
    """
    sweeps = [parse_sweep(text) for text in texts]
    if not 1 <= len({sweep.key for sweep in sweeps}) == len(sweeps) <= MOST_KEYS:
        raise RecipeError(f"--sweep {' --sweep '.join(texts)}: expected one key or two different ones; figures have no "
                          "room for more.")
    tree = recipe.model_dump(mode="json", exclude_unset=True)
    check_arms(recipe, arms)
    bases = list(arms) or _arms_with(tree["arms"], [sweep.key for sweep in sweeps])
    copies: dict[str, Any] = {}
    for base in bases:
        for values in itertools.product(*(sweep.values for sweep in sweeps)):
            name, arm = _copy(base, tree["arms"][base], [sweep.key for sweep in sweeps], values)
            copies[name] = arm
    # Of each base by itself, as its claims are: together, one that has claims would hide what another one needs.
    compared = [arm for base in bases for arm in references(recipe, [base]) if arm not in bases]
    others = _with_starting_points(recipe, bases, list(dict.fromkeys(compared)))
    source = f"{recipe.name}.toml" if recipe._folder is None else str(Path(recipe._folder) / f"{recipe.name}.toml")
    try:
        swept = check_recipe({**tree, "arms": {**tree["arms"], **copies}}, recipe.name, source)
    except RecipeError as error:
        hint = "".join(_hint(sweep.key, tree["arms"]) for sweep in sweeps)
        raise RecipeError(f"--sweep {' --sweep '.join(texts)}: {error}{hint}") from error
    return swept, [*(arm for arm in recipe.arms if arm in others), *copies]


def narrowed(recipe: Recipe, arms: Sequence[str], metric: Metric) -> Recipe:
    """A recipe with only these arms, and with the claims of the sweep instead of its own."""
    chosen = {arm: recipe.arms[arm] for arm in arms}
    copies = {name: arm.swept for name, arm in chosen.items() if arm.swept}
    return recipe.model_copy(update={"arms": chosen, "claims": sweep_claims(recipe, copies, metric)})


def sweep_claims(recipe: Recipe, copies: Mapping[str, Swept], metric: Metric) -> tuple[Claim, ...]:
    """One claim per copy: it beats the baseline on this metric. Where the baseline is swept too, copies with the same
    values are compared."""
    by_values = {(copy.arm, _comparable(copy)): name for name, copy in copies.items()}
    claims = []
    for name, copy in copies.items():
        beats = baseline_of(recipe, copy.arm)
        if any(other.arm == beats for other in copies.values()):
            beats = by_values.get((str(beats), _comparable(copy)))
        if beats is not None:
            claims.append(Claim(metric=metric.path, arm=name, beats=beats, better=metric.better))
    return tuple(claims)


def baseline_of(recipe: Recipe, base: str) -> str | None:
    """The arm that copies of ``base`` should beat: one with cross-entropy, if there is one among its references.
    Copies of an arm with cross-entropy have none."""
    if base not in recipe.arms or _has_cross_entropy(recipe, base):
        return None
    others = references(recipe, [base])
    return next((arm for arm in others if _has_cross_entropy(recipe, arm)), next(iter(others), None))


def _has_cross_entropy(recipe: Recipe, arm: str) -> bool:
    return recipe.arms[arm].loss == "curve" and recipe.arms[arm].curve == "cross_entropy"


def arm_labels(copies: Mapping[str, Swept]) -> dict[str, str]:
    """What readers call the copies: their values, and the arm where several were swept.

    >>> arm_labels({"el_1.lr-0.1": Swept(arm="el_1", values={"train.lr": 0.1})})
    {'el_1.lr-0.1': 'lr = 0.1'}
    """
    several = len({copy.arm for copy in copies.values()}) > 1
    labels = {name: (f"{copy.arm}, " if several else "") + values_words(copy.values) for name, copy in copies.items()}
    return labels if len(set(labels.values())) == len(labels) else {name: name for name in copies}


def values_words(values: Mapping[str, Any]) -> str:
    """Keys and values as a reader would write them: ``lr = 0.1`` for the key ``train.lr``."""
    return ", ".join(f"{key.rpartition('.')[2]} = {value_word(value)}" for key, value in values.items())


def value_word(value: Any) -> str:
    """A value as a reader would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _comparable(copy: Swept) -> str:
    return repr(sorted(copy.values.items()))


def references(recipe: Recipe, bases: Iterable[str]) -> list[str]:
    """The arms with which the copies of ``bases`` are compared: those that the claims name, or else an arm with
    cross-entropy, or the first one; without the bases themselves."""
    bases = list(bases)
    claimed = [claim.beats for claim in recipe.claims if claim.arm in bases and claim.beats]
    plain = [name for name in recipe.arms if _has_cross_entropy(recipe, name)]
    return [arm for arm in dict.fromkeys(claimed or plain[:1] or list(recipe.arms)[:1]) if arm not in bases]


def _arms_with(arms: Mapping[str, Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The first arm that has one of the keys; all arms if none has."""
    first = next((name for name, arm in arms.items() if any(_has(arm, key) for key in keys)), None)
    return list(arms) if first is None else [first]


def _has(tree: Mapping[str, Any], key: str) -> bool:
    first, _, inner = key.partition(".")
    return first in tree and (not inner or (isinstance(tree[first], Mapping) and _has(tree[first], inner)))


def _copy(base: str, arm: dict[str, Any], keys: Sequence[str], values: Sequence[str]) -> tuple[str, dict[str, Any]]:
    name, parsed = base, {}
    for key, text in zip(keys, values, strict=True):
        arm = apply_override(arm, f"{key}={text}")
        parsed[key] = _value_at(arm, key)
        name += f".{key.rpartition('.')[2]}-{_in_folder_name(parsed[key])}"
    return name, {**arm, "swept": {"arm": base, "values": parsed}}


def _value_at(tree: Mapping[str, Any], key: str) -> Any:
    first, _, inner = key.partition(".")
    return _value_at(tree[first], inner) if inner else tree[first]


def _in_folder_name(value: Any) -> str:
    """A value as a part of a folder's name."""
    text = str(value)
    if isinstance(value, float) and float(short := f"{value:g}") == value:  # otherwise two values could share a name
        text = short
    return re.sub(r"[^\w.-]+", "_", text).strip("_").lower() or "none"


def _with_starting_points(recipe: Recipe, bases: Sequence[str], others: Sequence[str]) -> set[str]:
    """The other arms, and the arms from whose weights they or the bases start."""
    arms = set(others)
    for name in (*bases, *others):
        earlier = recipe.arms[name].after
        while earlier is not None and earlier in recipe.arms:
            arms.add(earlier)
            earlier = recipe.arms[earlier].after
    return arms


def _hint(key: str, arms: Mapping[str, Mapping[str, Any]]) -> str:
    """The key that may have been meant: settings of training are in the table ``train``."""
    if key in Train.model_fields:
        return f" Did you mean 'train.{key}'?"
    keys = {name for arm in arms.values() for name in arm} | set(Arm.model_fields)
    return "" if key.partition(".")[0] in keys else did_you_mean(key, sorted(keys))
