"""How numbers are written on the page, in the terminal and in Markdown: digits and signs are decided here.

The page uses a true minus and an en dash for what is missing; a terminal and Markdown files use ASCII.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple


class Style(NamedTuple):
    """The characters that differ between a page and plain text."""

    minus: str
    missing: str


PAGE, PLAIN = Style("−", "–"), Style("-", "-")
ROUNDING = 1e-12  # a smaller difference is rounding error
MOST_DIGITS = 8


def show(value: float | None, digits: int = 2, unit: str = "", style: Style = PAGE) -> str:
    """A number with a fixed number of decimals; a number that rounds to 0 has no sign.

    >>> show(-27.0, 1), show(99.5, 2, "%"), show(0.5, 1, "nats"), show(float("nan")), show(-27.0, 1, style=PLAIN)
    ('−27.0', '99.50%', '0.5 nats', '–', '-27.0')
    """
    if value is None or not math.isfinite(value):
        return style.missing
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", style.minus) + (unit if unit in ("", "%") else f" {unit}")


def p_value(value: float | None, style: Style = PAGE) -> str:
    """A p-value with three decimals; one that would round to 0 is not shown as 0, which no p-value is.

    >>> p_value(0.0625), p_value(1e-5), p_value(float("nan"), PLAIN)
    ('0.062', '<0.001', '-')
    """
    return "<0.001" if value is not None and 0 < value < 0.0005 else show(value, 3, style=style)


def signed(value: float, digits: int = 2, style: Style = PAGE) -> str:
    """A difference: positive ones have a plus.

    >>> signed(0.5), signed(-0.5, style=PLAIN), signed(0.0)
    ('+0.50', '-0.50', '0.00')
    """
    return ("+" if value > 0 and math.isfinite(value) else "") + show(value, digits, style=style)


def between(low: float, high: float, digits: int = 2) -> str:
    """An interval in words, for the page.

    >>> between(-0.001, 0.03)
    '−0.001 to 0.030'
    """
    if math.isnan(low):
        return "no interval"
    digits = enough_digits((low, high), digits)
    return f"{show(low, digits)} to {show(high, digits)}"


def interval(low: float, high: float, digits: int = 2) -> str:
    """An interval of differences in plain text.

    >>> interval(-0.001, 0.03), interval(float("nan"), float("nan"))
    ('(-0.001, +0.030)', '-')
    """
    if math.isnan(low):
        return PLAIN.missing
    digits = enough_digits((low, high), digits)
    return f"({signed(low, digits, PLAIN)}, {signed(high, digits, PLAIN)})"


def plus_minus(mean: float, std: float, digits: int = 2, style: Style = PAGE) -> str:
    """A mean and, where there is one, its standard deviation.

    >>> plus_minus(99.57, 0.07), plus_minus(99.5, float("nan"))
    ('99.57 ± 0.07', '99.50')
    """
    return show(mean, digits, style=style) + ("" if math.isnan(std) else f" ± {show(std, digits, style=style)}")


def enough_digits(values: Sequence[float], digits: int) -> int:
    """As many decimals as are needed so that no value looks like 0 without being 0: on which side of 0 the end of an
    interval lies decides a claim. Differences below ``ROUNDING`` count as 0.

    >>> enough_digits([0.0004], 2), enough_digits([99.1 - 99.0 - 0.1], 2)
    (4, 2)
    """
    def looks_like_zero(value: float) -> bool:
        return abs(value) > ROUNDING and math.isfinite(value) and float(f"{value:.{digits}f}") == 0

    while digits < MOST_DIGITS and any(map(looks_like_zero, values)):
        digits += 1
    return digits


def brief(value: float) -> str:
    """Two digits, for numbers from far apart.

    >>> brief(0.39), brief(1.5e-5), brief(1e-26)
    ('0.39', '1.5·10⁻⁵', '10⁻²⁶')
    """
    digits, _, exponent = f"{value:.2g}".partition("e")
    return (f"{digits}·".removeprefix("1·") + power_of_ten(int(exponent))) if exponent else digits


def power_of_ten(exponent: int) -> str:
    """
    >>> power_of_ten(-8)
    '10⁻⁸'
    """
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def alike(numbers: Sequence[float]) -> list[str]:
    """Printed numbers of one kind, all with as many decimals as the longest of them.

    >>> alike([97.1, 99.55]), alike([-27, -131.6]), alike([1e-5])
    (['97.10', '99.55'], ['-27.0', '-131.6'], ['0.00001'])
    """
    exponents = [Decimal(f"{number:g}").as_tuple().exponent for number in numbers]
    digits = max(-exponent if isinstance(exponent, int) else 0 for exponent in exponents)
    return [f"{number:.{max(0, digits)}f}" for number in numbers]


def plural(n: int, word: str) -> str:
    """
    >>> plural(1, "seed"), plural(3, "seed"), plural(10_000, "example")
    ('1 seed', '3 seeds', '10,000 examples')
    """
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def range_words(counts: Iterable[int | None]) -> str:
    """
    >>> range_words([5, 1]), range_words([3, 3]), range_words([None])
    ('1 to 5', '3', '')
    """
    present = sorted({count for count in counts if count is not None})
    return "" if not present else f"{present[0]} to {present[-1]}" if len(present) > 1 else str(present[0])


def capitalised(words: str) -> str:
    """Only the first letter changes.

    >>> capitalised("accuracy on MNIST")
    'Accuracy on MNIST'
    """
    return words[:1].upper() + words[1:]


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1] if words else ""]))
