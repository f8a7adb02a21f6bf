"""The errors of the package. Every message says what came, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import metadata


def did_you_mean(word: object, words: Iterable[str]) -> str:
    """The end of an error message about an unknown word: the nearest known one, or nothing where none is near.

    >>> did_you_mean("gama", ["gamma", "halt"])
    " Did you mean 'gamma'?"
    """
    near = difflib.get_close_matches(str(word), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def install_words(package: str, error: Exception) -> str:
    """Why an optional package cannot be used, and what to do. torchvision is built for one torch: with another one its
    import raises a RuntimeError, also in a package that imports it, as timm does.

    >>> install_words("timm", ModuleNotFoundError("No module named 'timm'", name="timm"))
    'the package timm: pip install timm.'
    >>> print(install_words("torchvision", RuntimeError("no operator nms")))  # doctest: +ELLIPSIS
    the package torchvision, and torchvision ... does not work with torch ... (no operator nms). Install two ...
    """
    missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    if missing == package:
        return f"the package {package}: pip install {package}."
    if missing and "." not in missing:  # a missing submodule means that the package itself is broken
        return f"the package {package}, which needs {missing}: pip install {missing}."
    if package != "torchvision" and "torchvision" not in str(error):
        words = " ".join(str(error).split())
        return (f"the package {package}, and {package} {_version(package)} cannot be imported "
                f"({type(error).__name__}: {words}). Install it again: pip install --force-reinstall {package}.")
    return (f"the package {package}, and torchvision {_version('torchvision')} does not work with torch "
            f"{_version('torch')} ({error}). Install two builds that belong together, from one index: "
            f"{matching_builds('torchvision')}")


def matching_builds(package: str) -> str:
    """The command that installs this torch and a package that is built for it from one index: PyPI, or that of the
    CPU or CUDA builds where this torch is from."""
    version, _, build = _version("torch").partition("+")
    index = f" --index-url https://download.pytorch.org/whl/{build}" if build.startswith(("cpu", "cu", "rocm")) else ""
    return f"pip install --force-reinstall torch=={version} {package}{index}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(of an unknown version)"


class CurveError(ValueError):
    """A curve or a parameter of it does not exist or has a wrong value, or its pull does not match its value."""


class ArgumentError(ValueError):
    """An argument of a loss (reduction, smoothing, weight, implementation) cannot be used."""


class SignatureError(TypeError):
    """A loss module has no argument of this name, or takes it by keyword only."""


class ShapeError(ValueError):
    """The shapes of logits, target or weight do not match."""


class TargetError(ValueError):
    """A label names no class, or a soft target is not a distribution over the classes."""


class DtypeError(TypeError):
    """A tensor of a type that the loss does not take."""


class DerivativeError(ValueError):
    """This implementation does not have the requested derivative."""


class DataError(ValueError):
    """A dataset is not where it should be, or a file of it is not what its publisher ships."""


class RecipeError(ValueError):
    """A recipe says something that cannot be read or cannot be done; ``key`` is where, as far as it is known."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class RunError(ValueError):
    """A run directory cannot be used: another process holds it, another recipe made it, or the disk is full."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, or is not one of this run."""


class DivergenceError(ValueError):
    """The loss became NaN, infinite or huge; the message names step and batch."""
