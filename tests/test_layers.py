"""A layer of the package imports only layers to its left (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import encouraging

ROOT = Path(encouraging.__file__).parent

# From left to right. Layers of one group do not know each other. "" is the package's own __init__: the public names.
ORDER = [
    {"errors"},
    {"torch_state", "plugins", "whole_file", "attack_names", "splitmix"},
    {"curves"},
    {"links", "targets", "class_counts"},
    {"ops", "presence"},
    {"losses", "margins"},
    {"modules"},
    {"integrations"},
    {""},
    {"metrics"},
    {"attacks", "imbalance"},
    {"data", "models"},
    {"engine"},
    {"tasks"},
    {"recipes"},
    {"judge"},
    {"report"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
PLACE = {layer: place for place, group in enumerate(ORDER) for layer in group}


def layer_of(module: tuple[str, ...]) -> str:
    return module[0] if module else ""


def imports(source: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and layer of every import of our own in a module of ``package``, wherever it stands in the file."""
    tree = ast.parse(source)
    if not package:  # what the package's __init__ shows to type checkers is loaded from its home when it is first used
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in
                                                        ast.unparse(node.test))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "encouraging":
                    yield node.lineno, layer_of(tuple(name.name.split(".")[1:]))
        elif isinstance(node, ast.ImportFrom):
            named = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                named = package[: len(package) - node.level + 1] + named
            elif named[:1] == ("encouraging",):
                named = named[1:]
            else:
                continue
            if named:
                yield node.lineno, layer_of(named)
            else:  # from . import x: x is a layer, or else one of the public names
                yield from ((node.lineno, name.name if name.name in PLACE else "") for name in node.names)


def violations(source: str, module: tuple[str, ...], package: tuple[str, ...]) -> list[str]:
    here = layer_of(module)
    return [f"{'.'.join(module) or '__init__'}:{line} imports {layer or 'the package itself'}"
            for line, layer in imports(source, package)
            if layer != here and not (layer in PLACE and PLACE[layer] < PLACE[here])]


def modules() -> list[tuple[Path, tuple[str, ...], tuple[str, ...]]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = parts[:-1]
        found.append((path, package if parts[-1] == "__init__" else parts, package))
    return found


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(module) for _, module, _ in modules()} <= set(PLACE)


def test_layers_know_only_layers_to_their_left() -> None:
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
    (("report", "page"), ("report",), "from ..commands.run import run_recipe"),
    (("report", "sections", "claims"), ("report", "sections"), "from ...cli import app"),
    (("judge", "claims"), ("judge",), "from ..report.numbers import show"),
    (("errors",), (), "from . import nowhere"),
])
def test_an_import_to_the_right_is_caught(module: tuple[str, ...], package: tuple[str, ...], line: str) -> None:
    assert len(violations(line, module, package)) == 1


@pytest.mark.parametrize(("module", "package", "line"), [
    (("curves", "bonus"), ("curves",), "from ..errors import CurveError\nfrom .curve import Curve"),
    (("losses",), (), "from . import curves\nfrom .ops import reference"),
    (("metrics", "margin"), ("metrics",), "from .. import curve_loss"),
    (("cli",), (), "from .commands.run import run_recipe\nimport encouraging.report"),
    (("report", "sections", "claims"), ("report", "sections"), "from ...judge import stats\nfrom ..arms import Arm"),
    (("curves", "curve"), ("curves",), "import torch\nfrom torch.nn import functional"),
])
def test_an_import_to_the_left_is_fine(module: tuple[str, ...], package: tuple[str, ...], line: str) -> None:
    assert violations(line, module, package) == []
