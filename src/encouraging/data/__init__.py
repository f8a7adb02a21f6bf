"""Datasets as their publishers ship them: one reader per format, checksums, and downloads."""

from ._load import absent, load
from .boxes import Boxes, BoxImage, BoxSet, read_boxes
from .buckets import TokenBatches, best_lengths, padded
from .cifar import read_cifar
from .clock import Clock
from .digits import read_digits
from .draw import generator
from .fetch import download
from .file_list import FileList, FileSplit, ImageFiles
from .graphs import GraphBatch, Graphs, ResidentGraphs
from .idx import read_idx
from .large import is_large, read_image_files
from .parallel import Corpus, Pairs, TextOptions, read_corpus
from .pieces import Pieces, learn_pieces, pieces_from_json
from .registry import DATASETS, VARIABLE, Dataset, LongTail, data_dir, dataset, missing
from .samplers import ByTokens, ClassBalanced, Sampler, Shuffled
from .sources import Examples, LoaderSource, ResidentSource, Source
from .tu import read_graphs, read_tu

__all__ = [
    "DATASETS", "VARIABLE", "BoxImage", "BoxSet", "Boxes", "ByTokens", "ClassBalanced", "Clock", "Corpus", "Dataset",
    "Examples", "FileList", "FileSplit", "GraphBatch", "Graphs", "ImageFiles", "LoaderSource", "LongTail", "Pairs",
    "Pieces", "ResidentGraphs", "ResidentSource", "Sampler", "Shuffled", "Source", "TextOptions", "TokenBatches",
    "absent", "best_lengths", "data_dir", "dataset", "download", "generator", "is_large", "learn_pieces", "load",
    "missing", "padded", "pieces_from_json", "read_boxes", "read_cifar", "read_corpus", "read_digits", "read_graphs",
    "read_idx", "read_image_files", "read_tu",
]
