"""matplotlib's SVG, made lean and fit for standing inside a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import count

from markupsafe import Markup

from .style import VARIABLES

_IDS = count(1)
_NUMBERS = re.compile(r"-?\d+\.\d+")
_FONT = re.compile(r"font(?:-family|-stretch|-style)?: [^;]*;? ?")
_SIZE = re.compile(r"([\d.]+)px")
_USELESS = re.compile(r"stroke-linejoin: miter; ?|stroke-linecap: (?:square|butt); ?")


def tidy(svg: str) -> Markup:
    """matplotlib's SVG made fit for standing in a page, beside others and in any colour scheme."""
    root = ET.fromstring(svg)
    texts = [node.attrib.get("href") or node.attrib.get("{http://www.w3.org/1999/xlink}href", "")
             for node in root.iter()] + [" ".join(node.attrib.values()) for node in root.iter()]
    used = set(re.findall(r"url\(#([^)]+)\)", " ".join(texts))) | {text[1:] for text in texts if text.startswith("#")}
    names = {name: f"p{next(_IDS)}" for name in sorted(used)}
    root.attrib = {"viewBox": root.attrib["viewBox"], "aria-hidden": "true"}
    _clean(root, names)
    return Markup(ET.tostring(root, encoding="unicode", short_empty_elements=True))


def _clean(node: ET.Element, names: dict[str, str]) -> None:
    node.tag = node.tag.rpartition("}")[2]
    node.tail = None
    if node.tag != "text":
        node.text = None
    kept: list[ET.Element] = []
    for child in list(node):
        name = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else "comment"
        if name in ("metadata", "comment", "style"):
            continue
        child.attrib = {key.rpartition("}")[2]: _attribute(key.rpartition("}")[2], value, names)
                        for key, value in child.attrib.items() if key != "id" or value in names}
        _clean(child, names)
        if child.tag == "g" and not child.attrib:
            kept.extend(child)
        elif child.tag != "defs" or len(child):
            kept.append(child)
    node[:] = kept


def _attribute(key: str, value: str, names: dict[str, str]) -> str:
    if key == "id":
        return names[value]
    if key == "href":
        return f"#{names[value[1:]]}"
    if key == "clip-path":
        return f"url(#{names[value[5:-1]]})"
    if key == "style":
        for colour, variable in VARIABLES.items():
            value = re.sub(colour, f"var(--{variable})", value, flags=re.IGNORECASE)
        if "font" in value and (size := _SIZE.search(value)):
            bold = "font-weight: 700; " if "bold" in value or "700" in value.split("px")[0] else ""
            value = f"font-size: {size[1]}px; {bold}{_FONT.sub('', value)}"
        return _USELESS.sub("", value).strip()
    if key in ("d", "transform", "x", "y", "width", "height", "points"):
        return " ".join(_NUMBERS.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value).split())
    return value
