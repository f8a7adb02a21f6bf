"""A photograph with boxes on it: as an SVG with the JPEG inside for the page, and on axes for files."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from ...errors import RunError
from .panels import WIDTH, Key, Panel, printable
from .style import BLUE, GREEN, VARIABLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRUE, PREDICTED = Key("true box", GREEN, "--"), Key("predicted box", BLUE)
KEYS = (TRUE, PREDICTED)


class Box(NamedTuple):
    """A box in pixels of the photograph, and what is written on it."""

    left: float
    top: float
    right: float
    bottom: float
    words: str
    key: Key


class Photo(NamedTuple):
    """A JPEG as base64 has it, and its boxes."""

    jpeg: str
    width: int
    height: int
    boxes: Sequence[Box]


def photo_panel(photo: Photo, title: str, tag: str | None = None) -> Panel:
    """The photograph as one panel of a picture."""
    _bytes(photo)  # a damaged one is refused before anything is drawn
    height = round(WIDTH * photo.height / photo.width) + 28
    return Panel(_drawn(photo), title, height=height, left=2, svg=_svg(photo), tag=tag)


def _svg(photo: Photo) -> Markup:
    parts = [Markup('<svg class="fig photo" viewBox="0 0 {} {}" style="overflow:hidden" aria-hidden="true">'
                    '<image width="{}" height="{}" href="data:image/jpeg;base64,{}"/>').format(
        photo.width, photo.height, photo.width, photo.height, photo.jpeg)]
    for box in photo.boxes:
        # Lines keep their width however much the photograph is enlarged.
        sides = Markup('x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="none" '
                       'vector-effect="non-scaling-stroke"').format(box.left, box.top, box.right - box.left,
                                                                    box.bottom - box.top)
        if box.key is PREDICTED:  # a light line below keeps it visible on any photograph
            parts.append(Markup('<rect {} stroke="#fff" stroke-opacity=".6" stroke-width="4"/>').format(sides))
        parts.append(Markup('<rect class="{}" {} style="stroke:var(--{})" stroke-width="2" stroke-dasharray="{}">'
                            '<title>{}</title></rect>').format(
            "true" if box.key is TRUE else "predicted", sides, VARIABLES[box.key.colour], box.key.stroke or "none",
            escape(printable(f"{box.key.label}: {box.words}"))))
    return Markup("").join([*parts, Markup("</svg>")])


def _drawn(photo: Photo) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        from matplotlib.patches import Rectangle
        from PIL import Image

        axes.imshow(np.asarray(Image.open(io.BytesIO(_bytes(photo)))))
        axes.set_axis_off()
        for box in photo.boxes:
            axes.add_patch(Rectangle((box.left, box.top), box.right - box.left, box.bottom - box.top, fill=False,
                                     ec=box.key.colour, ls=box.key.dashes, lw=1.4))
    return draw


def _bytes(photo: Photo) -> bytes:
    try:
        content = base64.b64decode(photo.jpeg, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RunError(f"a record keeps a photograph that is not base64 ({error}). Remove the damaged run.") from error
    if not content.startswith(b"\xff\xd8"):
        raise RunError("a record keeps a photograph that is no JPEG. Remove the damaged run.")
    return content
