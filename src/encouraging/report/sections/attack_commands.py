"""How to repeat the attacks on the runs of a report: one command per set of arms, epsilons and number of images."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ...judge.metric_words import size_words
from ..arms import Group


def attack_commands(group: Group) -> list[str]:
    """Commands that repeat what was measured, on runs below ``runs/``."""
    arms: dict[tuple[str, str], dict[str, None]] = {}  # the attack's name and its options, and the arms
    for arm in group.arms:
        for record in arm.records:
            found = record.attacks or {}
            for name, entry in found.get("attacks", {}).items():
                if "method" in entry:  # counted from others, otherwise
                    arms.setdefault((name, _options(entry, found.get("seed", 0))), {})[arm.name] = None
    names: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (name, options), attacked in arms.items():
        names.setdefault((tuple(attacked), options), []).append(name)
    lines = []
    for (which, options), attacks in names.items():
        folders = ([f"runs/{group.name}"] if len(which) == len(group.arms)
                   else [f"runs/{group.name}/{arm}" for arm in which])
        chosen = [word for name in attacks for word in ("--attack", name)]
        lines.append(shlex.join(["encouraging", "attack", *folders, *chosen]) + options)
    return lines


def _options(entry: Mapping[str, Any], seed: int) -> str:
    l2 = entry["method"] == "pgd_l2" or entry.get("settings", {}).get("norm") == "l2"
    sizes = ",".join(map(size_words, entry["accuracy"]))
    return (f" --eps{'-l2' if l2 else ''} {sizes} --examples {entry['examples']}" + (f" --seed {seed}" if seed else ""))
