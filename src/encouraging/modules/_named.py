"""The losses that are named after their curve, as modules.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

from typing import Any, ClassVar, Never, Unpack

from .. import curves
from ..curves import Curve
from ..errors import SignatureError
from ._arguments import changed, defaults_of, keywords, refuse_unknown
from ._curve_loss import Arguments, CurveLoss

_LOG_END = 0.75


class _NamedCurveLoss(CurveLoss):
    """A loss whose class says which curve it is. Its parameters are read from the curve, and setting one sets a new
    curve, so that both ways of changing the loss agree, in what it computes and in its repr."""

    family: ClassVar[tuple[type[Curve], ...]]

    def __init__(self, curve: Curve, /, *misplaced: Never, **arguments: Unpack[Arguments]) -> None:
        if "curve" in arguments:
            refuse_unknown(self, ["curve"], Arguments.__annotations__,
                           {"curve": f" For another curve than {type(self).__name__}'s use CurveLoss(curve)."})
        if misplaced:
            name = type(self).__name__
            value: object = misplaced[0] if isinstance(misplaced[0], int | float) else "..."
            first = [*keywords(type(self)), *Arguments.__annotations__][0]
            raise SignatureError(f"{name} takes its arguments by keyword: expected {name}({first}={value}) or "
                                 f"{name}(weight=...), got {len(misplaced)} without a name.")
        super().__init__(curve, **arguments)

    def extra_repr(self) -> str:
        if not isinstance(self.curve, self.family):
            return super().extra_repr()
        return ", ".join([*(f"{name}={value!r}" for name, value in self._parameters_of_curve()),
                          *changed(self, defaults_of(CurveLoss))])

    def _parameters_of_curve(self) -> list[tuple[str, Any]]:
        return list(self.curve.params.items())

    def _change_curve(self, **parameters: float) -> None:
        """The curve with some parameters changed; the others keep their values, or get their defaults if the present
        curve is of another kind."""
        params = self.curve.params if isinstance(self.curve, self.family) else {}
        self.curve = self.family[0](**{**params, **parameters})


def _parameter(name: str) -> Any:
    """A parameter of a module's curve as an attribute of the module."""
    def read(module: _NamedCurveLoss) -> Any:
        return getattr(module.curve, name)

    def change(module: _NamedCurveLoss, value: float) -> None:
        module._change_curve(**{name: value})

    return property(read, change, doc=f"The curve's ``{name}``. Setting it sets a new curve.")


class EncouragingLoss(_NamedCurveLoss):
    """:func:`encouraging_loss` as a module. All arguments are keywords, because the first positional argument is
    ``weight`` in torch and ``log_end`` in the class that the paper's authors published.

    ``log_end`` and ``eps`` can be changed during training, for a schedule, and so can ``curve``.

    Args:
        log_end, eps: As in :func:`encouraging_loss`.
        **arguments: As in :class:`CurveLoss`.

    Raises:
        SignatureError: An argument has no name, or one that is not known.
        CurveError: ``log_end`` or ``eps`` is outside its range.
        ArgumentError, DtypeError, ShapeError: Another argument cannot be used.

    >>> loss = EncouragingLoss(log_end=0.5)
    >>> loss
    EncouragingLoss(log_end=0.5)
    >>> loss.log_end = 1.0
    >>> loss, loss.curve
    (EncouragingLoss(log_end=1.0, eps=1e-05), normal(eps=1e-05))
    """

    family = (curves.conservative, curves.normal)
    _eps = 1e-5  # for when log_end becomes 1

    def __init__(self, *misplaced: Never, log_end: float = _LOG_END, eps: float = 1e-5,
                 **arguments: Unpack[Arguments]) -> None:
        super().__init__(curves.encouraging(log_end, eps), *misplaced, **arguments)
        self._eps = eps

    @property
    def log_end(self) -> float:
        """The probability at which the log bonus becomes a line. Setting it sets a new curve."""
        curve: Any = self.curve
        return 1.0 if isinstance(curve, curves.normal) else curve.log_end

    @log_end.setter
    def log_end(self, value: float) -> None:
        self._eps = self.eps  # kept, because the next curve may have none
        self.curve = curves.encouraging(value, self._eps)

    @property
    def eps(self) -> float:
        """The clamp of 1 - p, which counts where ``log_end`` is 1. Setting it sets a new curve."""
        return self.curve.eps if isinstance(self.curve, curves.normal) else self._eps

    @eps.setter
    def eps(self, value: float) -> None:
        log_end = self.log_end if isinstance(self.curve, self.family) else _LOG_END
        self.curve, self._eps = curves.encouraging(log_end, value), value

    def _parameters_of_curve(self) -> list[tuple[str, Any]]:
        return [("log_end", self.log_end), *([("eps", self.eps)] if self.log_end == 1 else [])]


class FocalLoss(_NamedCurveLoss):
    """:func:`focal_loss` as a module; ``gamma`` can be changed during training. Errors are those of
    :class:`EncouragingLoss`.

    Args:
        gamma: As in :func:`focal_loss`.
        **arguments: As in :class:`CurveLoss`.

    >>> FocalLoss(gamma=1.0)
    FocalLoss(gamma=1.0)
    """

    family = (curves.focal,)
    gamma: float = _parameter("gamma")

    def __init__(self, *misplaced: Never, gamma: float = 2.0, **arguments: Unpack[Arguments]) -> None:
        super().__init__(curves.focal(gamma), *misplaced, **arguments)


class HaltedFocalLoss(_NamedCurveLoss):
    """:func:`halted_focal_loss` as a module; ``gamma`` and ``halt`` can be changed during training. Errors are those of
    :class:`EncouragingLoss`.

    Args:
        gamma, halt: As in :func:`halted_focal_loss`.
        **arguments: As in :class:`CurveLoss`.

    >>> HaltedFocalLoss(halt=0.7)
    HaltedFocalLoss(gamma=2.0, halt=0.7)
    """

    family = (curves.halted_focal,)
    gamma: float = _parameter("gamma")
    halt: float = _parameter("halt")

    def __init__(self, *misplaced: Never, gamma: float = 2.0, halt: float = 0.5,
                 **arguments: Unpack[Arguments]) -> None:
        super().__init__(curves.halted_focal(gamma, halt), *misplaced, **arguments)


class PolyLoss(_NamedCurveLoss):
    """:func:`poly_loss` as a module; ``epsilon`` can be changed during training. Errors are those of
    :class:`EncouragingLoss`.

    Args:
        epsilon: As in :func:`poly_loss`.
        **arguments: As in :class:`CurveLoss`.

    >>> PolyLoss(epsilon=2.0)
    PolyLoss(epsilon=2.0)
    """

    family = (curves.poly,)
    epsilon: float = _parameter("epsilon")

    def __init__(self, *misplaced: Never, epsilon: float = 1.0, **arguments: Unpack[Arguments]) -> None:
        super().__init__(curves.poly(epsilon), *misplaced, **arguments)
