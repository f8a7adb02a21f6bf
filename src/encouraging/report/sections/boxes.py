"""The section of detections: test images with true and predicted boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arms import Arm
from ..drawing.panels import Panel, Picture
from ..drawing.photos import KEYS, PREDICTED, TRUE, Box, Photo, photo_panel
from ..numbers import listed, show
from .parts import Section


def section(arms: Sequence[Arm]) -> Section | None:
    """One picture per image, with a panel for each arm: its first seed's model."""
    kept = [(arm, several[0]) for arm in arms if (several := arm.diagnosed("boxes"))]
    names = list(dict.fromkeys(image["name"] for _, boxes in kept for image in boxes["images"]))
    pictures = [_picture(number, name, kept) for number, name in enumerate(names, 1)]
    if not pictures:
        return None
    least = show(min(float(boxes["confident"]) for _, boxes in kept), 1)
    return Section("boxes", "Detections", [
        f"Test images with their true boxes (dashed) and the predicted ones with a score of at least {least}, by the "
        "model of the first seed of each arm. Point at a box for its class and score. A loss with another slope for "
        "easy examples also moves the scores: the same score does not mean the same precision in two arms."], pictures)


def _picture(number: int, name: str, kept: Sequence[tuple[Arm, Mapping[str, Any]]]) -> Picture:
    panels: list[Panel] = []
    words = []
    for arm, boxes in kept:
        image = next((image for image in boxes["images"] if image["name"] == name), None)
        if image is None:
            continue
        panels.append(photo_panel(_photo(image, boxes["names"]), arm.name if len(kept) > 1 else "", arm.tag))
        words.append(f"{arm.name} predicts {len(image['predicted'])} boxes, {len(image['true'])} are true")
    return Picture(f"boxes-{number}", f"Boxes on the test image {name}: {listed(words)}.", name, panels, KEYS)


def _photo(image: Mapping[str, Any], names: Sequence[str]) -> Photo:
    true = [Box(float(left), float(top), float(right), float(bottom), names[int(label)], TRUE)
            for left, top, right, bottom, label in image["true"]]
    predicted = [Box(float(left), float(top), float(right), float(bottom),
                     f"{names[int(label)]}, score {show(float(score))}", PREDICTED)
                 for left, top, right, bottom, label, score in image["predicted"]]
    return Photo(str(image["jpeg"]), int(image["width"]), int(image["height"]), [*predicted, *true])
