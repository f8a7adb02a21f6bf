"""Readers against files that the tests write in the publishers' formats, and against real ones where they are."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from encouraging import data
from encouraging.data import fetch as module
from encouraging.data.registry import DATASETS, VARIABLE, Dataset, File
from encouraging.errors import DataError, RecipeError
from encouraging.recipes import read_recipe


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head + array.astype(np.uint8).tobytes()


def test_idx_is_read_as_it_was_written(tmp_path):
    array = np.arange(24).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "zipped.gz").write_bytes(gzip.compress(idx(array)))
    for name in ("plain", "zipped.gz"):
        assert data.read_idx(tmp_path / name).tolist() == array.tolist()


@pytest.mark.parametrize(("content", "words"), [
    (b"", "begins with two zero bytes"), (b"PK\3\4", "begins with two zero bytes"),
    (bytes([0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0]), "type 13"),
    (idx(np.zeros((2, 2)))[:-1], "promises 4 bytes"),
])
def test_a_damaged_idx_file_is_refused_in_words(tmp_path, content, words):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=words):
        data.read_idx(tmp_path / "file")


def test_a_cut_off_gzip_is_refused_in_words(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(idx(np.zeros((9, 9))))[:-9])
    with pytest.raises(DataError, match="cannot be read to its end"):
        data.read_idx(tmp_path / "file.gz")


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_cifar_records_are_label_and_channels(tmp_path, label_bytes):
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32))
    rows = [bytes([9] * (label_bytes - 1) + [label]) + image.astype(np.uint8).tobytes()
            for label, image in enumerate(images)]
    (tmp_path / "file.bin").write_bytes(b"".join(rows))
    found, labels = data.read_cifar(tmp_path / "file.bin", label_bytes)
    assert labels.tolist() == [0, 1, 2]
    assert np.array_equal(found.numpy(), images)
    (tmp_path / "file.bin").write_bytes(b"".join(rows)[:-1])
    with pytest.raises(DataError, match="whole records"):
        data.read_cifar(tmp_path / "file.bin", label_bytes)


def test_the_digits_are_those_that_scikit_learn_reads():
    digits = load_digits()
    parts = [data.load("digits", split) for split in ("train", "test")]
    ours = {(int(label), *image.flatten().tolist()) for part in parts for image, label in zip(*part, strict=True)}
    assert ours == {(label, *map(int, pixels)) for pixels, label in zip(digits.data, digits.target, strict=True)}
    assert sum(len(labels) for _, labels in parts) == len(digits.target)


def test_the_digits_are_split_once_and_for_all():
    train, test = data.load("digits", "train"), data.load("digits", "test")
    assert (len(train[0]), len(test[0])) == (1200, 597)
    assert torch.cat([train[0], test[0]]).float().mean().item() == pytest.approx(4.884, abs=1e-3)
    assert torch.bincount(test[1]).min() > 40


def test_a_missing_dataset_is_answered_with_the_exact_file_names(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(DataError) as error:
        data.load("mnist", "test")
    for word in (str(tmp_path / "MNIST/raw/t10k-images-idx3-ubyte.gz"), "t10k-labels-idx1-ubyte.gz", "--download",
                 "--data", VARIABLE):
        assert word in str(error.value)
    with pytest.raises(DataError, match="Did you mean 'mnist'"):
        data.load("mnits", "test")
    with pytest.raises(DataError, match="expected 'train' or 'test'"):
        data.load("mnist", "dev")


def toy(monkeypatch, folder: Path, **more) -> list[bytes]:
    """A dataset of two IDX files in MNIST's layout, known to the registry."""
    contents = [gzip.compress(idx(np.zeros((5, 4, 4)))), gzip.compress(idx(np.arange(5)))]
    files = tuple(File(f"Toy/raw/{name}.gz", hashlib.md5(content).hexdigest())
                  for name, content in zip(("images", "labels"), contents, strict=True))
    known = Dataset("toy", "idx", 5, (1, 4, 4), (0.0,), (1.0,), train=files, test=files, **more)
    monkeypatch.setitem(DATASETS, "toy", known)
    return contents


