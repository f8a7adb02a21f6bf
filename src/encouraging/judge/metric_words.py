"""Names for numbers that no task declares one by one, because there are too many: attacks and scores."""

from __future__ import annotations

from ..engine import Metric

RATES = {"auroc": "AUROC", "aupr": "AUPR", "fpr95": "FPR95"}


def size_words(size: str | float) -> str:
    """The size of a perturbation as one would type it: grey levels as fractions of 255.

    >>> size_words(0.3), size_words("0.0313725"), size_words(8 / 255), size_words("0"), size_words("most")
    ('0.3', '8/255', '8/255', '0', 'most')
    """
    text = size if isinstance(size, str) else f"{size:g}"
    try:
        levels = 255 * float(text)
    except ValueError:
        return text
    return f"{levels:.0f}/255" if len(text) > 6 and abs(levels - round(levels)) < 1e-3 else text


def undeclared(path: str) -> Metric:
    """A metric named after its path.

    >>> undeclared("attacks.pgd_margin.0.3").words, undeclared("ood.svhn.msp.auroc").words, undeclared("mine").words
    ('accuracy under pgd margin of size 0.3', 'AUROC by msp, svhn', 'mine')
    """
    first, *rest = path.split(".")
    if first == "attacks" and len(rest) > 1:
        return Metric(path, f"accuracy under {rest[0].replace('_', ' ')} of size {size_words('.'.join(rest[1:]))}", "%",
                      low=0, high=100)
    if first == "ood" and len(rest) > 1 and rest[-1] in RATES:
        *data, score, rate = rest
        words = f"{RATES[rate]} by {score.replace('_', ' ')}" + (f", {'.'.join(data)}" if data else "")
        return Metric(path, words, "%", better="lower" if rate == "fpr95" else "higher", low=0, high=100)
    return Metric(path, path.replace("_", " "), "%" if path.endswith("accuracy") else "")
