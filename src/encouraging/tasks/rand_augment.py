"""Check timm's RandAugment strings when a recipe is read: timm itself clips or ignores values that it cannot use."""

from __future__ import annotations

import re

from ..errors import did_you_mean

MAGNITUDE = 10  # timm's largest, unless mmax gives another
LAYERS = 15  # the number of operations
SETS = ("weights", "3a", "3aw")  # sets of operations
_NUMBER = r"\d+(?:\.\d+)?"
_WORD = re.compile(rf"(mstd|mmax|inc|m|n|p)({_NUMBER})|(t)([a-z0-9]+)")


def check_rand_augment(text: str) -> None:
    """Raise a ValueError if timm would fail, or would do something else than the string says.

    >>> check_rand_augment("rand-m9-mstd0.5")
    >>> check_rand_augment("rand-m15-mmax20")
    """
    first, *settings = text.split("-")
    matches = [_WORD.fullmatch(setting) for setting in settings]
    if first != "rand" or not all(matches):
        raise ValueError(f"{text!r}: expected a string of timm's, such as 'rand-m9-mstd0.5': magnitude 9 with a "
                         "standard deviation of 0.5")
    values: dict[str, str] = {}
    for match in filter(None, matches):
        key, value = match[1] or match[3], match[2] or match[4]
        if key in values:
            raise ValueError(f"{text!r}: {key} is given twice")
        values[key] = value
    name = values.pop("t", SETS[0])
    if name not in SETS:
        raise ValueError(f"{text!r}: t names a set of operations, expected one of {', '.join(SETS)}."
                         + did_you_mean(name, SETS))
    _check_ranges(text, values)


def _check_ranges(text: str, values: dict[str, str]) -> None:
    for key in ("m", "n", "mmax", "inc"):
        if "." in values.get(key, ""):
            raise ValueError(f"{text!r}: {key} = {values[key]}: expected a whole number")
    number = {key: float(value) for key, value in values.items()}
    largest = number.get("mmax", MAGNITUDE)
    if number.get("m", 0) > largest:
        raise ValueError(f"{text!r}: magnitude {number['m']:g}: expected one from 0 to {largest:g}. Set a larger mmax, "
                         "as in 'rand-m15-mmax20'")
    for key, meaning, low, high in (("mmax", "the largest magnitude", 1, 100), ("n", "operations per image", 1, LAYERS),
                                 ("p", "the probability of an operation", 0, 1), ("inc", "a switch", 0, 1)):
        if key in number and not low <= number[key] <= high:
            raise ValueError(f"{text!r}: {key} = {number[key]:g}, {meaning}: expected a number from {low} to {high}")
