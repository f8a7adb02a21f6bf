"""The datasets by name, the files that their publishers ship, and where these are searched."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import DataError, did_you_mean
from .imagenet import missing_imagenet
from .inaturalist import missing_inaturalist

VARIABLE = "ENCOURAGING_DATA"
_LAYOUTS = {"imagenet": missing_imagenet, "inaturalist": missing_inaturalist}  # folders that may have several names


@dataclass(frozen=True)
class File:
    """One file of a dataset: its path under the data directory, and the checksum or size to check."""

    path: str
    md5: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Archive:
    """A tar or zip file that holds the dataset, for publishers that ship one."""

    name: str
    md5: str | None
    folder: str = ""  # under the data directory, for archives whose own folders would not say what they are


@dataclass(frozen=True)
class LongTail:
    """The exponential profile by which a balanced training set is reduced; the test set is not changed.

    ``imbalance`` is the largest class's count divided by the smallest's. ``seed`` alone decides which images stay, the
    same ones for every training seed. ``per_class`` is the number of training images per class of the balanced set if
    that is known: the largest possible imbalance.
    """

    imbalance: float = 100.0
    seed: int = 0
    per_class: int | None = None


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset without its files."""

    name: str
    reader: str
    classes: int
    shape: tuple[int, ...]  # of an image; the sizes of graphs, sentences and images with boxes differ
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: tuple[File, ...] = ()
    test: tuple[File, ...] = ()
    urls: tuple[str, ...] = ()  # folders that have the files or the archive, tried in this order
    archive: Archive | None = None
    highest: int = 255
    names: tuple[str, ...] = ()  # of the classes
    long_tail: LongTail | None = None
    images: tuple[int, int] = (0, 0)  # of the training and the test part, where they stay in files of their own
    gigabytes: float = 0.0  # that those files take
    by_hand: str = ""  # how to get what no program may fetch

    def files(self, split: str) -> tuple[File, ...]:
        return self.train if split == "train" else self.test


