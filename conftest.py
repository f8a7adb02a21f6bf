"""For the tests and the doctests of the source: without a GPU the kernels run in Triton's interpreter."""

import importlib.util
import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported, by whichever test comes first

KERNELS = ["src/encouraging/ops/triton/*", "src/encouraging/models/prelu_norm.py"]
collect_ignore_glob = [] if importlib.util.find_spec("triton") else KERNELS
