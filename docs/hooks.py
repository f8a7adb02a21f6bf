"""What the documentation adds to Markdown: formulas as MathML, which browsers draw by themselves, and the API page.

A fenced block of kind ``math`` holds LaTeX, and so does code between dollar signs in a sentence. A line ``::: name``
stands for the signature and the docstring of a public name, so that the reference says what the code says.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, Never, Unpack, get_origin

from latex2mathml.converter import convert

FENCE = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$`([^`]+)`\$")
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
THIN = '<mspace width="0.17em" />'
ROLE = re.compile(r":\w+:`~?([^`]+)`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = ENTRY.sub(lambda found: reference(found[1]), markdown)
    markdown = FENCE.sub(lambda found: f'<div class="math">{mathml(found[1], "block")}</div>', markdown)
    return INLINE.sub(lambda found: mathml(found[1], "inline"), markdown)


def mathml(latex: str, display: str) -> str:
    """A formula as MathML, with the thin space that belongs between ``log`` and its argument."""
    return convert(" ".join(latex.split()), display=display).replace("<mi>log</mi><mi>", f"<mi>log</mi>{THIN}<mi>")


def reference(path: str) -> str:
    """The heading, the signature and the docstring of ``package.module.name``, as Markdown."""
    module, _, name = path.rpartition(".")
    try:
        thing = getattr(importlib.import_module(module), name)
    except (ImportError, RuntimeError):  # the library is missing, or does not work with this torch
        if not module.startswith("encouraging.integrations."):
            raise
        return entry(name, *from_source(module, name))
    if not callable(thing):
        raise TypeError(f"{path} has no signature to document")
    return entry(name, signature(name, thing), inspect.getdoc(thing) or "")


def entry(name: str, shown: str, text: str) -> str:
    return "\n\n".join([f"### {name}", f"```python\n{shown}\n```", docstring(text)])


def from_source(module: str, name: str) -> tuple[str, str]:
    """The signature and the docstring of what a file defines, without running it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found = defined[name]
    text = ast.get_docstring(found) or ""
    if isinstance(found, ast.FunctionDef):
        gives = f" -> {ast.unparse(found.returns)}" if found.returns is not None else ""
        return laid_out(name, f"({written(found.args)}){gives}"), text
    made = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return laid_out(f"class {name}", f"({written(made[0].args) if made else ''})"), text


def written(arguments: ast.arguments) -> str:
    """Arguments as the code here has them, without ``self``."""
    text = ast.unparse(arguments).removeprefix("self").removeprefix(", ").replace("'", '"')
    return re.sub(r"(: [^=,]+)=", r"\1 = ", text)


def signature(name: str, thing: Any) -> str:
    """The signature, with class names of annotations without their modules. It is without what only refuses arguments,
    of the type Never, and ``**arguments`` have no type: the docstring says what they are."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return f"class {name}({thing.__bases__[0].__name__})"
    found = inspect.signature(thing)
    taken = [each.replace(annotation=each.empty) if get_origin(each.annotation) is Unpack else each
             for each in found.parameters.values() if each.annotation not in ("Never", Never)]
    text = str(found.replace(parameters=taken))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).removesuffix(" -> None")
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = text.replace("'", '"')
    text = re.sub(r"\b(?:torch|typing|collections\.abc|encouraging(?:\.\w+)*)\.(?=[A-Z])", "", text)
    return laid_out(("class " if inspect.isclass(thing) else "") + name, text)


def laid_out(name: str, text: str) -> str:
    """A signature, with one argument per line where it would be too long."""
    if len(name + text) <= 90:
        return name + text
    inside, _, result = text[1:].rpartition(")")
    arguments = re.split(r", (?![^\[(]*[\])])", inside)
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){result}"


def docstring(text: str) -> str:
    """Docstrings as they are written here: prose, ``.. math::``, ``Args:`` or ``Attributes:``, ``Raises:`` and
    doctests."""
    text = re.sub(r":math:`([^`]+)`", r"$`\1`$", text)
    text = ROLE.sub(lambda found: f"`{found[1].removeprefix('encouraging.')}`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^\.\. math:: (.*(?:\n[ ]+\S.*)*)", r"```math\n\1\n```", text, flags=re.MULTILINE)
    text = re.sub(r"^(?:Args|Attributes):\n((?:[ ]{4}.*(?:\n|$))+)", lambda found: arguments(found[1]), text,
                  flags=re.MULTILINE)
    text = re.sub(r"^Raises:\n((?:[ ]{4}.*(?:\n|$))+)", lambda found: f"Raises:\n{arguments(found[1])}", text,
                  flags=re.MULTILINE)
    return re.sub(r"^>>> .*(?:\n(?!\n).*)*", lambda found: f"```pycon\n{found[0]}\n```", text, flags=re.MULTILINE)


def arguments(block: str) -> str:
    items = re.split(r"\n(?=\S)", textwrap.dedent(block).strip())
    rows = [re.match(r"([^:]+):\s*(.*)", item, re.DOTALL) for item in items]
    lines = []
    for row in rows:
        assert row is not None, f"an argument without a description: {block}"
        named = ", ".join(f"`{one.strip()}`" for one in row[1].split(","))
        lines.append(f"- {named}: {' '.join(row[2].split())}")
    return "\n" + "\n".join(lines) + "\n\n"
