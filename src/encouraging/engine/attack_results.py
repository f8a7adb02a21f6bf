"""``attacks.json`` of a run directory: which test images stay classified correctly, under which attack and epsilon.

The attacked images are the first ones of the test set, so results on different numbers of images can be compared on the
images that they share. The file holds a digest of the run's weights and is started again when they have changed. It has
the results of one seed of the random starts; results of another seed are kept beside it (``attacks-seed0.json``).
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

from ..attack_names import LOSSES, METHODS
from ..attacks import Attack, RobustAccuracy, Verdict, masked_gradients
from ..errors import ArgumentError, RunError
from .files import read_json, write_json

SCHEMA = 1
FILE = "attacks.json"


@dataclass
class Measured:
    """One attack: its settings, and the images that survived at every epsilon.

    ``units`` is the unit of epsilon: ``pixels`` from 0 to 1, or ``normalised`` inputs. ``batch_sizes`` has the number
    of images per batch for AutoAttack, which draws its random numbers per batch; files of earlier versions lack it.
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
    """The results of one run by the names of the attacks; ``test_images`` is the size of the test set."""

    weights: str
    seed: int = 0
    measured: dict[str, Measured] = field(default_factory=dict)
    test_images: int | None = None

    def missing(self, name: str, measured: Measured, epsilons: list[float], examples: int) -> list[float]:
        """The epsilons that were not yet measured with these settings on at least ``examples`` images."""
        earlier = self._same_settings(name, measured)
        if earlier is None:
            return epsilons
        return [eps for eps in epsilons if len(earlier.survived.get(eps, ())) < examples]

    def add(self, name: str, measured: Measured) -> None:
        """Add results; they replace earlier results of this name that have other settings."""
        earlier = self._same_settings(name, measured)
        if earlier is None:
            self.measured[name] = measured
            return
        earlier.survived = dict(sorted({**earlier.survived, **measured.survived}.items()))
        earlier.batch_sizes |= measured.batch_sizes

    def _same_settings(self, name: str, measured: Measured) -> Measured | None:
        """Earlier results of this name, if they have the same attack and units."""
        earlier = self.measured.get(name)
        if earlier is None or earlier.attack != measured.attack or earlier.units != measured.units:
            return None
        return earlier

    def batch_size(self, name: str, requested: int | None) -> int | None:
        """The batch size with which an attack continues: the requested one, or else that of its earlier results.

        Raises:
            RunError: AutoAttack was measured with another batch size, which would give other numbers.
        """
        earlier = self.measured.get(name)
        sizes = set(earlier.batch_sizes.values()) if earlier is not None else set()
        if requested is not None and sizes - {requested}:
            raise RunError(f"{name} was measured with a batch size of {max(sizes)}, and --batch-size {requested} gives "
                           "other numbers: AutoAttack draws its random numbers per batch. Leave --batch-size out to "
                           f"continue with {max(sizes)}, or move {FILE} away to measure everything again.")
        return requested or max(sizes, default=None)

    def tables(self) -> dict[str, dict[str, Any]]:
        """The results per attack as a record holds them. Attacks with scale-free losses are also combined, per method:
        an image survives if it survives all of them."""
        rows = {name: _row(one) for name, one in self.measured.items()}
        for method in dict.fromkeys(one.attack.method for one in self.measured.values()):
            combined = self._scale_free(method)
            if combined is not None:
                rows[METHODS[method].scale_free] = _row(combined)
        return rows

    def _scale_free(self, method: str) -> Measured | None:
        scale_free = [name for name, loss in LOSSES.items() if loss.scale_free]
        parts = [one for one in self.measured.values()
                 if one.attack.method == method and one.attack.loss in scale_free and one.units == "pixels"]
        if len(parts) < 2:
            return None
        common = [eps for eps in parts[0].survived if all(eps in part.survived for part in parts)]
        survived = {}
        for eps in common:
            count = min(len(part.survived[eps]) for part in parts)
            survived[eps] = torch.stack([part.survived[eps][:count] for part in parts]).all(0)
        return Measured(Attack(method, loss=scale_free[0]), survived=survived) if survived else None

    def verdicts(self) -> list[tuple[int, Verdict]]:
        """Whether the attacks with cross-entropy can be trusted, each with the number of images it was judged on. Of
        several comparisons of an attack, the one with the most other attacks is returned."""
        chosen: dict[tuple[str, float], tuple[int, Verdict]] = {}
        comparable = {name: one for name, one in self.measured.items() if one.units == "pixels" and one.survived}
        for count in sorted({len(mask) for one in comparable.values() for mask in one.survived.values()}, reverse=True):
            cut = {name: {eps: mask[:count] for eps, mask in one.survived.items() if len(mask) >= count}
                   for name, one in comparable.items()}
            try:
                judged = masked_gradients(RobustAccuracy({name: one.attack for name, one in comparable.items()}, cut))
            except ArgumentError:  # no two attacks have this many images
                continue
            for verdict in judged:
                earlier = chosen.get((verdict.attack, verdict.eps))
                if earlier is None or len(earlier[1].compared_with) < len(verdict.compared_with):
                    chosen[verdict.attack, verdict.eps] = count, verdict
        return list(chosen.values())

    def write(self, folder: Path) -> None:
        """Write ``attacks.json``: numbers for readers and records, and the masks of surviving images in hexadecimal."""
        rows: dict[str, dict[str, Any]] = self.tables()
        for name, one in self.measured.items():
            rows[name] |= {"method": one.attack.method, "settings": one.attack.settings, "units": one.units,
                           **_batch_sizes(one),
                           "survived": {f"{eps!r}": _hex(mask) for eps, mask in one.survived.items()}}
        verdicts = [{**asdict(verdict), "examples": count} for count, verdict in self.verdicts()]
        _keep_other_seed(folder, self.weights, self.seed)
        test_images = {} if self.test_images is None else {"test_images": self.test_images}
        write_json(folder / FILE, {"schema": SCHEMA, "weights": self.weights, "seed": self.seed, **test_images,
                                   "attacks": rows, "verdicts": verdicts})
        _file_of_seed(folder, self.seed).unlink(missing_ok=True)  # attacks.json has its content now


