"""What the documentation adds to Markdown: formulas as MathML, which browsers draw by themselves, and the API page.

A fenced block of kind ``math`` holds LaTeX. A line ``::: name`` stands for the signature and the docstring of a public
name, so that the reference says what the code says.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from typing import Any

from latex2mathml.converter import convert

FENCE = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
THIN = '<mspace width="0.17em" />'
ROLE = re.compile(r":\w+:`~?([^`]+)`")


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = ENTRY.sub(lambda found: reference(found[1]), markdown)
    return FENCE.sub(lambda found: f'<div class="math">{mathml(found[1])}</div>', markdown)


def mathml(latex: str) -> str:
    """A formula as MathML, with the thin space that belongs between ``log`` and its argument."""
    return convert(" ".join(latex.split()), display="block").replace("<mi>log</mi><mi>", f"<mi>log</mi>{THIN}<mi>")


def reference(path: str) -> str:
    """The heading, the signature and the docstring of ``package.module.name``, as Markdown."""
    module, _, name = path.rpartition(".")
    try:
        thing = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in {"triton", "jax"}:
            raise
        return f"### {name}\n\nWhat it takes is shown where the documentation is built with {error.name} installed."
    if not callable(thing):
        raise TypeError(f"{path} has no signature to document")
    parts = [f"### {name}", f"```python\n{signature(name, thing)}\n```", docstring(thing)]
    return "\n\n".join(parts)


def signature(name: str, thing: Any) -> str:
    """One argument a line where one line would be too long; class names of annotations without their modules."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return f"class {name}({thing.__bases__[0].__name__})"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing))).removesuffix(" -> None")
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = text.replace("'", '"')
    text = re.sub(r"\b(?:torch|typing|collections\.abc|encouraging(?:\.\w+)*)\.(?=[A-Z])", "", text)
    kind = "class " if inspect.isclass(thing) else ""
    if len(kind + name + text) <= 90:
        return f"{kind}{name}{text}"
    inside, _, result = text[1:].rpartition(")")
    arguments = re.split(r", (?![^\[(]*[\])])", inside)
    return f"{kind}{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){result}"


def docstring(thing: Any) -> str:
    """Docstrings as they are written here: prose, ``.. math::``, ``Args:`` and doctests."""
    text = ROLE.sub(lambda found: f"`{found[1].removeprefix('encouraging.')}`", inspect.getdoc(thing) or "")
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^\.\. math:: (.*(?:\n[ ]+\S.*)*)", r"```math\n\1\n```", text, flags=re.MULTILINE)
    text = re.sub(r"^Args:\n((?:[ ]{4}.*(?:\n|$))+)", lambda found: arguments(found[1]), text, flags=re.MULTILINE)
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
