"""Small images with boxes for tests: drawn, written in the layouts of Pascal VOC and COCO, and a tiny RetinaNet."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from encouraging.data import generator
from encouraging.engine import RunDir, RunSpec, execute
from encouraging.engine.distributed import World
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task

NAMES = ("blue", "red")
COLOURS = ((30, 30, 230), (230, 30, 30))
Drawn = tuple[np.ndarray, list[tuple[int, int, int, int]], list[int]]

RECIPE = """
about = "Squares."
task = "detection"
data = "folder:{data}"
model = "{here}:tiny_retinanet"
options = {{ sizes = [48, 56], test_size = 48, max_size = 96, evaluate_batch = 2, pictures = 2 }}
seeds = 2
threads = 1
train = {{ epochs = 3, batch_size = 3, optimizer = "adam", lr = 3e-3, monitor = "val_ap", conclude_on = "best" }}
arms.focal = {{ curve = "focal", gamma = 1.0, alpha = 0.5, link = "sigmoid" }}
arms.halted = {{ curve = "halted_focal", gamma = 1.0, halt = 0.5, alpha = 0.5, link = "sigmoid" }}
arms.halted_logit = {{ curve = "halted_focal", gamma = 1.0, halt = 0.5, alpha = 0.5, link = "sigmoid", halt_on = "logit" }}

[[claims]]
metric = "best_ap"
arm = "halted"
beats = "focal"
"""  # noqa: E501


def write_recipe(folder: Path) -> Path:
    """The recipe above beside its data in VOC's layout: 7 images for training, 2 for validation, 3 for tests."""
    write_voc(folder / "squares", {"train": 7, "val": 2, "test": 3})
    path = folder / "squares.toml"
    path.write_text(RECIPE.format(data=folder / "squares", here=__file__))
    return path


def drawn(number: int, squares: int = 2, width: int = 60, height: int = 48) -> Drawn:
    """Pixels (height, width, 3) with squares that do not overlap, their corners (the last ones excluded) and labels."""
    draw = generator(17, number)
    pixels = torch.randint(60, 120, (height, width, 3), generator=draw).numpy().astype(np.uint8)
    boxes: list[tuple[int, int, int, int]] = []
    labels = []
    for index in range(squares):
        half, side = width // max(squares, 1), int(torch.randint(12, 21, (), generator=draw))
        left = index * half + int(torch.randint(half - side, (), generator=draw))
        top = int(torch.randint(height - side, (), generator=draw))
        labels.append(int(torch.randint(2, (), generator=draw)))
        pixels[top : top + side, left : left + side] = COLOURS[labels[-1]]
        boxes.append((left, top, left + side, top + side))
    return pixels, boxes, labels


def write_voc(folder: Path, counts: dict[str, int], squares: int = 2) -> Path:
    for part in ("ImageSets/Main", "Annotations", "JPEGImages"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    number = 0
    for part, count in counts.items():
        names = [f"image{number + i:03d}" for i in range(count)]
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"{name}\n" for name in names))
        for name in names:
            pixels, boxes, labels = drawn(number, squares)
            number += 1
            Image.fromarray(pixels).save(folder / "JPEGImages" / f"{name}.jpg", quality=97, subsampling=0)
            (folder / "Annotations" / f"{name}.xml").write_text(
                voc_xml(pixels.shape[1], pixels.shape[0], [(NAMES[label], box) for label, box in
                                                           zip(labels, boxes, strict=True)]))
    return folder


def voc_xml(width: int, height: int, objects: list[tuple[str, tuple[int, int, int, int]]]) -> str:
    """Corners as VOC counts them: the first pixel is 1, the last one is included."""
    parts = "".join(f"<object><name>{name}</name><difficult>0</difficult><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}"
                    f"</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
                    for name, (left, top, right, bottom) in objects)
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation>{size}{parts}</annotation>"


CATEGORIES = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}, {"id": 13, "name": "stop sign"}]


def write_coco(folder: Path) -> Path:
    """Four images per part, with numbers of classes as COCO has them, a crowd, an empty image, one with only a crowd,
    and a box without area."""
    for offset, part in ((100, "train2017"), (200, "val2017")):
        (folder / part).mkdir(parents=True, exist_ok=True)
        images, annotations = [], []
        for number in range(4):
            pixels, boxes, labels = drawn(offset + number)
            name = f"{offset + number:012d}.jpg"
            Image.fromarray(pixels).save(folder / part / name)
            images.append({"id": offset + number, "file_name": name, "width": 60, "height": 48})
            if number == 2:
                continue
            for label, (left, top, right, bottom) in zip(labels, boxes, strict=True):
                annotations.append({"id": len(annotations) + 1, "image_id": offset + number,
                                    "category_id": (13, 90)[label], "bbox": [left, top, right - left, bottom - top],
                                    "area": 0.7 * (right - left) * (bottom - top), "iscrowd": int(number == 3)})
        annotations.append({"id": 99, "image_id": offset, "category_id": 1, "bbox": [5, 5, 0, 10], "area": 0,
                            "iscrowd": 0})
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(
            {"images": images[::-1], "annotations": annotations, "categories": CATEGORIES}))
    return folder


class TinyBackbone(nn.Module):
    """Features of two levels, 4 and 8 pixels apart. Group norm, so that the parts of a batch do not matter."""

    out_channels = 16

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Sequential(nn.Conv2d(3, 16, 5, 4, 2), nn.GroupNorm(4, 16), nn.ReLU(),
                                  nn.Conv2d(16, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.ReLU())
        self.far = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU())

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        near = self.near(x)
        return {"near": near, "far": self.far(near)}


def tiny_retinanet(classes: int, min_size: int = 48, max_size: int = 96, detections_per_img: int = 20) -> Any:
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.retinanet import RetinaNetHead

    anchors = AnchorGenerator(((12,), (18,)), ((1.0,), (1.0,)))
    head = RetinaNetHead(16, 1, classes, norm_layer=partial(nn.GroupNorm, 4))
    return RetinaNet(TinyBackbone(), classes, min_size, max_size, anchor_generator=anchors, head=head,
                     detections_per_img=detections_per_img, topk_candidates=50, image_mean=[0.4] * 3,
                     image_std=[0.25] * 3, size_divisible=8)


def train_on(world: World, recipe: Path, folder: Path, arm: str, *overrides: str) -> dict[str, Any]:
    """One arm and seed, on as many ranks as there are."""
    read = read_recipe(recipe, overrides)
    spec = read.task_spec(arm)
    return execute(RunSpec(lambda: build_task("detection", spec), spec.stages, RunDir(folder), read.config(arm, 0), 0,
                           spec.device, world, about=read.about_runs(arm)))
