"""Jinja's templates of the pages, compiled once per process."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

LONG = 12  # letters of a word that may have to be broken


@cache
def environment(package: str, lstrip_blocks: bool) -> Environment:
    """The templates that lie beside the modules of a package; all content is escaped."""
    env = Environment(loader=PackageLoader(package, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                      lstrip_blocks=lstrip_blocks)
    env.filters["code"], env.filters["breakable"] = code, breakable
    return env


def template(name: str, package: str = "encouraging.report", lstrip_blocks: bool = True) -> Template:
    """A template, from the file of this name."""
    return environment(package, lstrip_blocks).get_template(name)


def code(words: str) -> Markup:
    """HTML of a text in which backticks mark code, as in recipes.

    >>> code("`a < b` and <i>")
    Markup('<code>a &lt; b</code> and &lt;i&gt;')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))


def breakable(words: str) -> Markup:
    """HTML of a name that a phone breaks after an underscore or dot where it is long, and not within a word.

    >>> breakable("el_1_matched"), breakable("log_end = 0.5 < 1")
    (Markup('el_<wbr>1_<wbr>matched'), Markup('log_end = 0.5 &lt; 1'))
    """
    if max(map(len, words.split()), default=0) < LONG:
        return escape(words)
    return Markup(re.sub(r"(?<=[_.])(?<!\d\.)(?=[^_.])", "<wbr>", str(escape(words))))