def load_results(folder: Path, seed: int = 0) -> AttackResults:
    """The results so far for this run's weights and this seed; empty if the weights have changed."""
    weights = weights_digest(folder)
    results = AttackResults(weights, seed)
    for path in (folder / FILE, _file_of_seed(folder, seed)):
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
            raise RunError(f"{path}: {name} cannot be read ({error}). Move the file away to attack the run again."
                           ) from error


def _file_of_seed(folder: Path, seed: int) -> Path:
    return folder / f"attacks-seed{seed}.json"


def _keep_other_seed(folder: Path, weights: str, seed: int) -> None:
    """Move the results of another seed away before they are overwritten: they can have taken hours."""
    path = folder / FILE
    if path.is_file():
        content = _read(path)
        if content.get("weights") == weights and content.get("seed") != seed:
            os.replace(path, _file_of_seed(folder, content.get("seed", 0)))


def read_attacks(folder: Path) -> dict[str, Any] | None:
    """What a record keeps of ``attacks.json``: everything except the masks and the digest of the weights."""
    path = folder / FILE
    if not path.is_file():
        return None
    content = _read(path)
    attacks = {name: {key: value for key, value in row.items() if key != "survived"}
               for name, row in content["attacks"].items() if isinstance(row, Mapping)}
    test_images = {"test_images": content["test_images"]} if "test_images" in content else {}
    return {"seed": content.get("seed", 0), **test_images, "attacks": attacks, "verdicts": content.get("verdicts", [])}


def weights_digest(folder: Path) -> str:
    """A digest of the weights of a finished run."""
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise RunError(f"{folder} has no weights.safetensors: it is not a finished run, or it was trained by a version "
                       "that did not keep the weights. Train it again with `encouraging run`.")
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
    """One number if all epsilons have the same batch size, or else a table by epsilon."""
    sizes = {f"{eps:g}": size for eps, size in sorted(one.batch_sizes.items())}
    if len(set(sizes.values())) == 1 and len(sizes) == len(one.survived):
        return {"batch_size": next(iter(sizes.values()))}
    return {"batch_size_at": sizes} if sizes else {}


def batch_size_at(entry: Mapping[str, Any], eps: str) -> int | None:
    """The batch size with which AutoAttack was measured at an epsilon; None if it was not recorded.

    >>> batch_size_at({"batch_size": 1000}, "0.1"), batch_size_at({"batch_size_at": {"0.1": 500}}, "0.2")
    (1000, None)
    """
    size: int | None = (entry.get("batch_size_at") or {}).get(eps, entry.get("batch_size"))
    return size


def _hex(mask: Tensor) -> str:
    """The bits of a mask in hexadecimal, after a leading 1 that preserves its length."""
    return f"{int('1' + ''.join('1' if bit else '0' for bit in mask.tolist()), 2):x}"


def _mask(text: str) -> Tensor:
    """
    >>> _mask(_hex(torch.tensor([False, True, True])))
    tensor([False,  True,  True])
    """
    return torch.tensor([bit == "1" for bit in f"{int(text, 16):b}"[1:]])
