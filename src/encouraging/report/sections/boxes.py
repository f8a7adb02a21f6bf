"""The section of detections: test images with true and predicted boxes, in the colours of their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..arms import Arm
from ..drawing.panels import Key, Panel, Picture
from ..drawing.photos import CLASS_COLOURS, KEYS, PREDICTED, TRUE, Box, Photo, photo_panel
from ..numbers import listed, show
from .parts import Section

LONGEST = 10  # letters of a class that is written beside a box


def section(arms: Sequence[Arm]) -> Section | None:
    """One picture per image, with a panel for each arm: its first seed's model."""
    by_arm = [(arm, seeds[0]) for arm in arms if (seeds := arm.diagnosed("boxes"))]
    names = list(dict.fromkeys(image["name"] for _, boxes in by_arm for image in boxes["images"]))
    colours = _colours(boxes for _, boxes in by_arm)
    pictures = [_picture(number, name, by_arm, colours) for number, name in enumerate(names, 1)]
    if not pictures:
        return None
    threshold = show(min(float(boxes["confident"]) for _, boxes in by_arm), 1)
    return Section("boxes", "Detections", [
        f"Test images with their true boxes (dashed) and the predicted ones with a score of at least {threshold}, by "
        "the model of the first seed of each arm. A colour is a class. Point at a box for its class and score. A loss "
        "with another slope for easy examples also moves the scores: the same score does not mean the same precision "
        "in two arms."], pictures)


def _colours(diagnoses: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """A colour for every class that is shown, the most frequent first; with many classes some share one."""
    counts = Counter(boxes["names"][int(box[4])] for boxes in diagnoses for image in boxes["images"]
                     for box in (*image["true"], *image["predicted"]))
    return {name: CLASS_COLOURS[index % len(CLASS_COLOURS)] for index, (name, _) in enumerate(counts.most_common())}


def _picture(number: int, name: str, by_arm: Sequence[tuple[Arm, Mapping[str, Any]]],
             colours: Mapping[str, str]) -> Picture:
    panels: list[Panel] = []
    words, silent, classes = [], [], set()
    threshold = 0.0
    for arm, boxes in by_arm:
        image = next((image for image in boxes["images"] if image["name"] == name), None)
        if image is None:
            continue
        panels.append(photo_panel(_photo(image, boxes["names"], colours), arm.name if len(by_arm) > 1 else "", arm.tag))
        words.append(f"{arm.name} predicts {len(image['predicted'])} boxes, {len(image['true'])} are true")
        classes |= {boxes["names"][int(box[4])] for box in (*image["true"], *image["predicted"])}
        if not image["predicted"]:
            silent.append(arm.name)
            threshold = float(boxes["confident"])
    keys = [*KEYS, *(Key(label, colour, kind="area") for label, colour in colours.items() if label in classes)]
    caption = name + (f". {listed(silent)} {'predicts' if len(silent) == 1 else 'predict'} no box with a score of at "
                      f"least {show(threshold, 1)}." if silent else "")
    return Picture(f"boxes-{number}", f"Boxes on the test image {name}: {listed(words)}.", caption, panels, keys)


def _photo(image: Mapping[str, Any], names: Sequence[str], colours: Mapping[str, str]) -> Photo:
    """Where classes share colours, their names are written beside the boxes."""
    shared = len(colours) > len(CLASS_COLOURS)
    boxes = []
    for key, entries in ((PREDICTED, image["predicted"]), (TRUE, image["true"])):
        for left, top, right, bottom, label, *score in entries:
            name = names[int(label)]
            words = f"{name}, score {show(float(score[0]))}" if score else name
            boxes.append(Box(float(left), float(top), float(right), float(bottom), words, key, colours[name],
                             name[:LONGEST] if shared else ""))
    return Photo(str(image["jpeg"]), int(image["width"]), int(image["height"]), boxes)
