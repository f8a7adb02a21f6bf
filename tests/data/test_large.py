"""The layouts in which ImageNet and iNaturalist 2018 are shipped, and what is said when something is wrong."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from encouraging.data import FileList, download, load, missing, read_image_files
from encouraging.data.decode import decode
from encouraging.errors import DataError
from tiny_files import CLASSES, truncate, write_devkit, write_imagenet, write_inaturalist, write_picture


def brightness(path: str) -> float:
    return float(decode(path).mean())


@pytest.mark.parametrize("flat", [False, True])
def test_the_label_of_every_image_is_its_class_in_the_order_of_the_wordnet_ids(tmp_path, flat):
    write_imagenet(tmp_path, flat=flat, broken=False)
    data = read_image_files("imagenet", tmp_path)
    assert data.names == CLASSES
    assert [len(data.splits[part]) for part in ("train", "test")] == [20, 8]
    for split in data.splits.values():
        for index in range(len(split)):
            # The pictures are the brighter the higher their class: 45 more for each.
            assert round((brightness(split.path(index)) - 30) / 45) == int(split.labels[index]), split.path(index)


@pytest.mark.parametrize("name", ["ILSVRC2012", "ILSVRC/Data/CLS-LOC", ""])
def test_the_folder_may_have_another_usual_name(tmp_path, name):
    write_imagenet(tmp_path / "here")
    target = tmp_path / "data" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(tmp_path / "here" / "imagenet", target)
    assert len(read_image_files("imagenet", tmp_path / "data").splits["train"]) == 20
    assert missing("imagenet", tmp_path / "data") == []


def test_the_devkit_is_read_from_its_archive_too(tmp_path):
    folder = write_imagenet(tmp_path, flat=True)
    expected = read_image_files("imagenet", tmp_path).splits["test"].labels
    truth = (folder / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt").read_text().split()
    shutil.rmtree(folder / "ILSVRC2012_devkit_t12")
    write_devkit(folder, [int(number) for number in truth], archive=True)
    assert torch.equal(read_image_files("imagenet", tmp_path).splits["test"].labels, expected)


def test_labels_of_inaturalist_are_its_categories_whatever_the_order_of_the_entries(tmp_path):
    write_inaturalist(tmp_path, broken=False)
    data = read_image_files("inaturalist2018", tmp_path)
    assert data.names == tuple(f"species {label}" for label in range(4))
    assert data.mean == (0.466, 0.471, 0.380)
    assert torch.bincount(data.splits["train"].labels).tolist() == [9, 6, 3, 2]
    for split in data.splits.values():
        for index in range(len(split)):
            assert split.path(index).split("/")[-2] == str(int(split.labels[index]))


def test_a_folder_of_ones_own(tmp_path):
    write_imagenet(tmp_path)
    data = read_image_files(f"folder:{tmp_path / 'imagenet'}")
    assert data.names == CLASSES
    assert len(data.splits["train"]) == 20


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("name", ["imagenet", "folder:"])
def test_images_beside_the_folders_of_the_classes_are_not_left_out_without_a_word(tmp_path, part, name):
    """As when the validation images were being sorted into folders, and the script was stopped half-way."""
    folder = write_imagenet(tmp_path)
    for number in (1, 2):
        write_picture(folder / part / f"ILSVRC2012_val_0000900{number}.JPEG", number, 0)
    with pytest.raises(DataError, match=r"val_00009001\.JPEG \(and 1 more\): outside of the folders .* Move the"):
        read_image_files(name if name == "imagenet" else f"folder:{folder}", tmp_path)


def _names(split) -> set[str]:
    return {Path(split.path(index)).name for index in range(len(split))}


def test_only_files_are_images_also_in_folders_below_and_behind_links(tmp_path):
    write_imagenet(tmp_path / "here", broken=False)
    folder, elsewhere = tmp_path / "here" / "imagenet", tmp_path / "elsewhere"
    train = folder / "train"
    before = _names(read_image_files(f"folder:{folder}").splits["train"])
    shutil.move(train / CLASSES[0], elsewhere)
    (train / CLASSES[0]).symlink_to(elsewhere)  # a class behind a link, as on another disk
    (train / CLASSES[1] / "link.JPG").symlink_to(elsewhere / f"{CLASSES[0]}_0.JPEG")
    write_picture(train / CLASSES[1] / "images" / "deeper.PNG", 0, 1, "RGB", "PNG")  # as Tiny ImageNet has it
    (train / CLASSES[1] / "folder.JPEG").mkdir()
    (train / CLASSES[1] / "around").symlink_to(train)
    (train / CLASSES[1] / ".hidden.JPEG").write_bytes(b"")
    (train / CLASSES[1] / "notes.txt").write_text("")
    os.mkfifo(train / CLASSES[1] / "pipe.JPEG")  # to open it would wait for ever
    split = read_image_files(f"folder:{folder}").splits["train"]
    assert _names(split) == before | {"link.JPG", "deeper.PNG"}
    assert len(split) == 22
    assert all(decode(split.path(index)).ndim == 3 for index in range(len(split)))


@pytest.mark.parametrize("target", ["nowhere.JPEG", "link.JPEG"])
def test_a_link_that_leads_nowhere_is_named_before_the_training(tmp_path, target):
    folder = write_imagenet(tmp_path)
    (folder / "train" / CLASSES[0] / "link.JPEG").symlink_to(target)
    with pytest.raises(DataError, match=r"link\.JPEG: (a link to nowhere.JPEG|cannot be listed)"):
        read_image_files("imagenet", tmp_path)


def test_a_folder_that_may_not_be_listed_is_named(tmp_path, monkeypatch):
    folder = write_imagenet(tmp_path) / "train" / CLASSES[2]
    scandir = os.scandir

    def refuse(path):
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=rf"{CLASSES[2]}/?: cannot be listed \(Permission denied\)"):
        read_image_files("imagenet", tmp_path)


def test_test_images_of_ones_own_without_folders_are_refused_as_such(tmp_path):
    folder = write_imagenet(tmp_path, flat=True)
    with pytest.raises(DataError, match=r"val has images such as .* and no folders per class: expected n01440764/"):
        read_image_files(f"folder:{folder}")


def _no_devkit(folder: Path) -> None:
    shutil.rmtree(folder / "ILSVRC2012_devkit_t12")


def _empty_class(folder: Path) -> None:
    for path in (folder / "train" / CLASSES[1]).iterdir():
        path.unlink()


def _other_class(folder: Path) -> None:
    shutil.rmtree(folder / "train" / CLASSES[1])


def _odd_name(folder: Path) -> None:
    (folder / "val" / "ILSVRC2012_val_00000003.JPEG").rename(folder / "val" / "cat.JPEG")


def _short_truth(folder: Path) -> None:
    (folder / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt").write_text("4\n1\n")


def _bad_meta(folder: Path) -> None:
    (folder / "ILSVRC2012_devkit_t12/data/meta.mat").write_bytes(b"no matrix")


def _short_meta(folder: Path) -> None:
    truncate(folder / "ILSVRC2012_devkit_t12/data/meta.mat")


def _no_images(folder: Path) -> None:
    for path in (folder / "val").iterdir():
        path.unlink()


def _archives(folder: Path) -> None:
    shutil.rmtree(folder / "train")
    (folder / "train").mkdir()
    (folder / "train" / "n01440764.tar").write_bytes(b"")


@pytest.mark.parametrize(("breaks", "words"), [
    (_no_devkit, ["val has images and no folders per class", "ILSVRC2012_validation_ground_truth.txt", "Put ImageNet"]),
    (_empty_class, [CLASSES[1], "no images; expected files ending in", "Unpack"]),
    (_other_class, [f"of the class {CLASSES[1]!r}, which the training part does not have"]),
    (_odd_name, ["cat.JPEG: expected names ILSVRC2012_val_00000001.JPEG to 00000008"]),
    (_short_truth, ["ILSVRC2012_val_00000003.JPEG: the devkit's data/", "has 2 lines, and so no label"]),
    (_short_meta, ["data/meta.mat is not what ImageNet's devkit has", "could not read bytes"]),
    (_bad_meta, ["data/meta.mat is not what ImageNet's devkit has", "Unpack it again"]),
    (_no_images, ["val: no images; expected 50000 such as"]),
    (_archives, ["1 archives such as n01440764.tar and no folders", "tar xf"]),
], ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_with_imagenet_is_said(tmp_path, breaks, words):
    breaks(write_imagenet(tmp_path, flat=True))
    with pytest.raises(DataError) as caught:
        read_image_files("imagenet", tmp_path)
    for part in words:
        assert part in str(caught.value)


@pytest.mark.parametrize(("change", "words"), [
    (lambda tree: tree.pop("annotations"), ["KeyError: 'annotations'", "Unpack train2018.json.tar.gz again"]),
    (lambda tree: tree["images"][0].update(file_name="../secret.jpg"), ["'../secret.jpg' is not below"]),
    (lambda tree: tree["images"][-1].update(file_name="gone.jpg"), ["gone.jpg: no such file", "train_val2018.tar.gz"]),
    (lambda tree: tree["categories"].append({"id": 9, "name": "unseen"}), ["'unseen'", "has no training images"]),
    (lambda tree: tree["images"][1].update(file_name="a\0.jpg"), ["is not below"]),
    (lambda tree: tree["images"][1].update(id=0), ["images has several entries with id 0; expected one"]),
    (lambda tree: tree["annotations"].append({"image_id": 3, "category_id": 1}), ["several entries with image_id 3"]),
    (lambda tree: tree["categories"].append({"id": 2, "name": "again"}), ["categories has several entries with id 2"]),
    (lambda tree: tree["categories"][0].update(id=float("inf")), ["OverflowError", "not the annotations"]),
    (lambda tree: tree["images"].clear(), ["has no images"]),
    (lambda tree: tree["images"][1].update(file_name="\ud800.jpg"), ["UnicodeEncodeError", "not the annotations"]),
])
def test_what_is_wrong_with_inaturalist_is_said(tmp_path, change, words):
    path = write_inaturalist(tmp_path) / "train2018.json"
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    with pytest.raises(DataError) as caught:
        read_image_files("inaturalist2018", tmp_path)
    for part in words:
        assert part in str(caught.value)


def test_parts_with_different_categories_do_not_belong_together(tmp_path):
    """Labels are places in the list of categories: a longer list would shift them without a word."""
    path = write_inaturalist(tmp_path) / "val2018.json"
    tree = json.loads(path.read_text())
    tree["categories"].append({"id": -1, "name": "another"})
    path.write_text(json.dumps(tree))
    with pytest.raises(DataError, match=r"the test part has 5 classes and the train part 4.* 'another', for example"):
        read_image_files("inaturalist2018", tmp_path)
    assert len(read_image_files("inaturalist2018", tmp_path, splits=("test",)).splits["test"]) == 8


@pytest.mark.parametrize("name", ["imagenet", "inaturalist2018"])
def test_missing_data_is_named_with_where_to_get_it_and_is_not_downloaded(tmp_path, name):
    for reading in (lambda: read_image_files(name, tmp_path), lambda: download(name, tmp_path)):
        with pytest.raises(DataError,
                           match=rf"part of {name} are not in (.|\n)*(image-net.org|visipedia)(.|\n)*--data"):
            reading()
    with pytest.raises(DataError, match='task = "image_files"'):
        load(name, "train", tmp_path)
    with pytest.raises(DataError, match='Use task = "image"'):
        read_image_files("mnist", tmp_path)


def test_paths_come_back_as_they_were_and_travel_to_workers():
    names = ["a/1.JPEG", "ü/tail é.jpg", "", "b/2.JPEG"]
    files = pickle.loads(pickle.dumps(FileList("/data", names)))
    assert [files[index] for index in range(len(files))] == [f"/data/{name}" for name in names]
    with pytest.raises(IndexError):
        files[4]
