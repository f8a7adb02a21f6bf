"""All checks of the kernels on a GPU in one process, which starts and compiles once: see ``check_gpu.py``.

    python benchmarks/check_gpu_all.py [--list] [--part I/N] [NAME ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_gpu
import check_gpu_arguments
import check_gpu_calls
import check_gpu_in_order
import check_gpu_launches
import check_gpu_split
import check_gpu_streams
from gpu_checks import Checks, run

if __name__ == "__main__":
    run(Checks([*check_gpu.check, *check_gpu_calls.check, *check_gpu_arguments.check, *check_gpu_in_order.check,
                *check_gpu_split.check, *check_gpu_streams.check, *check_gpu_launches.check]), __doc__)
