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
from .style import BLACK, BLUE, BROWN, GREEN, INDIGO, PURPLE, VARIABLES, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRUE, PREDICTED = Key("true box", BLACK, "--"), Key("predicted box", BLACK)
KEYS = (TRUE, PREDICTED)
CLASS_COLOURS = (BLUE, VERMILION, GREEN, BROWN, PURPLE, INDIGO)
_TEXT = 9  # pixels


class Box(NamedTuple):
    """A box in pixels of the photograph, what is said about it, whether it is true or predicted, and the colour of its
    class; ``label`` is written at it, where the colour alone does not tell the class."""

    left: float
    top: float
    right: float
    bottom: float
    words: str
    key: Key
    colour: str
    label: str = ""

    @property
    def label_place(self) -> tuple[float, float]:
        """Where the label begins: above a predicted box, inside a true one at its lower side."""
        above = max(self.top - 2, _TEXT)
        return max(self.left, 1.0) + 1, above if self.key is PREDICTED else self.bottom - 2


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
        # A light line below keeps it visible on any photograph, and dashes on a predicted box of the same place.
        name, light, below, width, dashes = ("true", ".9", "1.8", "1.8", "5 4") if box.key is TRUE else \
            ("predicted", ".6", "4", "2.2", "none")
        parts.append(Markup('<rect {} stroke="#fff" stroke-opacity="{}" stroke-width="{}"/>').format(
            sides, light, below))
        parts.append(Markup('<rect class="{}" {} style="stroke:var(--{})" stroke-width="{}" stroke-dasharray="{}">'
                            '<title>{}</title></rect>').format(
            name, sides, VARIABLES[box.colour], width, dashes, escape(printable(f"{box.key.label}: {box.words}"))))
    for box in photo.boxes:
        if box.label:
            x, y = box.label_place
            parts.append(Markup('<text class="s" x="{:.1f}" y="{:.1f}" font-size="{}" '
                                'style="fill:var(--{});stroke:#fff;stroke-width:2.5px;paint-order:stroke">{}</text>').format(
                x, y, _TEXT, VARIABLES[box.colour], escape(printable(box.label))))
    return Markup("").join([*parts, Markup("</svg>")])


def _drawn(photo: Photo) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        from matplotlib.patches import Rectangle
        from PIL import Image

        axes.imshow(np.asarray(Image.open(io.BytesIO(_bytes(photo)))))
        axes.set_axis_off()
        for box in photo.boxes:
            for colour, dashes in (("white", "-"), (box.colour, box.key.dashes)):  # a light line below, as in the page
                axes.add_patch(Rectangle((box.left, box.top), box.right - box.left, box.bottom - box.top, fill=False,
                                         ec=colour, ls=dashes, lw=1.4))
            if box.label:
                axes.text(*box.label_place, printable(box.label), color=box.colour, fontsize=7)
    return draw


def _bytes(photo: Photo) -> bytes:
    try:
        content = base64.b64decode(photo.jpeg, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RunError(f"a record has a photograph that is not base64 ({error}). Remove the damaged run.") from error
    if not content.startswith(b"\xff\xd8"):
        raise RunError("a record has a photograph that is not a JPEG. Remove the damaged run.")
    return content
