"""Datasets as their publishers ship them: one reader per format, checksums, and downloads."""

from ._load import absent, load
from .boxes import Boxes, BoxImage, BoxSet, read_boxes
from .cifar import read_cifar
from .clock import Clock
from .digits import read_digits
from .draw import generator
from .fetch import download
from .graphs import GraphBatch, Graphs, ResidentGraphs
from .idx import read_idx
from .registry import DATASETS, VARIABLE, Dataset, LongTail, data_dir, dataset, missing
from .samplers import ByTokens, ClassBalanced, Sampler, Shuffled
from .sources import Examples, LoaderSource, ResidentSource, Source
from .tu import read_graphs, read_tu

__all__ = [
    "DATASETS", "VARIABLE", "BoxImage", "BoxSet", "Boxes", "ByTokens", "ClassBalanced", "Clock", "Dataset", "Examples",
    "GraphBatch", "Graphs", "LoaderSource", "LongTail", "ResidentGraphs", "ResidentSource", "Sampler", "Shuffled",
    "Source", "absent", "data_dir", "dataset", "download", "generator", "load", "missing", "read_boxes", "read_cifar",
    "read_digits", "read_graphs", "read_idx", "read_tu",
]
