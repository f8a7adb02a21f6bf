"""AutoAttack (Croce and Hein, 2020) through pyautoattack: the judge of the other attacks.

pyautoattack 0.2.0 writes a state file that it cannot read again, adds to the gradients of the parameters, and moves the
global random state. Here its parts run one after the other, each on the examples that the earlier ones have left, which
is what its own loop does; the state is kept after every part, and the model and the random state stay as they were.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError, did_you_mean
from ._check import check_batch, check_eps, check_reach, check_settings, check_state_path
from ._files import digest, read_tensors, write_tensors
from ._model import Model, checked, evaluating, modules_of, plain
from ._objective import difference_of_logits_ratio

NORMS = {"linf": "Linf", "l2": "L2"}
PARTS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square")
STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
TARGETS = 9  # classes that the targeted parts of the standard version try
SMALLEST_SIDE = 5  # of an image that Square can attack in the L2 norm


def standard_parts(classes: int, norm: str = "linf", side: int = SMALLEST_SIDE) -> tuple[str, ...]:
    """The parts of the standard version that these images and classes allow.

    Below four classes the targeted DLR loss does not exist, and the untargeted one takes its place. Square in the L2
    norm needs images of at least 5 x 5 pixels, and is left out below.

    >>> standard_parts(10)
    ('apgd-ce', 'apgd-t', 'fab-t', 'square')
    >>> standard_parts(2, "l2", side=4)
    ('apgd-ce', 'apgd-dlr', 'fab-t')
    """
    parts = tuple("apgd-dlr" if part == "apgd-t" and classes < 4 else part for part in STANDARD)
    return parts if norm == "linf" or side >= SMALLEST_SIDE else parts[:-1]


def autoattack(model: Model, x: Tensor, y: Tensor, eps: float, *, norm: str = "linf",
               parts: Sequence[str] | None = None, seed: int = 0, batch_size: int | None = 250,
               state_path: str | Path | None = None, progress: Callable[[str, float], None] | None = None) -> Tensor:
    """The standard version: APGD-CE, targeted APGD-DLR, targeted FAB, and Square with 5000 queries, in this order.

    Args:
        model: any function from inputs to logits (N, C); a module is put into evaluation mode meanwhile.
        x: inputs in [0, 1], float32, the shape (N, ...).
        y: labels, the shape (N,).
        eps: the radius of the ball, in L-infinity at most 1.
        norm: ``"linf"`` or ``"l2"``.
        parts: other parts than the standard ones, among ``"apgd-ce"``, ``"apgd-dlr"``, ``"apgd-t"``, ``"fab-t"`` and
            ``"square"``. The targeted parts try nine classes, or all others where there are fewer than ten; below
            four classes ``"apgd-dlr"`` replaces ``"apgd-t"``.
        seed: fixes the random numbers. AutoAttack draws them per batch: another ``batch_size`` draws others.
        batch_size: the largest number of examples that are attacked at a time; ``None`` for all.
        state_path: a file that is written after every part. A call with the same arguments continues from there
            and ends with the same result as one that was never stopped; other arguments are refused.
        progress: called after every part with its name and the remaining accuracy in percent.

    Returns:
        Inputs, perturbed where an attack succeeded and unchanged elsewhere, without a gradient.

    Raises:
        ImportError: pyautoattack is not installed.
        ArgumentError, DtypeError, ShapeError, TargetError: an argument cannot be used; the message says why.
    """
    eps = check_eps(eps)
    check_settings(seed=seed, batch_size=batch_size)
    check_autoattack(norm, parts)
    if norm == "linf":
        check_reach(eps)
    path = check_state_path(state_path)
    highest = check_batch(x, y)
    if x.dtype != torch.float32:
        raise DtypeError(f"x: AutoAttack computes in float32, got {x.dtype}. Pass x.float() and a model in float32.")
    if not len(x) or eps == 0:
        return x.detach().clone()
    package = _package()
    with evaluating(model) as model, _frozen(model), _outside_state(x), torch.autocast(x.device.type, enabled=False):
        x, y = plain(x), plain(y).long()
        images = _as_images(x)
        logits_of = checked(lambda batch: model(batch.reshape(-1, *x.shape[1:])), highest, of=model)
        with torch.no_grad():
            classes = logits_of(images[:1]).shape[1]
        side = min(images.shape[2:])
        if "square" in (parts or ()) and "square" not in standard_parts(classes, norm, side):
            raise ArgumentError(f"parts: Square in the L2 norm needs images of at least {SMALLEST_SIDE} x "
                                f"{SMALLEST_SIDE} pixels, got {tuple(images.shape[2:])}. Leave it out.")
        parts = tuple(parts or standard_parts(classes, norm, side))
        attacker = _attacker(package, logits_of, x.device, classes, norm, eps, seed)
        perturbed, survived, done = images.clone(), torch.ones(len(x), dtype=torch.bool, device=x.device), 0
        key = digest(model, x, y, "autoattack", eps, norm, parts, seed, batch_size)
        if path is not None and path.exists():
            state = read_tensors(path, key)
            perturbed, survived, done = state["found"].to(x.device), state["survived"].to(x.device), int(state["done"])
        for number, part in enumerate(parts[done:], done + 1):
            remaining = survived.nonzero()[:, 0]
            if len(remaining):
                attacker.attacks_to_run = [part]
                candidates, predictions = attacker.run_standard_evaluation(images[remaining], y[remaining],
                                                                           batch_size=batch_size or len(x))
                broken = predictions != y[remaining]
                perturbed[remaining[broken]] = candidates[broken]
                survived[remaining[broken]] = False
            if path is not None:
                write_tensors(path, key, {"found": perturbed, "survived": survived, "done": torch.tensor(number)})
            if progress is not None:
                progress(part, 100 * survived.double().mean().item())
    return perturbed.reshape(x.shape)


def check_autoattack(norm: str = "linf", parts: Sequence[str] | None = None) -> None:
    """Refuse a norm or parts that AutoAttack does not have."""
    if norm not in NORMS:
        raise ArgumentError(f"norm={norm!r}: expected 'linf' or 'l2'.{did_you_mean(str(norm), NORMS)}")
    if parts is not None and (isinstance(parts, str) or not parts):
        raise ArgumentError(f"parts={parts!r}: expected a list of names such as ['apgd-ce', 'square'], or None for the "
                            "standard version.")
    for part in parts or ():
        if part not in PARTS:
            raise ArgumentError(f"parts: {part!r} is none of AutoAttack's; expected some of "
                                f"{', '.join(map(repr, PARTS))}.{did_you_mean(part, PARTS)}")


def _package() -> Any:
    try:
        import pyautoattack
    except ImportError as error:
        raise ImportError("autoattack needs the package pyautoattack: pip install pyautoattack. "
                          "fgsm, pgd and pgd_l2 work without it.") from error
    return pyautoattack


def _attacker(package: Any, model: Model, device: torch.device, classes: int, norm: str, eps: float,
              seed: int) -> Any:
    """The standard version's settings, for as many classes as there are."""
    attacker = package.AutoAttack(model, norm=NORMS[norm], eps=eps, version="standard", device=device, seed=seed)
    attacker.apgd_targeted.n_target_classes = attacker.fab.n_target_classes = min(TARGETS, classes - 1)
    if classes < 3:
        attacker.apgd.dlr_loss = difference_of_logits_ratio  # pyautoattack's own needs a third logit
    if classes < 4:
        attacker.logger = logging.getLogger("auto-attack.few-classes")
        attacker.logger.addFilter(_is_not_about_dlr)
    return attacker


def _is_not_about_dlr(record: logging.LogRecord) -> bool:
    """Drops pyautoattack's warning that the DLR loss needs more classes: the one here does not."""
    return "DLR loss" not in record.getMessage()


def _as_images(x: Tensor) -> Tensor:
    """(N, channels, height, width), which the Square attack needs; other shapes become one channel that is as close to
    a square as their size allows."""
    if x.ndim == 4:
        return x
    size = math.prod(x.shape[1:])
    height = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    return x[:, None] if x.ndim == 3 else x.reshape(len(x), 1, height, size // height)


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """FAB calls ``backward``: without this it would add to the gradients of the parameters, also of modules that a
    function calls."""
    parameters = [p for module in modules_of(model) for p in module.parameters()]
    changed = [p for p in parameters if p.requires_grad and not p.is_inference()]
    try:
        for parameter in changed:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_(True)


@contextmanager
def _outside_state(x: Tensor) -> Iterator[None]:
    """Restores what the parts change: they seed torch's global generators, and a check of theirs removes the tracer of
    debuggers."""
    tracer = sys.gettrace()
    try:
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            yield
    finally:
        if sys.gettrace() is not tracer:
            sys.settrace(tracer)
