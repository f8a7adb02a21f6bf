"""The names of attacks and of their sizes, as readers see them."""

from __future__ import annotations

from ..attack_names import LOSSES, METHODS, OTHERS


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


def attack_label(name: str) -> str:
    """The name of an attack as a reader sees it; an unknown name as it is.

    >>> attack_label("pgd"), attack_label("pgd_scale_free"), attack_label("autoattack"), attack_label("mine")
    ('PGD by cross-entropy', 'PGD scale-free', 'AutoAttack', 'mine')
    """
    for method in METHODS.values():
        for loss, driving in LOSSES.items():
            if name == method.by(loss):
                return f"{method.words} {driving.words}"
        if name == method.scale_free:
            return f"{method.words} scale-free"
    return OTHERS.get(name, name)


def attack_words(name: str, *sizes: str | float) -> str:
    """An attack with its size, or with several.

    >>> attack_words("pgd", "0.3"), attack_words("pgd_l2_damped", 1, 3)
    ('PGD of size 0.3 by cross-entropy', 'PGD in L2 of size 1, 3 by cross-entropy, damped')
    >>> attack_words("fgsm_scale_free", 0.1), attack_words("autoattack", 8 / 255), attack_words("my_attack", 0.1)
    ('FGSM of size 0.1, scale-free', 'AutoAttack of size 8/255', 'my attack of size 0.1')
    """
    label = attack_label(name)
    words = label if label != name else name.replace("_", " ")
    cut = next((words.index(mark) for mark in (" by ", " scale-free", ", ") if mark in words), len(words))
    suffix = words[cut:].replace(" scale-free", ", scale-free")
    return f"{words[:cut]} of size {', '.join(size_words(size) for size in sizes)}{suffix}"
