"""The pictures of detections: classes are told apart without a mouse."""

from __future__ import annotations

import base64
import io
import re
from types import SimpleNamespace

from PIL import Image

from encouraging.report.drawing.panels import Picture
from encouraging.report.sections import boxes


def photograph() -> str:
    content = io.BytesIO()
    Image.new("RGB", (344, 258), "#d8c8c0").save(content, "JPEG")
    return base64.b64encode(content.getvalue()).decode()


def picture_of(names: list[str], predicted: list[list[list[float]]]) -> Picture:
    """A picture of one image with a true box per class, and what each of some arms predicts."""
    true = [[x, y, x + 30, y + 40, label] for label in range(len(names))
            for x, y in [(12 + 40 * (label % 8), 20 + 60 * (label // 8))]]
    arms = [SimpleNamespace(name=f"arm{number}", tag=None, diagnosed=lambda key, found=found: [{
        "names": names, "confident": 0.5, "images": [{"name": "cells.jpg", "width": 344, "height": 258,
                                                      "jpeg": photograph(), "true": true, "predicted": found}]}])
            for number, found in enumerate(predicted)]
    section = boxes.section(arms)
    assert section is not None
    picture, = section.pictures
    return picture


def test_every_class_has_a_colour_of_its_own_in_boxes_and_legend():
    picture = picture_of(["red cell", "white cell", "platelet"], [[[20, 20, 90, 90, 1, 0.93]]])
    assert [key.label for key in picture.keys] == ["true box", "predicted box", "white cell", "red cell", "platelet"]
    colours = {key.label: key.variable for key in picture.keys}
    assert len(set(colours.values())) == 4  # true and predicted boxes differ by their lines
    drawn = str(picture.panels[0].svg)
    assert f'class="predicted" x="20.0" y="20.0" width="70.0" height="70.0" fill="none" ' \
           f'vector-effect="non-scaling-stroke" style="stroke:var(--{colours["white cell"]})"' in drawn
    assert len(re.findall(r'class="true"[^>]*stroke-dasharray="5 4"', drawn)) == 3
    assert set(re.findall(r"stroke:var\(--(\w+)\)", drawn)) == set(colours.values()) - {colours["true box"]}
    assert "<text" not in drawn


def test_where_classes_share_colours_their_names_stand_at_the_boxes():
    names = [f"species {number} of the pond" for number in range(9)]
    picture = picture_of(names, [[[60, 100, 120, 160, 8, 0.87]]])
    drawn = str(picture.panels[0].svg)
    assert re.findall(r"<text[^>]*>([^<]*)<", drawn) == ["species 8 ", *(name[:10] for name in names)]
    assert b"species 8" in picture.svg()


def test_an_arm_without_confident_boxes_says_so_below_the_picture():
    picture = picture_of(["cell"], [[], [[60, 100, 120, 160, 0, 0.87]], []])
    assert picture.caption == "cells.jpg. arm0 and arm2 predict no box with a score of at least 0.5."
    assert picture_of(["cell"], [[[60, 100, 120, 160, 0, 0.87]]]).caption == "cells.jpg"
