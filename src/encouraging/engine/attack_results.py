"""``attacks.json`` of a run directory: which test images stay classified correctly, under which attack and epsilon.

Images are the first ones of the test set, so results on different numbers of images can be compared on those that they
share. The file belongs to the weights of the run: it holds their digest, and is begun anew where they have changed. It
has the results of one seed of the random starts; those of another one are kept beside it (``attacks-seed0.json``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..attacks import Attack, RobustAccuracy, Verdict, masked_gradients
from ..errors import ArgumentError, RunError
from .files import read_json, write_json

SCHEMA = 1
FILE = "attacks.json"
SCALE_FREE = ("margin", "dlr")  # losses that multiplying the logits by a number does not change


@dataclass
class Measured:
    """One attack: its settings, and the images that survived at every epsilon.

    ``units`` says what epsilon counts: pixels from 0 to 1, or ``normalised`` ones. ``batch_sizes`` has for AutoAttack,
    which draws its random numbers per batch, how many images were attacked at once; files of earlier versions do not
    say it.
    """

    attack: Attack
    units: str = "pixels"
    survived: dict[float, Tensor] = field(default_factory=dict)
    batch_sizes: dict[float, int] = field(default_factory=dict)

    @property
    def examples(self) -> int:
        return min((len(mask) for mask in self.survived.values()), default=0)


@dataclass
class AttackResults:
    """The results of one run by the names of the attacks; ``test_images`` is how many there are in all."""

    weights: str
    seed: int = 0
    measured: dict[str, Measured] = field(default_factory=dict)
    test_images: int | None = None

    def missing(self, name: str, measured: Measured, epsilons: list[float], examples: int) -> list[float]:
        """The epsilons of an attack that were not measured yet with these settings, or on fewer images."""
        before = self.measured.get(name)
        if before is None or before.attack != measured.attack or before.units != measured.units:
            return epsilons
        return [eps for eps in epsilons if len(before.survived.get(eps, ())) < examples]

    def add(self, name: str, measured: Measured) -> None:
        """Keep what was measured; other settings under this name replace what was there before."""
        before = self.measured.get(name)
        if before is None or before.attack != measured.attack or before.units != measured.units:
            self.measured[name] = measured
            return
        kept = {**before.survived, **measured.survived}
        before.survived = {eps: kept[eps] for eps in sorted(kept)}
        before.batch_sizes |= measured.batch_sizes

    def batch_size(self, name: str, asked: int | None) -> int | None:
        """The batch size with which an attack goes on: what was asked for, or else the one of its earlier results.

        Raises:
            RunError: AutoAttack was measured with another batch size, which would give other numbers.
        """
        before = self.measured.get(name)
        sizes = set(before.batch_sizes.values()) if before is not None else set()
        if asked is not None and sizes - {asked}:
            raise RunError(f"{name} was measured with a batch size of {max(sizes)}, and --batch-size {asked} gives "
                           "other numbers: AutoAttack draws its random numbers per batch. Leave --batch-size out to go "
                           f"on with {max(sizes)}, or move {FILE} away to measure everything again.")
        return asked or max(sizes, default=None)

    def tables(self) -> dict[str, dict[str, Any]]:
        """What a record holds per attack. Attacks by scale-free losses are also counted together, per method: an
        image survives where it survives all of them."""
        rows = {name: _row(one) for name, one in self.measured.items()}
        for method in dict.fromkeys(one.attack.method for one in self.measured.values()):
            together = self._scale_free(method)
            if together is not None:
                rows[f"{method}_scale_free"] = _row(together)
        return rows

    def _scale_free(self, method: str) -> Measured | None:
        parts = [one for one in self.measured.values()
                 if one.attack.method == method and one.attack.loss in SCALE_FREE and one.units == "pixels"]
        if len(parts) < 2:
            return None
        common = [eps for eps in parts[0].survived if all(eps in part.survived for part in parts)]
        survived = {}
        for eps in common:
            count = min(len(part.survived[eps]) for part in parts)
            survived[eps] = torch.stack([part.survived[eps][:count] for part in parts]).all(0)
        return Measured(Attack(method, loss=SCALE_FREE[0]), survived=survived) if survived else None

    def verdicts(self) -> list[tuple[int, Verdict]]:
        """Whether the attacks driven by cross-entropy can be believed, and on how many images that was judged: for
        each of them the comparison with the most other attacks."""
        found: dict[tuple[str, float], tuple[int, Verdict]] = {}
        comparable = {name: one for name, one in self.measured.items() if one.units == "pixels" and one.survived}
        for count in sorted({len(mask) for one in comparable.values() for mask in one.survived.values()}, reverse=True):
            cut = {name: {eps: mask[:count] for eps, mask in one.survived.items() if len(mask) >= count}
                   for name, one in comparable.items()}
            try:
                judged = masked_gradients(RobustAccuracy({name: one.attack for name, one in comparable.items()}, cut))
            except ArgumentError:  # nothing to compare on so many images
                continue
            for verdict in judged:
                before = found.get((verdict.attack, verdict.eps))
                if before is None or len(before[1].compared_with) < len(verdict.compared_with):
                    found[verdict.attack, verdict.eps] = count, verdict
        return list(found.values())

    def write(self, folder: Path) -> None:
        """Write ``attacks.json``: numbers for people and records, and the images that survived in hexadecimal."""
        rows: dict[str, dict[str, Any]] = self.tables()
        for name, one in self.measured.items():
            rows[name] |= {"method": one.attack.method, "settings": one.attack.settings, "units": one.units,
                           **_batch_sizes(one),
                           "survived": {f"{eps!r}": _hex(mask) for eps, mask in one.survived.items()}}
        verdicts = [{**asdict(verdict), "examples": count} for count, verdict in self.verdicts()]
        _keep_other_seed(folder, self.weights, self.seed)
        whole = {} if self.test_images is None else {"test_images": self.test_images}
        write_json(folder / FILE, {"schema": SCHEMA, "weights": self.weights, "seed": self.seed, **whole,
                                   "attacks": rows, "verdicts": verdicts})
        _of_seed(folder, self.seed).unlink(missing_ok=True)  # what it had is in the file now


def load_results(folder: Path, seed: int = 0) -> AttackResults:
    """What was measured of this run's weights so far with this seed; nothing where the weights were others."""
    weights = weights_digest(folder)
    results = AttackResults(weights, seed)
    for path in (folder / FILE, _of_seed(folder, seed)):
        if path.is_file():
            content = _read(path)
            if content.get("weights") == weights and content.get("seed") == seed:
                results.test_images = content.get("test_images")
                _fill(results, content, path)
                break
    return results


