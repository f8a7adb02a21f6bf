"""matplotlib's SVG, made small and fit for use inside a page.

A page may hold a thousand panels, so every byte counts: colours become classes of the page's style sheet (``.fig`` in
``figures.css``), markers become circles or parts of one path, and clip paths stay only where they cut something off.
What was drawn with a ``gid`` that begins with ``TAG`` keeps it as ``data-arm``, so that the page can dim the others.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import count

from markupsafe import Markup

from .paths import Box, circle_radius, shifted, shorter
from .style import VARIABLES

TAG = "arm-"
_IDS = count(1)
_CLASSES = {colour.lower(): variable for colour, variable in VARIABLES.items()}
_KEPT = ("stroke-width", "stroke-opacity", "fill-opacity", "opacity", "stroke-dasharray", "stroke-dashoffset")
_ANCHORS = {"start": "s", "end": "e"}  # text in the middle is the style sheet's default
_GRID = "s-line"
_THIN = ".8"  # the style sheet's width of lines


def tidy(svg: str) -> Markup:
    """matplotlib's SVG made fit for a page with many others, in light and dark."""
    root = ET.fromstring(svg)
    for node in root.iter():
        if isinstance(node.tag, str):
            node.tag = node.tag.rpartition("}")[2]
            node.attrib = {key.rpartition("}")[2]: value for key, value in node.attrib.items()}
    shapes = {node.attrib["id"]: node.attrib["d"] for node in root.iter("path") if "id" in node.attrib}
    clips = {node.attrib["id"]: Box.of(node[0].attrib) for node in root.iter("clipPath")}
    drawn: list[ET.Element] = []
    _collect(root, shapes, clips, None, drawn)
    lean = ET.Element("svg", {"class": "fig", "viewBox": root.attrib["viewBox"], "aria-hidden": "true"})
    lean.extend(_merged(drawn))
    _name_clips(lean, clips)
    return Markup(ET.tostring(lean, encoding="unicode", short_empty_elements=True).replace(" />", "/>"))


def _collect(node: ET.Element, shapes: dict[str, str], clips: dict[str, Box], clip: str | None,
             drawn: list[ET.Element]) -> None:
    """Every drawn element in order, without groups: the clip path and the arm of a group are passed on to its members.
    """
    for child in node:
        clip_here, before = _clip_of(child) or clip, len(drawn)
        match child.tag:
            case "path" if "id" not in child.attrib:
                _add_path(child.attrib["d"], child, clip_here, clips, drawn)
            case "use":
                dx, dy = float(child.attrib.get("x", 0)), float(child.attrib.get("y", 0))
                shape = shapes[child.attrib["href"][1:]]
                if (radius := circle_radius(shape)) is not None:
                    drawn.append(_circle(dx, dy, radius, child, clip_here, clips))
                else:
                    _add_path(shifted(shape, dx, dy), child, clip_here, clips, drawn)
            case "text":
                drawn.append(_text(child))
            case "g" | "svg" | "a":
                _collect(child, shapes, clips, clip_here, drawn)
            case _:  # metadata, style, definitions
                pass
        if (tag := child.attrib.get("id", "")).startswith(TAG):
            for member in drawn[before:]:
                member.attrib["data-arm"] = tag


def _clip_of(node: ET.Element) -> str | None:
    clip = node.attrib.get("clip-path", "")
    return clip[5:-1] if clip.startswith("url(#") else None


def _add_path(d: str, node: ET.Element, clip: str | None, clips: dict[str, Box], drawn: list[ET.Element]) -> None:
    look = _look(node)
    if "class" in look:
        short, inside = shorter(d, clips.get(clip or ""))
        drawn.append(ET.Element("path", {"d": short, **look, **({} if inside or not clip else {"clip": clip})}))


def _circle(x: float, y: float, radius: float, node: ET.Element, clip: str | None,
            clips: dict[str, Box]) -> ET.Element:
    inside = clip is None or clips[clip].holds(x, y)
    return ET.Element("circle", {"cx": number(x), "cy": number(y), "r": number(radius), **_look(node),
                                 **({} if inside or clip is None else {"clip": clip})})


