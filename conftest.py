"""For the tests and the doctests of the source: without a GPU the kernels run in Triton's interpreter; Keras runs on
torch."""

import gc
import importlib.util
import os
from collections.abc import Generator
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported, by whichever test comes first

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when Keras is first imported

if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton"):
    from triton.runtime import interpreter

    from quick_interpreter import once_per_launch, operands_as_they_are, types_once_per_shape

    once_per_launch(interpreter)
    types_once_per_shape(interpreter)
    operands_as_they_are(interpreter)

KERNELS = ["src/encouraging/ops/triton/*", "src/encouraging/models/prelu_norm.py"]
collect_ignore_glob = [] if importlib.util.find_spec("triton") else KERNELS
if not importlib.util.find_spec("keras"):
    collect_ignore_glob = [*collect_ignore_glob, "src/encouraging/integrations/keras.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """The modules that collecting imports stay to the end: the garbage collector need not look through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
