"""The documentation runs: every Python block of the README and of docs/, and what they promise about the repository."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import socket
import sys
import textwrap
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Never

import pytest
import torch
from typer.testing import CliRunner

import encouraging
from encouraging import attacks, cli, curves, imbalance, integrations, metrics
from forked import ForkedPython

REPOSITORY = Path(__file__).parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]


BLOCK = re.compile(r"(?:^<!-- needs: (\S+) -->\n)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, package: str | None = None) -> list[tuple[int, str]]:
    """Line and text of the page's Python blocks: those that need no package beside the tests' own, or this one."""
    text = page.read_text()
    return [(text[: found.start(2)].count("\n"), found[2]) for found in BLOCK.finditer(text) if found[1] == package]


def needed_packages() -> list[tuple[Path, str]]:
    return [(page, package) for page in PAGES
            for package in dict.fromkeys(found[1] for found in BLOCK.finditer(page.read_text()) if found[1])]


def run_blocks(page: Path, numbered: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for line, block in numbered:
        exec(compile("\n" * line + block, str(page), "exec", dont_inherit=True), module.__dict__)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if any("encouraging.ops.triton" in block for _, block in blocks(page)):
        pytest.importorskip("triton")
    run_blocks(page, blocks(page), monkeypatch)


@pytest.mark.filterwarnings("ignore")  # the libraries' own, about each other
@pytest.mark.parametrize(("page", "package"), needed_packages(), ids=lambda value: getattr(value, "name", value))
def test_a_block_for_another_library_runs_after_the_first_of_its_page(page: Path, package: str, tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment ``<!-- needs: PACKAGE -->`` above a block names what ``pip install`` calls it."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{page.name} shows {package}, which is not installed: pip install {package}")
    monkeypatch.chdir(tmp_path)
    run_blocks(page, [*blocks(page)[:1], *blocks(page, package)], monkeypatch)


def test_the_versions_of_the_integrations_are_the_pinned_ones() -> None:
    """Libraries that the continuous check installs were run with the versions of the check."""
    pins = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if "==" in line)
    page = (REPOSITORY / "docs" / "integrations.md").read_text()
    table = re.findall(r"^\| \[.*?\| (\S+) ([\d.]+) \|", page, re.MULTILINE)
    pinned = {package: version for package, version in table if package in pins}
    assert {"torchvision", "timm", "torch-geometric", "keras", "skorch"} <= pinned.keys()
    assert pinned == {package: pins[package] for package in pinned}


def test_a_script_with_a_name_runs_as_the_page_says(tmp_path: Path) -> None:
    """A block with a title is a file, and a line below it starts it in several processes."""
    page = REPOSITORY / "docs" / "language-models.md"
    (name, script), = re.findall(r'^```python title="([^"]+)"\n(.*?)^```', page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / name).write_text(script)
    assert f"torchrun --nproc-per-node 2 {name}\n" in page.read_text()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [ForkedPython(tmp_path / name, RANK=str(rank), LOCAL_RANK=str(rank), **world) for rank in range(2)]
    ranks = [process.wait() for process in started]
    printed = [rank.stdout + rank.stderr for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(printed)
    assert len({line.split(": ")[1] for text in printed for line in text.splitlines() if line.startswith("rank")}) == 1


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text()
    missing = [page.name for page in PAGES[1:] if page.name not in navigation]
    assert missing == []


def public_names() -> list[tuple[str, object]]:
    """Every public function, class and constant of the package, of the curves and of what is made of them."""
    return [(f"{module.__name__}.{name}", getattr(module, name))
            for module in (encouraging, curves, metrics, attacks, imbalance) for name in module.__all__
            if name not in {"curves", "__version__"}]


def names_of_integrations() -> list[str]:
    """Read from the files, because their libraries may be missing."""
    files = [path for path in Path(integrations.__file__).parent.glob("*.py") if not path.name.startswith("_")]
    assigned = [(path.stem, node) for path in files for node in ast.parse(path.read_text()).body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    assert len(assigned) == len(files) >= 4
    return [f"encouraging.integrations.{module}.{name}" for module, node in assigned
            for name in ast.literal_eval(node.value)]


def test_the_reference_has_every_public_name() -> None:
    """With its docstring; constants, and what only the integrations create, in a sentence."""
    page = (REPOSITORY / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))
    assert {path for path, thing in public_names() if callable(thing)} <= listed
    others = {path for path, _ in public_names()} | set(names_of_integrations())
    assert [path for path in sorted(others - listed) if f"`{path.rpartition('.')[2]}`" not in page] == []


WITHOUT_EXAMPLE = {
    "encouraging.parallel_curve_loss": "needs several processes: docs/language-models.md has one",
    "encouraging.attacks.autoattack": "needs pyautoattack: docs/attacks.md has one",
    "encouraging.LossStats": "returned by curve_loss_with_stats, whose example shows it",
    "encouraging.metrics.Bootstrap": "returned by paired_bootstrap, whose example shows it",
    "encouraging.metrics.Detection": "returned by detection, whose example shows it",
    "encouraging.metrics.Readings": "returned by read, whose example shows it",
    "encouraging.metrics.Reliability": "returned by reliability, whose example shows it",
    "encouraging.metrics.Unlabelled": "returned by read_unlabelled, whose example shows it",
    "encouraging.attacks.Progress": "handed to a function of the user's",
    "encouraging.attacks.RobustAccuracy": "returned by accuracy_over_eps, whose example shows it",
    "encouraging.attacks.Verdict": "returned by masked_gradients, whose example shows it",
}


def missing_sections(path: str, thing: Callable[..., object]) -> list[str]:
    text = inspect.cleandoc(vars(thing).get("__doc__") or "" if inspect.isclass(thing) else thing.__doc__ or "")
    signature = inspect.signature(thing)
    takes = {name for name, parameter in signature.parameters.items()
             if parameter.kind != parameter.VAR_POSITIONAL and parameter.annotation not in ("Never", Never)}
    block = re.search(r"^(?:Args|Attributes):\n((?:[ ]{4}.*(?:\n|$))+)", text, re.MULTILINE)
    items = re.split(r"\n(?=\S)", textwrap.dedent(block[1])) if block else []
    named = {name.strip(" *") for item in items for name in item.partition(":")[0].split(",")}
    missing = [f"an argument {name}" for name in sorted(takes - named)]
    missing += [f"{name} is no argument" for name in sorted(named - takes)]
    if not inspect.isclass(thing) and signature.return_annotation not in {None, "None"} and "\nReturns:\n" not in text:
        missing.append("Returns:")
    if (">>> " in text) == (path in WITHOUT_EXAMPLE):
        missing.append("an example, or a reason in WITHOUT_EXAMPLE")
    return missing


def test_every_public_function_and_class_says_what_it_takes_and_returns_and_has_an_example() -> None:
    things = {path: thing for path, thing in public_names() if callable(thing)}
    assert WITHOUT_EXAMPLE.keys() <= things.keys()
    assert {path: missing for path, thing in things.items() if (missing := missing_sections(path, thing))} == {}


def test_a_docstring_without_its_sections_is_found() -> None:
    def loss(input: int, target: int) -> int:
        """Nothing else.

        Args:
            input: One.
            output: Not there.
        """

    assert missing_sections("loss", loss) == ["an argument target", "output is no argument", "Returns:",
                                              "an example, or a reason in WITHOUT_EXAMPLE"]


def test_the_table_of_curves_has_them_all() -> None:
    table = (REPOSITORY / "docs" / "curves.md").read_text()
    assert [name for name in curves.names() if f"`{name}(" not in table] == []


def test_the_architecture_names_every_layer() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    package = Path(encouraging.__file__).parent
    layers = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    layers |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert [layer for layer in sorted(layers) if not re.search(rf"`{layer}/?`", page)] == []


def test_the_picture_is_what_the_command_draws(tmp_path: Path) -> None:
    out = tmp_path / "curves.svg"
    assert CliRunner().invoke(cli.app, ["curves", "--out", str(out)]).exit_code == 0

    def words(path: Path) -> list[str]:
        return ["".join(node.itertext()) for node in ET.parse(path).iter() if node.tag.endswith("}text")]

    assert words(REPOSITORY / "docs" / "images" / "curves.svg") == words(out)


def test_the_commands_of_the_readme_exist_and_the_check_runs_the_test_command() -> None:
    readme, makefile = (REPOSITORY / "README.md").read_text(), (REPOSITORY / "Makefile").read_text()
    commands = set(re.findall(r"(?:^|`)make (\w+)", readme, re.MULTILINE))
    assert {"demo", "test"} <= commands
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in commands)
    assert (REPOSITORY / ".ci" / "run").read_text().rstrip().endswith("make test")


def test_the_page_of_attacks_says_how_before_what_came_out_and_what_its_words_mean() -> None:
    page = (REPOSITORY / "docs/attacks.md").read_text()
    titles = ("One attack at a time", "Trained runs", "What came out on MNIST")
    order = [page.index(f"\n## {title}\n") for title in titles]
    assert order == sorted(order)
    assert page.index("**scale-free**") < page.index("scale-free attacks")
    assert "is *not judged* where" in page


@pytest.fixture
def hooks(monkeypatch):
    """``docs/hooks.py``, which makes the API page, without the package that only it needs."""
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", types.SimpleNamespace(convert=str))
    spec = importlib.util.spec_from_file_location("docs_hooks", REPOSITORY / "docs" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


def test_the_reference_shows_no_markup_that_markdown_does_not_know(hooks):
    """Docstrings are reStructuredText: their tables and roles are no tables and formulas on the page."""
    for path, thing in public_names():
        if callable(thing):
            text = hooks.reference(path)
            assert not re.search(r"^ *={4,}", text, re.MULTILINE), f"{path}: a table"
            assert not re.search(r":\w+:`", text), f"{path}: a role"
            assert not re.search(r"(?<!\$)`\\?[a-z]*\\[a-z]+", text), f"{path}: LaTeX as code"


def test_a_formula_in_a_sentence_of_a_docstring_is_drawn(hooks):
    text = hooks.docstring("It is :math:`-T \\log z` in :func:`encouraging.metrics.ece`.")
    assert text == "It is $`-T \\log z`$ in `metrics.ece`."
    hooks.convert = lambda latex, display: f"<math {display}>{latex}</math>"
    assert hooks.on_page_markdown(text) == r"It is <math inline>-T \log z</math> in `metrics.ece`."


def test_signatures_of_the_reference_have_only_what_users_pass(hooks):
    assert hooks.signature("EncouragingLoss", encouraging.EncouragingLoss) == \
        "class EncouragingLoss(*, log_end: float = 0.75, eps: float = 1e-05, **arguments)"
    for path, thing in public_names():
        if callable(thing):
            assert not re.search(r"Never|<class|<function", hooks.signature(path, thing)), path


def test_the_reference_of_integrations_needs_none_of_their_libraries(hooks, monkeypatch):
    """The site is built in an environment without them, or with one that does not work with its torch."""
    for library in ("jax", "transformers", "keras"):
        monkeypatch.setitem(sys.modules, library, None)
    page = (REPOSITORY / "docs" / "api.md").read_text()
    paths = re.findall(r"^::: (encouraging\.integrations\.\S+)$", page, re.MULTILINE)
    assert len(paths) >= 6
    for path in paths:
        monkeypatch.delitem(sys.modules, path.rpartition(".")[0], raising=False)
        name = path.rpartition(".")[2]
        text = hooks.reference(path)
        assert re.match(rf"### {name}\n\n```python\n(class )?{name}\(", text)
        assert len(text) > 200
    assert "    label_smoothing: float = 0.0,\n" in hooks.reference("encouraging.integrations.transformers.with_curve")
