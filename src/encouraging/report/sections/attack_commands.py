"""How to repeat the attacks on the runs of a report: one command per set of arms, epsilons and number of images."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.attack_results import batch_size_at
from ...judge.attack_names import size_words
from ...recipes.departures import image_counts_of
from ..arms import Group


def attack_commands(group: Group) -> list[str]:
    """Commands that repeat what was measured, on runs below ``runs/``."""
    runs: dict[tuple[str, str], list[tuple[str, int]]] = {}  # the attack's name and its options; arms and seeds
    for arm in group.arms:
        for record in arm.records:
            results = record.attacks or {}
            for name, entry in results.get("attacks", {}).items():
                if "method" in entry:  # otherwise it is counted from other attacks, as the scale-free ones are
                    for options in _options(entry, results.get("seed", 0)):
                        runs.setdefault((name, options), []).append((arm.name, record.seed))
    names: dict[tuple[tuple[tuple[str, int], ...], str], list[str]] = {}
    for (name, options), members in runs.items():
        names.setdefault((tuple(members), options), []).append(name)
    return [shlex.join(["encouraging", "attack", *_folders(group, attacked),
                        *(word for name in attacks for word in ("--attack", name))]) + options
            for (attacked, options), attacks in names.items()]


def _folders(group: Group, attacked: Sequence[tuple[str, int]]) -> list[str]:
    """Those of whole recipes and arms where all their runs were attacked, and of single runs otherwise."""
    if len(attacked) == len(group.records):
        return [f"runs/{group.name}"]
    folders = []
    for arm in group.arms:
        seeds = [seed for name, seed in attacked if name == arm.name]
        folders += ([f"runs/{group.name}/{arm.name}"] if seeds and len(seeds) == len(arm.records)
                    else [f"runs/{group.name}/{arm.name}/seed{seed}" for seed in seeds])
    return folders


def _options(entry: Mapping[str, Any], seed: int) -> list[str]:
    """The options of one command per number of images and batch size."""
    l2 = entry["method"] == "pgd_l2" or entry.get("settings", {}).get("norm") == "l2"
    sizes: dict[tuple[int, int | None], list[str]] = {}
    for size, images in image_counts_of(entry).items():
        sizes.setdefault((images, batch_size_at(entry, size)), []).append(size_words(size))
    return [f" --eps{'-l2' if l2 else ''} {','.join(epsilons)} --examples {images}"
            + (f" --seed {seed}" if seed else "") + (f" --batch-size {batch}" if batch else "")
            for (images, batch), epsilons in sizes.items()]
