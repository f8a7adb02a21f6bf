"""ImageNet and iNaturalist 2018 of a few generated pictures in their publishers' layouts: odd sizes and modes, a PNG
file that is called JPEG, and a broken file."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

CLASSES = ("n01440764", "n01443537", "n02105855", "n15075141")
IDS = (4, 1, 3, 2)  # the devkit's own numbers, which are not in the order of the WordNet ids
SIZES = ((41, 37), (64, 20), (19, 55), (33, 33), (120, 90))
MODES = ("RGB", "L", "CMYK", "RGB", "RGB")


def write_picture(path: Path, number: int, label: int, mode: str | None = None, kind: str = "JPEG") -> None:
    """A picture whose brightness tells its class; size and mode take turns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wide, high = SIZES[number % len(SIZES)]
    noise = np.random.default_rng(number).integers(0, 60, (high, wide, 3))
    picture = Image.fromarray((noise + 45 * label).astype(np.uint8))
    picture.convert(mode or MODES[number % len(MODES)]).save(path, kind)


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def write_imagenet(root: Path, *, per_class: int = 5, test: int = 8, flat: bool = False, broken: bool = True) -> Path:
    """``per_class`` training images in each of four classes, of which the last one is broken, and ``test`` others."""
    folder = root / "imagenet"
    for label, name in enumerate(CLASSES):
        for number in range(per_class):
            path = folder / "train" / name / f"{name}_{number}.JPEG"
            png = label == 2 and number == 1
            write_picture(path, 7 * label + number, label, "RGB" if png else None, "PNG" if png else "JPEG")
    if broken:
        truncate(path)
    truth = []
    for number in range(1, test + 1):
        label = number * 3 % len(CLASSES)
        truth.append(IDS[label])
        name = f"ILSVRC2012_val_{number:08d}.JPEG"
        write_picture(folder / "val" / ("" if flat else CLASSES[label]) / name, 100 + number, label)
    if flat:
        write_devkit(folder, truth)
    return folder


def write_devkit(folder: Path, truth: list[int], archive: bool = False) -> None:
    """The two files of the devkit that matter, as ImageNet ships them: unpacked, or in an archive."""
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{number}\n" for number in truth))
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [(number, name, f"words of {name}", 0) for number, name in zip(IDS, CLASSES, strict=True)]
    rows.append((1001, "n00001740", "entity", 3))  # an inner node, which no image has
    savemat(data / "meta.mat", {"synsets": np.array(rows, dtype=kinds)[:, None]})
    if archive:
        with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
            tar.add(data.parent, arcname="ILSVRC2012_devkit_t12")
        for path in data.iterdir():
            path.unlink()


def write_inaturalist(root: Path, *, counts: tuple[int, ...] = (9, 6, 3, 2), test: int = 8,
                      broken: bool = True) -> Path:
    """A long tail of ``counts`` training images per class, the last of which is broken, and ``test`` others."""
    folder = root / "inaturalist2018"
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    for name, part in (("train", labels), ("val", [number % len(counts) for number in range(test)])):
        first = 1000 if name == "val" else 0
        files = [f"train_val2018/Plantae/{label}/{name}{number}.jpg" for number, label in enumerate(part)]
        for number, (file, label) in enumerate(zip(files, part, strict=True)):
            write_picture(folder / file, first + number, label)
        if broken and name == "train":
            truncate(folder / files[-1])
        content = {
            "categories": [{"id": label, "name": f"species {label}", "supercategory": "Plantae"}
                           for label in reversed(range(len(counts)))],
            "images": [{"id": first + number, "file_name": file} for number, file in enumerate(files)],
            "annotations": [{"id": first + number, "image_id": first + number, "category_id": label}
                            for number, label in reversed(list(enumerate(part)))],
        }
        (folder / f"{name}2018.json").write_text(json.dumps(content))
    return folder