def _fill(results: AttackResults, content: Mapping[str, Any], path: Path) -> None:
    for name, row in content["attacks"].items():
        try:
            if "survived" in row:
                survived = {float(eps): _mask(text) for eps, text in row["survived"].items()}
                sizes = {eps: int(size) for eps in survived if (size := batch_size_at(row, f"{eps:g}")) is not None}
                results.measured[name] = Measured(Attack(row["method"], **row["settings"]), row["units"], survived,
                                                  sizes)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path}: {name} cannot be read ({error}). Move the file away to begin anew.") from error


def _of_seed(folder: Path, seed: int) -> Path:
    return folder / f"attacks-seed{seed}.json"


def _keep_other_seed(folder: Path, weights: str, seed: int) -> None:
    """Results of another seed that are about to be written over can have taken hours."""
    path = folder / FILE
    if path.is_file():
        content = _read(path)
        if content.get("weights") == weights and content.get("seed") != seed:
            os.replace(path, _of_seed(folder, content.get("seed", 0)))


def read_attacks(folder: Path) -> dict[str, Any] | None:
    """What a record keeps of ``attacks.json``: everything but the single images and the digest of the weights."""
    path = folder / FILE
    if not path.is_file():
        return None
    content = _read(path)
    attacks = {name: {key: value for key, value in row.items() if key != "survived"}
               for name, row in content["attacks"].items() if isinstance(row, Mapping)}
    whole = {"test_images": content["test_images"]} if "test_images" in content else {}
    return {"seed": content.get("seed", 0), **whole, "attacks": attacks, "verdicts": content.get("verdicts", [])}


def weights_digest(folder: Path) -> str:
    """A digest of the weights that a finished run has kept."""
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise RunError(f"{folder} has no weights.safetensors: it is no finished run, or was made by a version that did "
                       "not keep the weights. Train it again with `encouraging run`.")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if (content.get("schema") != SCHEMA or not isinstance(content.get("attacks"), dict)
            or not isinstance(content.get("seed", 0), int)):
        raise RunError(f"{path}: expected schema {SCHEMA}, a seed and a table of attacks. Move the file away and "
                       "attack the run again.")
    return content


def _row(one: Measured) -> dict[str, Any]:
    counts = {f"{eps:g}": len(mask) for eps, mask in one.survived.items()}
    differ = {"examples_at": counts} if len(set(counts.values())) > 1 else {}
    return {"examples": one.examples, **differ,
            "accuracy": {f"{eps:g}": 100 * mask.double().mean().item() for eps, mask in one.survived.items()}}


def _batch_sizes(one: Measured) -> dict[str, Any]:
    """One number where all epsilons have it, and else a table of those that are known."""
    sizes = {f"{eps:g}": size for eps, size in sorted(one.batch_sizes.items())}
    if len(set(sizes.values())) == 1 and len(sizes) == len(one.survived):
        return {"batch_size": next(iter(sizes.values()))}
    return {"batch_size_at": sizes} if sizes else {}


def batch_size_at(entry: Mapping[str, Any], eps: str) -> int | None:
    """With which batch size AutoAttack was measured at an epsilon, where it was written down.

    >>> batch_size_at({"batch_size": 1000}, "0.1"), batch_size_at({"batch_size_at": {"0.1": 500}}, "0.2")
    (1000, None)
    """
    size: int | None = (entry.get("batch_size_at") or {}).get(eps, entry.get("batch_size"))
    return size


def _hex(mask: Tensor) -> str:
    """The bits of a mask after a leading 1, which keeps its length."""
    return f"{int('1' + ''.join('1' if bit else '0' for bit in mask.tolist()), 2):x}"


def _mask(text: str) -> Tensor:
    """
    >>> _mask(_hex(torch.tensor([False, True, True])))
    tensor([False,  True,  True])
    """
    return torch.tensor([bit == "1" for bit in f"{int(text, 16):b}"[1:]])
