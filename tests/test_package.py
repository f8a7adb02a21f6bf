"""What a user installs: quick to import, typed, complete, and content with its core dependencies."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata as metadata
import importlib.util
import os
import pickle
import pkgutil
import re
import statistics
import subprocess
import sys
import tomllib
import types
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import encouraging

REPOSITORY = Path(__file__).parent.parent

PUBLIC = {
    "curves", "curve_loss", "encouraging_loss", "focal_loss", "halted_focal_loss", "poly_loss", "sigmoid_curve_loss",
    "mirror_mse_loss", "linear_curve_loss", "CurveLoss", "EncouragingLoss", "FocalLoss", "HaltedFocalLoss", "PolyLoss",
    "SigmoidCurveLoss", "MirrorMSELoss", "LinearCurveLoss", "LSoftmaxLinear", "LDAMLoss", "parallel_curve_loss",
    "curve_loss_with_stats", "LossStats", "curve_loss_and_gradient_", "loss_divisor", "compare",
}
CORE = {"torch", "numpy", "scipy", "scikit-learn", "pydantic", "typer", "rich", "safetensors", "pooch", "jinja2",
        "matplotlib", "filelock", "pillow"}
EXTRAS = {
    "vision": {"torchvision", "timm"},
    "graph": {"torch-geometric"},
    "translation": {"tokenizers", "sacrebleu"},
    "attacks": {"pyautoattack"},
    "detection": {"torchvision", "pycocotools"},
    "jpeg": {"simplejpeg"},
    "transformers": {"transformers"},
    "sweep": {"ray"},
    "tracking": {"tensorboard"},
    "jax": {"jax"},
}


def python(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_importing_adds_at_most_0_3_s_to_torch() -> None:
    """In five processes that are forked from one that has imported torch."""
    clock = """
import os, time, torch
for _ in range(5):
    if not os.fork():
        began = time.perf_counter()
        import encouraging
        print(time.perf_counter() - began, flush=True)
        os._exit(0)
    os.wait()
"""
    times = [float(line) for line in python(clock).split()]
    assert len(times) == 5
    assert statistics.median(times) <= 0.3


def test_importing_pulls_in_nothing_heavy() -> None:
    added = set(python("import sys, torch; before = set(sys.modules); import encouraging; "
                       "print(*{name.split('.')[0] for name in set(sys.modules) - before})").split())
    heavy = {"triton", "matplotlib", "scipy", "sklearn", "pydantic", "typer", "rich", "jinja2", "safetensors", "pooch",
             "torchvision", "timm", "ray", "transformers", "jax"}
    assert added & heavy == set()


def test_losses_and_metrics_need_torch_and_numpy_alone() -> None:
    """A diagnosis, with its temperature, where nothing else that the command needs is installed."""
    others = sorted({"sklearn", "PIL", *CORE} - {"torch", "numpy"})
    assert float(python(f"""
import sys
sys.modules.update(dict.fromkeys({others}))
import torch
from encouraging import EncouragingLoss, attacks, metrics
torch.manual_seed(0)
logits, labels = 20 * torch.randn(64, 5, requires_grad=True), torch.arange(64) % 5
EncouragingLoss()(logits, labels).backward()
reader = metrics.Reader(5)
reader.update(logits.detach(), labels)
reader.diagnosis()
print(metrics.fit_temperature(logits.detach(), labels))
""")) > 1


def test_the_public_names_are_all_there() -> None:
    assert set(encouraging.__all__) - {"__version__"} == PUBLIC
    assert all(hasattr(encouraging, name) for name in PUBLIC)
    assert set(dir(encouraging)) >= PUBLIC


def test_the_version_does_not_import_torch() -> None:
    assert python("import sys, encouraging; print(encouraging.__version__, 'torch' in sys.modules)").split() == [
        encouraging.__version__, "False"]


USES = [
    "import encouraging; encouraging.EncouragingLoss()",
    "import encouraging; encouraging.curves.focal(2.0); encouraging.errors.CurveError",
    "from encouraging import EncouragingLoss, curves, parallel_curve_loss, errors; curves.focal(2.0)",
    "from encouraging import *; EncouragingLoss(); curves.focal(2.0); assert __version__",
    "import encouraging.curves; encouraging.curves.focal(2.0)",
    "import encouraging.curves as c, encouraging.modules as m; m.CurveLoss(c.focal(2.0))",
    "import encouraging; assert not hasattr(encouraging, 'curve_los')",
    "import copy, pickle, encouraging as e; copy.deepcopy(pickle.loads(pickle.dumps(e.FocalLoss())))",
    "import encouraging, torch; z, y = torch.randn(2, 3), torch.tensor([0, 1]); "
    "torch.compile(lambda z: encouraging.focal_loss(z, y), backend='eager', fullgraph=True)(z)",
]


def test_lazy_names_behave_as_ordinary_ones() -> None:
    """Each use meets a package of which nothing is loaded yet."""
    python(f"""
import sys, torch
for use in {USES!r}:
    for name in [name for name in sys.modules if name.split('.')[0] == 'encouraging']:
        del sys.modules[name]
    exec(use, {{}})