def test_a_file_with_another_checksum_is_refused(tmp_path, monkeypatch):
    contents = toy(monkeypatch, tmp_path)
    (tmp_path / "Toy/raw").mkdir(parents=True)
    for name, content in zip(("images", "labels"), contents, strict=True):
        (tmp_path / f"Toy/raw/{name}.gz").write_bytes(content)
    assert data.load("toy", "test", tmp_path)[1].tolist() == [0, 1, 2, 3, 4]
    (tmp_path / "Toy/raw/labels.gz").write_bytes(gzip.compress(idx(np.arange(5)[::-1])))
    with pytest.raises(DataError, match="expected MD5"):
        data.load("toy", "test", tmp_path)


def test_downloads_come_from_the_first_place_that_has_the_right_file(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    contents = toy(monkeypatch, tmp_path, urls=("first://", "second://"))
    asked = []

    def retrieve(url, known_hash, fname, path):
        asked.append(url)
        if url.startswith("first"):
            raise OSError("unreachable")
        content = contents[0 if "images" in url else 1]
        assert known_hash == f"md5:{hashlib.md5(content).hexdigest()}"
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / fname).write_bytes(content)
        return str(Path(path) / fname)

    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "retrieve", retrieve)
    module.download("toy", tmp_path)
    assert asked == ["first://images.gz", "second://images.gz", "first://labels.gz", "second://labels.gz"]
    assert len(data.load("toy", "train", tmp_path)[0]) == 5
    module.download("toy", tmp_path)
    assert len(asked) == 4  # what is there is not fetched again


def test_a_download_that_fails_everywhere_says_why(tmp_path, monkeypatch):
    toy(monkeypatch, tmp_path, urls=("first://",))
    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "retrieve", lambda *a, **k: (_ for _ in ()).throw(OSError("unreachable")))
    with pytest.raises(DataError, match=r"first://images.gz: unreachable"):
        module.download("toy", tmp_path)


def test_an_archive_is_unpacked(tmp_path, monkeypatch):
    from encouraging.data.registry import Archive

    (tmp_path / "in/toy-bin").mkdir(parents=True)
    (tmp_path / "in/toy-bin/a.bin").write_bytes(bytes(3073))
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "in/toy-bin", "toy-bin")
    files = (File("toy-bin/a.bin", size=3073),)
    monkeypatch.setitem(DATASETS, "toy", Dataset("toy", "cifar", 10, (3, 32, 32), (0.0,) * 3, (1.0,) * 3, files, files,
                                                 ("place://",), Archive("toy.tar.gz", "0")))
    monkeypatch.setattr(module, "_fetch", lambda *_: tmp_path / "toy.tar.gz")
    module.download("toy", tmp_path / "out")
    assert data.load("toy", "test", tmp_path / "out")[1].tolist() == [0]
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "in/toy-bin/a.bin", "elsewhere/a.bin")
    with pytest.raises(DataError, match=r"holds no toy-bin/a\.bin"):
        module.download("toy", tmp_path / "again")
    assert not (tmp_path / "again/elsewhere").exists()


@pytest.mark.parametrize(("name", "imbalance", "count", "smallest"), [
    ("cifar100-lt", None, 10847, 5), ("cifar100-lt", 50, 12608, 10), ("cifar100-lt", 10, 19573, 50),
    ("cifar10-lt", None, 12406, 50), ("cifar10-lt", 50, 13996, 100), ("cifar10-lt", 10, 20431, 500),
])
def test_long_tails_have_the_published_sizes(name, imbalance, count, smallest):
    base = name.removesuffix("-lt")
    if data.missing(name, data.data_dir()):
        pytest.skip(f"{base} is not in {data.data_dir()}: set {VARIABLE}")
    images, labels = data.load(name, "train", imbalance=imbalance)
    counts = torch.bincount(labels)
    assert len(images) == len(labels) == count
    assert (int(counts[-1]), int(counts.min())) == (smallest, smallest)
    assert torch.equal(labels, data.load(name, "train", imbalance=imbalance)[1])
    # Images and labels were cut together: what is kept is in the balanced set with the same label.
    every, theirs = data.load(base, "train")
    rows = {(image.numpy().tobytes(), int(label)) for image, label in zip(every, theirs, strict=True)}
    assert all((image.numpy().tobytes(), int(label)) in rows for image, label in zip(images, labels, strict=True))
    assert len(data.load(name, "test")[0]) == 10000


