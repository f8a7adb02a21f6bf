"""The figure of attacks in a Markdown page: accuracy over the size of the perturbation, and what is left of gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import ArgumentError, did_you_mean
from ..judge.attack_names import attack_label, size_words
from ..judge.stats import mean_of
from .arms import Group
from .board import ScoreRow
from .markdown_table import cells, plain_text, table
from .numbers import PLAIN, plus_minus
from .sections.attack_rows import in_order, measured_words, of_most_images
from .sections.attacks import picture, rows_of
from .sections.gains import gain_words


def attack_figure(group: Group, attacks: Sequence[str], scores: Sequence[ScoreRow], source: str,
                  picture_path: str) -> tuple[list[str], bytes]:
    """The picture with a panel per attack, its numbers as a table, and which gains survive scale-free attacks.

    Raises:
        ArgumentError: no run was attacked with one of the attacks, or none is named.
    """
    rows, _ = of_most_images(in_order(row for arm in group.arms for row in rows_of(arm)))
    measured = list(dict.fromkeys(row.attack for row in rows))
    for name in attacks:
        if name not in measured:
            raise ArgumentError(f"{source}: no run of {group.name} was attacked by {name}."
                                f"{did_you_mean(name, measured)}")
    drawn = picture(group.arms, attacks) if attacks else None
    if drawn is None:
        raise ArgumentError(f"{source}: expected attacks after the colon.")
    drawn = replace(drawn, columns=2)  # a page of text has room for two
    chosen = [row for name in attacks for row in rows if row.attack == name]
    sizes = sorted({size for row in chosen for size in row.points})
    lines = [f"![{plain_text(drawn.alt)}]({picture_path})", "",
             f"Accuracy in percent by the size of the perturbation, {measured_words(chosen)} ± standard deviation:", "",
             *table(["attack", "arm", *map(size_words, sizes)])]
    for row in chosen:
        means = {size: mean_of(values) for size, values in row.points.items()}
        lines.append(cells([attack_label(row.attack), plain_text(row.arm), *(
            plus_minus(means[size].value, means[size].std, 1, PLAIN) if size in means else "" for size in sizes)]))
    words = gain_words([score.gain for score in scores if score.gain is not None])
    return [*lines, *(["", words] if words else [])], drawn.svg()
