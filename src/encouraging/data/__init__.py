"""Datasets as their publishers ship them: one reader per format, checksums, and downloads."""

from ._load import absent, load
from .cifar import read_cifar
from .digits import read_digits
from .fetch import download
from .idx import read_idx
from .registry import DATASETS, VARIABLE, Dataset, LongTail, data_dir, dataset, missing

__all__ = ["DATASETS", "VARIABLE", "Dataset", "LongTail", "absent", "data_dir", "dataset", "download", "load",
           "missing", "read_cifar", "read_digits", "read_idx"]