def _look(node: ET.Element) -> dict[str, str]:
    """Classes for the colours, and attributes for the rest. What is neither filled nor stroked has no class."""
    style = _style(node)
    names = [f"{kind[0]}-{_CLASSES.get(style[kind].lower(), 'ink')}" for kind in ("fill", "stroke")
             if style.get(kind, "none") != "none"]
    look = {"class": " ".join(names)} if names else {}
    look |= {key: " ".join(number(float(part)) for part in re.split(r"[, ]+", style[key])) for key in _KEPT
             if key in style and style[key] != "none"}
    if look.get("stroke-dashoffset") == "0":
        del look["stroke-dashoffset"]
    width = number(float(style.get("stroke-width", 1)))
    look.pop("stroke-width", None)
    if style.get("stroke", "none") != "none" and width != _THIN:
        look["stroke-width"] = width
    return look


def _style(node: ET.Element) -> dict[str, str]:
    parts = (part.partition(":") for part in node.attrib.get("style", "").split(";"))
    return {key.strip(): value.strip() for key, _, value in parts if value}


def _text(node: ET.Element) -> ET.Element:
    """Text in the page's own font; 11 pixels, muted and centred unless it says otherwise."""
    style = _style(node)
    names = [_ANCHORS[style["text-anchor"]]] if style.get("text-anchor") in _ANCHORS else []
    variable = _CLASSES.get(style.get("fill", "#1a1a1a").lower(), "ink")
    names += [f"f-{variable}"] if variable != "muted" else []
    font = style.get("font", style.get("font-size", ""))
    names += ["b"] if "bold" in font or "700" in font.split("px")[0] or style.get("font-weight") in ("700", "bold") \
        else []
    attributes: dict[str, str] = {key: number(float(node.attrib[key])) for key in ("x", "y") if key in node.attrib}
    if names:
        attributes["class"] = " ".join(names)
    size = re.search(r"([\d.]+)px", style.get("font-size", font))
    if size and float(size[1]) != 11:
        attributes["font-size"] = number(float(size[1]))
    transform = node.attrib.get("transform", "")
    if transform and not re.match(r"rotate\(-?0 ", transform):
        attributes["transform"] = transform
    text = ET.Element("text", attributes)
    text.text = "".join(node.itertext())
    return text


def _merged(drawn: list[ET.Element]) -> list[ET.Element]:
    """Paths of one look that follow each other, and the whole grid, become one path."""
    merged: list[ET.Element] = []
    grid: ET.Element | None = None
    for node in drawn:
        before = merged[-1] if merged else None
        if node.tag == "path" and "fill" not in node.attrib and node.attrib["class"] == _GRID:
            if grid is not None and _same_look(grid, node):
                grid.attrib["d"] += node.attrib["d"]
                continue
            grid = node if grid is None else grid
        elif (before is not None and node.tag == before.tag == "path" and _same_look(before, node)
              and not node.attrib["class"].startswith("f-") and "opacity" not in " ".join(node.attrib)):
            before.attrib["d"] += node.attrib["d"]
            continue
        merged.append(node)
    return merged


def _same_look(one: ET.Element, other: ET.Element) -> bool:
    return {**one.attrib, "d": ""} == {**other.attrib, "d": ""}


def _name_clips(lean: ET.Element, clips: dict[str, Box]) -> None:
    """Clip paths that are used get a name of their own in the page."""
    names: dict[str, str] = {}
    for node in lean:
        if "clip" in node.attrib:
            clip = node.attrib.pop("clip")
            names.setdefault(clip, f"p{next(_IDS)}")
            node.attrib["clip-path"] = f"url(#{names[clip]})"
    for clip, name in names.items():
        path = ET.SubElement(lean, "clipPath", {"id": name})
        ET.SubElement(path, "path", {"d": clips[clip].path})


def number(value: float) -> str:
    """A number with one decimal at most; two below 1.

    >>> number(0.55), number(-12.04), number(3.0)
    ('.55', '-12', '3')
    """
    text = f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text.replace("0.", ".", 1) if abs(value) < 1 else text
