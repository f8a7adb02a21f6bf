"""The kernels' tests run without a GPU, in Triton's interpreter, which must be chosen before Triton is imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
