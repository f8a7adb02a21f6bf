"""Accuracies under attack in rows: one per attack, arm and number of test images, because accuracies on different
images cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...attack_names import DAMPED, LOSSES, METHODS
from ...judge.attack_names import attack_label, size_words
from ...recipes.departures import image_counts_of
from ..numbers import listed, range_words


@dataclass(frozen=True)
class AttackRow:
    """An arm's accuracy under one attack: by size of the perturbation, one number per seed. ``images`` is the number of
    test images, which are the first ones; None where it was not recorded."""

    attack: str
    arm: str
    images: int | None
    points: Mapping[float, Sequence[float]]

    @property
    def counts(self) -> set[int]:
        """How many seeds its numbers come from."""
        return {len(values) for values in self.points.values()}


def attack_rows(arm: str, runs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> list[AttackRow]:
    """The rows of an arm, those on most images first. A run is a pair of its numbers and the content of its
    ``attacks.json``, where it has one.

    >>> found = {"attacks": {"pgd": {"examples": 20, "examples_at": {"0": 597, "0.1": 20}, "accuracy": {"0": 9.0,
    ...                                                                                                 "0.1": 5.0}}}}
    >>> [(row.images, row.points) for row in attack_rows("el", [({"attacks": {"pgd": {"0": 9.0, "0.1": 5.0}}}, found)])]
    [(597, {0.0: [9.0]}), (20, {0.1: [5.0]})]
    """
    points: dict[tuple[str, int | None], dict[float, list[float]]] = {}
    for numbers, attacks in runs:
        entries = (attacks or {}).get("attacks", {})
        for name, sizes in (numbers.get("attacks") or {}).items():
            entry = entries.get(name)
            counts = image_counts_of(entry) if isinstance(entry, Mapping) else {}
            for size, accuracy in (sizes if isinstance(sizes, Mapping) else {}).items():
                try:
                    by_size = points.setdefault((name, counts.get(size)), {})
                    by_size.setdefault(float(size), []).append(float(accuracy))
                except (TypeError, ValueError):
                    continue
    rows = [AttackRow(name, arm, images, {size: accuracies[size] for size in sorted(accuracies)})
            for (name, images), accuracies in points.items() if accuracies]
    return sorted(rows, key=lambda row: -(row.images or 0))


def in_order(rows: Iterable[AttackRow]) -> list[AttackRow]:
    """Attacks of one method beside each other, and of one attack those on most images first."""
    rows = list(rows)
    rank = {name: number for number, name in enumerate(ordered(dict.fromkeys(row.attack for row in rows)))}
    return sorted(rows, key=lambda row: (rank[row.attack], -(row.images or 0)))


def ordered(names: Iterable[str]) -> list[str]:
    """Attacks of one method beside each other, the paper's loss first.

    >>> ordered(["autoattack", "pgd_scale_free", "pgd", "fgsm"])
    ['fgsm', 'pgd', 'pgd_scale_free', 'autoattack']
    >>> ordered(["pgd_l2_dlr", "pgd_l2_damped", "pgd_l2"])
    ['pgd_l2', 'pgd_l2_damped', 'pgd_l2_dlr']
    """
    order = []
    for method in METHODS.values():
        first, *others = map(method.by, LOSSES)
        order += [first, *([DAMPED[method.name]] if method.name in DAMPED else []), *others, method.scale_free]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def of_most_images(rows: Iterable[AttackRow]) -> tuple[list[AttackRow], list[AttackRow]]:
    """Of every attack the rows on most images, which a figure compares, and the rows that are left out."""
    rows = list(rows)
    largest: dict[str, int] = {}
    for row in rows:
        largest[row.attack] = max(largest.get(row.attack, 0), row.images or 0)
    chosen = [row for row in rows if (row.images or 0) == largest[row.attack]]
    return chosen, [row for row in rows if row not in chosen]


def measured_words(rows: Sequence[AttackRow]) -> str:
    """On how many images and over how many seeds these numbers are.

    >>> measured_words([AttackRow("pgd", "el", 20, {0.1: [5.0]})])
    'on the first 20 test images, mean over 1 seed'
    """
    seeds, images = range_words(n for row in rows for n in row.counts), image_words(rows)
    return (f"on {images}, " if images else "") + f"mean over {seeds} {'seed' if seeds == '1' else 'seeds'}"


def image_words(rows: Iterable[AttackRow]) -> str:
    """Which test images attacks were measured on: the number that most attacks have, and the attacks that have another
    one. Nothing where it was not written down.

    >>> rows = [AttackRow(name, "el", images, {0.1: [5.0]})
    ...         for name, images in (("fgsm", 10000), ("pgd", 10000), ("autoattack", 1000))]
    >>> image_words(rows)
    'the first 10,000 test images (AutoAttack: the first 1,000)'
    """
    by_attack: dict[str, dict[int, list[AttackRow]]] = {}
    for row in rows:
        if row.images is not None:
            by_attack.setdefault(row.attack, {}).setdefault(row.images, []).append(row)
    attacks: dict[int, list[str]] = {}
    for name, by_images in by_attack.items():
        for images, members in by_images.items():
            others = [row for count, several in by_images.items() if count != images for row in several]
            attacks.setdefault(images, []).append(attack_label(name) + _qualifier(members, others))
    if not attacks:
        return ""
    usual = max(attacks, key=lambda images: (len(attacks[images]), images))
    exceptions = "; ".join(f"{listed(attacks[images])}: the first {images:,}"
                           for images in sorted(attacks, reverse=True) if images != usual)
    return f"the first {usual:,} test images" + (f" ({exceptions})" if exceptions else "")


def _qualifier(rows: Sequence[AttackRow], others: Sequence[AttackRow]) -> str:
    """What tells rows of an attack from those of the same attack on another number of images."""
    if not others:
        return ""
    sizes, arms = (dict.fromkeys(size for row in rows for size in row.points), dict.fromkeys(row.arm for row in rows))
    if not any(size in row.points for row in others for size in sizes):
        return f" at {listed([size_words(size) for size in sorted(sizes)])}"
    return " in some runs" if any(row.arm in arms for row in others) else f" of {listed(list(arms))}"