def _idx(folder: str, md5: dict[str, str]) -> tuple[tuple[File, ...], tuple[File, ...]]:
    def part(prefix: str) -> tuple[File, ...]:
        names = (f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz")
        return tuple(File(f"{folder}/raw/{name}", md5[name]) for name in names)

    return part("train"), part("t10k")


def _tu(name: str, md5: dict[str, str]) -> Dataset:
    """Graphs of the TU collection. They come in one part, which every seed splits in its own way."""
    files = tuple(File(f"{name}/raw/{name}_{part}.txt", digest) for part, digest in md5.items())
    return Dataset(name.lower(), "tu", 2, (), (), (), train=files, test=files,
                   urls=("https://www.chrsmrrs.com/graphkerneldatasets/",), archive=Archive(f"{name}.zip", None))


_MULTI30K = {
    "train.de.gz": "81ff90b99829c0cd4b1b587d394afd39", "val.de.gz": "6e0e229eb049e3fc99a1ef02fb2d5f91",
    "test_2016_flickr.de.gz": "efd67d314d98489b716b145475101932",
    "train.en.gz": "0065d13af80720a55ca8153d126e6627", "val.en.gz": "2b69aa9253948ac9f67e94917272dd40",
    "test_2016_flickr.en.gz": "ff2c0fcb4893a13bd73414306bc250ae",
    "train.fr.gz": "6cb767741dcad3931f966fefbc05203f", "val.fr.gz": "93fc564584b7e5ba410c761ea5a1c682",
    "test_2016_flickr.fr.gz": "08dc7cd4a662f31718412de95ca9bfe3",
}


def _multi30k(source: str) -> Dataset:
    """Captions of images and their translations. The training part has the sentences for validation too."""
    def files(*parts: str) -> tuple[File, ...]:
        names = [f"{part}.{language}.gz" for part in parts for language in (source, "en")]
        return tuple(File(f"multi30k/{name}", _MULTI30K[name]) for name in names)

    return Dataset(f"multi30k-{source}-en", "multi30k", 0, (), (), (), files("train", "val"),
                   files("test_2016_flickr"),
                   urls=("https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",))


def _iwslt(year: int, source: str, url: str, tests: Sequence[str], validation: Sequence[str] = ()) -> Dataset:
    """Talks. Where no sets are for validation, some of the training sentences are."""
    pair = f"{source}-en"

    def sets(names: Sequence[str]) -> tuple[File, ...]:
        return tuple(File(f"iwslt{year}/{pair}/IWSLT{year}.{name}.{pair}.{language}.xml")
                     for name in names for language in (source, "en"))

    train = tuple(File(f"iwslt{year}/{pair}/train.tags.{pair}.{language}") for language in (source, "en"))
    return Dataset(f"iwslt{year}-{pair}", "iwslt", 0, (), (), (), (*train, *sets(validation)), sets(tests),
                   urls=(url,), archive=Archive(f"{pair}.tgz", None, f"iwslt{year}"))


# Checksums are the publishers' own. For CIFAR only the archive has one, so its parts are checked by their size.
# The TU collection and Multi30k publish none; their files' own digests stand here. IWSLT's files are not checked.
_ALL = [
    Dataset("digits", "digits", 10, (1, 8, 8), (0.305,), (0.376,), highest=16),
    Dataset("mnist", "idx", 10, (1, 28, 28), (0.1307,), (0.3081,), *_idx("MNIST", {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }), urls=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")),
    Dataset("fashion_mnist", "idx", 10, (1, 28, 28), (0.2860,), (0.3530,), *_idx("FashionMNIST", {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }), urls=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)),
    Dataset("cifar10", "cifar", 10, (3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616),
            train=tuple(File(f"cifar-10-batches-bin/data_batch_{i}.bin", size=30_730_000) for i in range(1, 6)),
            test=(File("cifar-10-batches-bin/test_batch.bin", size=30_730_000),),
            urls=("https://www.cs.toronto.edu/~kriz/",),
            archive=Archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
            names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")),
    # The paper normalises CIFAR-100 with CIFAR-10's mean and deviation.
    Dataset("cifar100", "cifar_fine", 100, (3, 32, 32), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616),
            train=(File("cifar-100-binary/train.bin", size=153_700_000),),
            test=(File("cifar-100-binary/test.bin", size=30_740_000),),
            urls=("https://www.cs.toronto.edu/~kriz/",),
            archive=Archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8")),
    _tu("PROTEINS", {"A": "e1283f9419bdc9d123e3629e19f8d43d", "graph_indicator": "792ce6ec5fec3d456092ac2622d7e6e2",
                     "graph_labels": "f6c7a131e44d14c1331c13bdd26833e1",
                     "node_labels": "1c643f4695b0c256a1d1d0483e8abc71"}),
    _tu("NCI1", {"A": "12b0937c698fea04560519334a9a75c7", "graph_indicator": "4ee85628b77f94d5c1a8da0d76580cf0",
                 "graph_labels": "1e76a12fd18c4a512fe736cbc4ca5b41",
                 "node_labels": "6cf940202ef08b229e15f56c1da41358"}),
    _multi30k("de"), _multi30k("fr"),
    # Characters in one file; every recipe splits it.
    Dataset("tinyshakespeare", "text", 0, (), (), (),
            train=(File("tinyshakespeare/input.txt", "6fb458f1232090904fb40fe944165e91", 1_115_394),),
            urls=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",)),
    _iwslt(14, "de", "https://wit3.fbk.eu/archive/2014-01/texts/de/en/",
           ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]),
    _iwslt(17, "fr", "https://wit3.fbk.eu/archive/2017-01-trnted/texts/fr/en/", ["TED.tst2015"],
           ["TED.dev2010", *(f"TED.tst{year}" for year in range(2010, 2015))]),
    # Images with boxes. Their lists say which images there are; these are checked when they are read.
    Dataset("bccd", "voc", 3, (), (), (), train=(File("BCCD/ImageSets/Main/train.txt"),
                                                 File("BCCD/ImageSets/Main/val.txt")),
            test=(File("BCCD/ImageSets/Main/test.txt"),), urls=("https://github.com/Shenggan/BCCD_Dataset",),
            names=("Platelets", "RBC", "WBC"), gigabytes=0.01,
            by_hand="clone https://github.com/Shenggan/BCCD_Dataset, and take its folder BCCD"),
    Dataset("coco", "coco", 80, (), (), (), train=(File("coco/annotations/instances_train2017.json"),),
            test=(File("coco/annotations/instances_val2017.json"),), urls=("https://cocodataset.org",),
            gigabytes=20, by_hand="fetch train2017.zip, val2017.zip and annotations_trainval2017.zip, as listed at "
                                  "https://cocodataset.org, and unpack them in coco"),
    Dataset("imagenet", "imagenet", 1000, (3, 224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225),
            train=(File("imagenet/train"),), test=(File("imagenet/val"),), images=(1_281_167, 50_000), gigabytes=145,
            by_hand="sign in at https://image-net.org, fetch the archives ILSVRC2012_img_train.tar, "
                    "ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, and unpack the first two into "
                    "imagenet/train/WORDNET_ID and imagenet/val"),
    Dataset("inaturalist2018", "inaturalist", 8142, (3, 224, 224), (0.466, 0.471, 0.380), (0.195, 0.194, 0.192),
            train=(File("inaturalist2018/train2018.json"),), test=(File("inaturalist2018/val2018.json"),),
            images=(437_513, 24_426), gigabytes=120,
            by_hand="fetch train_val2018.tar.gz, train2018.json.tar.gz and val2018.json.tar.gz, as listed at "
                    "https://github.com/visipedia/inat_comp/tree/master/2018, and unpack them in inaturalist2018"),
]
DATASETS = {dataset.name: dataset for dataset in _ALL}
# The long tails of the literature have the files of the balanced sets.
DATASETS |= {f"{base}-lt": replace(DATASETS[base], name=f"{base}-lt", long_tail=LongTail(per_class=per_class))
             for base, per_class in (("cifar10", 5000), ("cifar100", 500))}


def dataset(name: str, imbalance: float | None = None) -> Dataset:
    """The dataset of that name; an unknown one is refused with the nearest right name.

    Args:
        name: one of :data:`DATASETS`.
        imbalance: for a long-tailed dataset, the largest class's count divided by the smallest's; None for 100.

    >>> dataset("cifar100-lt", imbalance=50).long_tail
    LongTail(imbalance=50, seed=0, per_class=500)
    """
    if name not in DATASETS:
        raise DataError(f"no dataset is called {name!r}; expected one of {', '.join(DATASETS)}."
                        + did_you_mean(name, DATASETS))
    facts = DATASETS[name]
    if imbalance is None:
        return facts
    if facts.long_tail is None:
        tails = [tail for tail, other in DATASETS.items() if other.long_tail]
        raise DataError(f"imbalance={imbalance:g} for {name}: only {', '.join(tails)} are long-tailed."
                        + did_you_mean(f"{name}-lt", tails))
    most = facts.long_tail.per_class
    if not 1 <= imbalance < math.inf or (most is not None and imbalance > most):
        raise DataError(f"imbalance={imbalance:.10g} for {name}: expected a number "
                        f"{'of at least 1' if most is None else f'from 1 to {most}'}, the largest class's count "
                        "divided by the smallest's; the literature has 10, 50 and 100.")
    return replace(facts, long_tail=replace(facts.long_tail, imbalance=imbalance))


def data_dir(chosen: str | Path | None = None) -> Path:
    """The data directory: the given one, or else ``ENCOURAGING_DATA``, or else the user's cache."""
    if folder := chosen or os.environ.get(VARIABLE):
        return Path(folder)
    import pooch

    return Path(pooch.os_cache("encouraging"))


def find(file: File, root: Path) -> Path | None:
    """The file as shipped, or unzipped in the same folder; None if neither exists."""
    shipped = root / file.path
    return next((path for path in (shipped, shipped.with_suffix("")) if path.is_file()), None)


def missing(name: str, root: Path, splits: tuple[str, ...] = ("train", "test")) -> list[str]:
    """The files of these splits that are missing under ``root``."""
    if (by_layout := _LAYOUTS.get(dataset(name).reader)) is not None:
        return by_layout(root, splits)
    wanted = [file for split in splits for file in dataset(name).files(split)]
    return [file.path for file in wanted if find(file, root) is None]
