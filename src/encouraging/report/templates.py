"""Jinja's templates of the pages, compiled once per process."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


@cache
def environment(package: str, lstrip_blocks: bool) -> Environment:
    """The templates that lie beside the modules of a package; all content is escaped."""
    return Environment(loader=PackageLoader(package, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       lstrip_blocks=lstrip_blocks)


def template(name: str, package: str = "encouraging.report", lstrip_blocks: bool = True) -> Template:
    """A template, from the file of this name."""
    return environment(package, lstrip_blocks).get_template(name)