def test_a_long_tail_is_cut_from_any_base_by_its_profile(tmp_path, monkeypatch):
    """Without the real files: a toy of 4 classes with 8 images each, whose pixels are the image's number."""
    numbers = np.arange(32)
    contents = [idx(numbers[:, None, None].repeat(4, 1).repeat(4, 2)), idx(numbers % 4)]
    files = tuple(File(f"Toy/raw/{name}") for name in ("images", "labels"))
    toy = Dataset("toy-lt", "idx", 4, (1, 4, 4), (0.0,), (1.0,), train=files, test=files, long_tail=data.LongTail(8))
    monkeypatch.setitem(DATASETS, "toy-lt", toy)
    (tmp_path / "Toy/raw").mkdir(parents=True)
    for name, content in zip(("images", "labels"), contents, strict=True):
        (tmp_path / f"Toy/raw/{name}").write_bytes(content)
    for imbalance, counts in ((None, [8, 4, 2, 1]), (1, [8, 8, 8, 8]), (2, [8, 6, 5, 4])):
        images, labels = data.load("toy-lt", "train", tmp_path, imbalance)
        assert torch.bincount(labels).tolist() == counts
        assert torch.equal(images[:, 0, 0, 0] % 4, labels)
    assert len(data.load("toy-lt", "test", tmp_path)[0]) == 32


@pytest.mark.parametrize(("name", "imbalance", "says"), [
    ("cifar100", 50, "only cifar10-lt, cifar100-lt are long-tailed. Did you mean 'cifar100-lt'"),
    ("cifar100-lt", 0.5, "expected a number from 1 to 500"), ("cifar100-lt", float("nan"), "imbalance=nan"),
    ("cifar100lt", None, "Did you mean 'cifar100-lt'"),
])
def test_an_imbalance_that_cannot_be_is_refused(name, imbalance, says):
    with pytest.raises(DataError, match=says):
        data.dataset(name, imbalance)


@pytest.mark.parametrize(("name", "split", "count", "mean"), [
    ("mnist", "train", 60000, 0.1307), ("mnist", "test", 10000, 0.1325), ("fashion_mnist", "test", 10000, 0.2868),
    ("cifar10", "test", 10000, 0.4766), ("cifar100", "test", 10000, 0.4794),
])
def test_real_data(name, split, count, mean):
    if data.missing(name, data.data_dir(), (split,)):
        pytest.skip(f"{name} is not in {data.data_dir()}: set {VARIABLE}")
    images, labels = data.load(name, split)
    assert len(images) == len(labels) == count
    assert images.float().mean().item() / 255 == pytest.approx(mean, abs=1e-3)
    assert torch.bincount(labels).min() > 0


@pytest.mark.parametrize(("name", "words"), [
    ("proteins", r'proteins holds graphs: .* task = "graph"'),
    ("bccd", r'holds images with boxes: .* task = "detection"'),
    ("coco", r'task = "detection"'), ("multi30k-de-en", r'holds sentences: expected images .* task = "translation"'),
    ("iwslt14-de-en", r'task = "translation"'), ("imagenet", r'too large for the device.* task = "image_files"'),
    ("inaturalist2018", r'task = "image_files"'),
])
def test_what_has_no_images_for_the_device_is_refused_by_readers_and_recipes(tmp_path, name, words):
    with pytest.raises(DataError, match=words):
        data.load(name, "train", tmp_path)
    for key in (f"data={name}", f'options.ood=["{name}"]'):
        with pytest.raises(RecipeError, match=words):
            read_recipe("digits", [key])


def test_every_other_dataset_is_of_images_for_the_device(tmp_path):
    """A new format is refused until someone says that it is read here."""
    for name in data.DATASETS:
        try:
            read_recipe("digits", [f"data={name}"])
        except RecipeError:
            assert not data.DATASETS[name].shape or data.is_large(name)
        else:
            assert name.removesuffix("-lt") in ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100")


def test_an_unknown_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "toy", Dataset("toy", "sounds", 2, (), (), ()))
    with pytest.raises(DataError, match="toy has no images with labels: its reader is sounds"):
        data.load("toy", "train", tmp_path)