""")


def test_a_pickle_is_loaded_by_a_process_that_has_not_used_the_package(tmp_path: Path) -> None:
    file = tmp_path / "loss.pickle"
    file.write_bytes(pickle.dumps(encouraging.EncouragingLoss(log_end=0.5)))
    printed = python(f"import pickle; print(pickle.load(open({str(file)!r}, 'rb')))")
    assert printed.strip() == "EncouragingLoss(log_end=0.5)"


def test_type_checkers_see_the_names_that_are_loaded_lazily() -> None:
    """The imports under TYPE_CHECKING and the table that is used at run time agree, name by name and home by home."""
    tree = ast.parse(Path(encouraging.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom)
               for alias in node.names if alias.asname == alias.name}
    assert imports == {**encouraging._HOME, "curves": None}
    for name, home in encouraging._HOME.items():
        module = importlib.import_module(f"encouraging.{home}")
        assert getattr(encouraging, name) is getattr(module, name)


def test_type_checkers_refuse_names_that_do_not_exist(tmp_path: Path) -> None:
    """With the repository's settings and cache, which ``make lint`` has filled."""
    script = tmp_path / "use.py"
    script.write_text("import encouraging\nfrom encouraging import EncouragingLoss\n"
                      "reveal_type(EncouragingLoss())\nreveal_type(encouraging.focal_loss)\nencouraging.focal_los\n")
    mypy = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", script], cwd=REPOSITORY,
                          capture_output=True, text=True, timeout=240)
    assert '"encouraging.modules._named.EncouragingLoss"' in mypy.stdout, mypy.stdout + mypy.stderr
    assert "divisor: float | Tensor | None" in mypy.stdout.replace("torch._tensor.", "").replace("Union", "")
    assert 'Module has no attribute "focal_los"' in mypy.stdout


def test_no_package_exports_a_name_equal_to_one_of_its_submodules() -> None:
    """So that ``import encouraging.curves._focal as module`` gives the module, whatever the package exports."""
    for package in [encouraging, *map(importlib.import_module, packages(encouraging))]:
        for submodule in pkgutil.iter_modules(package.__path__):
            if submodule.name == "__main__" or not importlib.util.find_spec(f"{package.__name__}.{submodule.name}"):
                continue
            attribute = getattr(package, submodule.name, None)
            assert attribute is None or isinstance(attribute, types.ModuleType), f"{package.__name__}.{submodule.name}"


def packages(root: types.ModuleType) -> list[str]:
    """Every package below ``root`` whose dependencies are installed."""
    found = [module.name for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}.") if module.ispkg]
    has_triton = importlib.util.find_spec("triton") is not None
    return [name for name in found if has_triton or not name.endswith(".triton")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=REPOSITORY,
                   check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def about(wheel: Path) -> Message:
    (file,) = wheel.glob("*.dist-info/METADATA")
    return Parser().parsestr(file.read_text())


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_wheel_is_typed_licensed_and_has_its_command(wheel: Path) -> None:
    assert (wheel / "encouraging" / "py.typed").exists()
    assert list(wheel.glob("*.dist-info/licenses/LICENSE"))
    (entry_points,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "encouraging = encouraging.cli:main" in entry_points.read_text()
    assert about(wheel)["Name"] == "encouraging-loss"
    assert about(wheel)["Requires-Python"] == ">=3.11"


def test_the_wheel_asks_for_the_core_dependencies_and_offers_the_extras(wheel: Path) -> None:
    wanted = [Requirement(line) for line in about(wheel).get_all("Requires-Dist", [])]

    def names(extra: str) -> set[str]:
        return {canonical(need.name) for need in wanted if need.marker and need.marker.evaluate({"extra": extra})}

    assert {canonical(need.name) for need in wanted if need.marker is None} == CORE
    assert {extra: names(extra) for extra in EXTRAS} == EXTRAS
    assert names("all") == set().union(*EXTRAS.values())
    assert next(need for need in wanted if need.name == "torch").specifier.contains("2.11.0")


def core_closure() -> set[str]:
    """The distributions that come with the core dependencies, on this machine."""
    found: set[str] = set()
    todo = list(CORE)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        needs = [Requirement(line) for line in metadata.requires(name) or ()]
        found.add(name)
        todo += [canonical(need.name) for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def test_the_wheel_works_with_the_core_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    """In a Python whose only packages are links to those that the core dependencies bring."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in core_closure():
        installed = metadata.distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(installed.locate_file(top)))
    code = f"""
import importlib.util, sys
sys.path += [{str(wheel)!r}, {str(packages)!r}]
assert importlib.util.find_spec("pytest") is None

import torch, encouraging
from encouraging import cli
from typer.testing import CliRunner

assert encouraging.__file__.startswith({str(wheel)!r}), encouraging.__file__
logits = torch.randn(4, 5, requires_grad=True)
encouraging.EncouragingLoss()(logits, torch.arange(4)).backward()
assert logits.grad.abs().sum() > 0
result = CliRunner().invoke(cli.app, ["curves", "--out", {str(tmp_path / "curves.svg")!r}])
assert result.exit_code == 0, result.output
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curves.svg").exists()


def test_the_constraints_pin_what_the_project_asks_for() -> None:
    pins = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if "==" in line)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for line in project["dependencies"] + extras["test"] + extras["docs"]:
        need = Requirement(line)
        assert need.specifier.contains(pins[canonical(need.name)]), line
    assert pins["torch"] == "2.13.0"


def test_the_citation_is_the_paper() -> None:
    paper = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())["preferred-citation"]
    assert paper["title"].startswith("Well-Classified Examples are Underestimated")
    assert [author["family-names"] for author in paper["authors"]] == ["Zhao", "Yang", "Ren", "Li", "Wu", "Sun"]
    assert paper["year"] == 2022


def test_no_message_advises_a_package_that_no_index_has():
    """The extras are of this repository: a message names what they consist of."""
    for path in sorted((REPOSITORY / "src").rglob("*.py")):
        assert "encouraging-loss[" not in path.read_text(), path
