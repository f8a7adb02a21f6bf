"""A room of the package imports only rooms to its left (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import encouraging

ROOT = Path(encouraging.__file__).parent

# From left to right. Rooms of one group do not know each other. "" is the package's own __init__: the public names.
ORDER = [
    {"errors", "types"},
    {"curves"},
    {"links", "targets"},
    {"ops"},
    {"losses", "margins"},
    {"modules"},
    {""},
    {"metrics"},
    {"attacks", "imbalance"},
    {"data", "models"},
    {"engine", "tasks"},
    {"recipes"},
    {"report"},
    {"bench"},
    {"cli"},
    {"__main__"},
]
PLACE = {room: place for place, group in enumerate(ORDER) for room in group}


def room_of(module: tuple[str, ...]) -> str:
    return module[0] if module else ""


def imports(source: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and room of every import of our own in a module of ``package``, wherever it stands in the file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "encouraging":
                    yield node.lineno, room_of(tuple(name.name.split(".")[1:]))
        elif isinstance(node, ast.ImportFrom):
            named = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                named = package[: len(package) - node.level + 1] + named
            elif named[:1] == ("encouraging",):
                named = named[1:]
            else:
                continue
            if named:
                yield node.lineno, room_of(named)
            else:  # from . import x: x is a room, or else one of the public names
                yield from ((node.lineno, name.name if name.name in PLACE else "") for name in node.names)


def violations(source: str, module: tuple[str, ...], package: tuple[str, ...]) -> list[str]:
    here = room_of(module)
    return [f"{'.'.join(module) or '__init__'}:{line} imports {room or 'the package itself'}"
            for line, room in imports(source, package)
            if room != here and not (room in PLACE and PLACE[room] < PLACE[here])]


def modules() -> list[tuple[Path, tuple[str, ...], tuple[str, ...]]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = parts[:-1]
        found.append((path, package if parts[-1] == "__init__" else parts, package))
    return found


def test_every_module_belongs_to_a_room() -> None:
    assert {room_of(module) for _, module, _ in modules()} <= set(PLACE)


def test_rooms_know_only_rooms_to_their_left() -> None:
    wrong = [v for path, module, package in modules() for v in violations(path.read_text(), module, package)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("module", "package", "line"), [
    (("curves", "bonus"), ("curves",), "from ..losses import curve_loss"),
    (("curves", "bonus"), ("curves",), "from .. import ops"),
    (("links",), (), "from .targets import as_rows"),
    (("ops", "rows"), ("ops",), "import encouraging.modules"),
    (("losses",), (), "def f():\n    from .modules import CurveLoss"),
    (("targets",), (), "from encouraging import curve_loss"),
    (("engine", "train"), ("engine",), "from ..tasks.image import ImageTask"),
    (("report", "figures"), ("report",), "from ..cli import app"),
    (("errors",), (), "from . import nowhere"),
])
def test_an_import_to_the_right_is_caught(module: tuple[str, ...], package: tuple[str, ...], line: str) -> None:
    assert len(violations(line, module, package)) == 1


@pytest.mark.parametrize(("module", "package", "line"), [
    (("curves", "bonus"), ("curves",), "from ..errors import CurveError\nfrom .curve import Curve"),
    (("losses",), (), "from . import curves\nfrom .ops import reference"),
    (("metrics", "margin"), ("metrics",), "from .. import curve_loss"),
    (("cli",), (), "from .report import figures\nimport encouraging.bench"),
    (("curves", "curve"), ("curves",), "import torch\nfrom torch.nn import functional"),
])
def test_an_import_to_the_left_is_fine(module: tuple[str, ...], package: tuple[str, ...], line: str) -> None:
    assert violations(line, module, package) == []
