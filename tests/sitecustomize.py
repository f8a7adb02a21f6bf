"""Let the tests use torchvision beside a torch build that its compiled library was not made for.

A CPU build of torch with the CUDA build of torchvision (or the reverse) cannot load torchvision's operators, and
torchvision then fails while it is imported, although images, transforms and models need none of them. Python runs this
file at start-up when ``tests/`` is on ``PYTHONPATH``. It imports nothing heavy: it leaves a hook that acts at the first
``import torchvision``, tries its own library, and only where that cannot be loaded declares the two operators that the
import asks for, with a plain ``nms`` for the CPU. Every other compiled operator stays missing and says so when called.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_keep: list[Any] = []  # a torch Library takes its operators with it when it is collected


class _TorchvisionHook(MetaPathFinder):
    """Runs ``_declare_operators`` just before torchvision's own code; a mere search for it stays as light as ever."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in {"torchvision", "torchvision.extension"}:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None or spec.origin is None:
            return None
        folder, run = Path(spec.origin).parent, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if name == "torchvision":
                _declare_operators(folder)
            run(module)
            if name == "torchvision.extension" and _keep:
                module._assert_has_ops = lambda: None  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _declare_operators(folder: Path) -> None:
    import torch

    for library in [*folder.glob("_C*.so"), *folder.glob("_C*.pyd")]:
        try:
            torch.ops.load_library(library)
        except (ImportError, OSError):
            continue
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    _keep.append(library)


def _nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Greedy non-maximum suppression: the best box stays and strikes out what overlaps it too much."""
    import torch

    order = scores.argsort(descending=True, stable=True)
    area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    kept = []
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        corner = torch.maximum(dets[best, :2], dets[order, :2])
        size = (torch.minimum(dets[best, 2:], dets[order, 2:]) - corner).clamp(min=0)
        overlap = size[:, 0] * size[:, 1]
        order = order[overlap / (area[best] + area[order] - overlap) <= iou_threshold]
    return torch.stack(kept) if kept else scores.new_zeros(0, dtype=torch.int64)


sys.meta_path.insert(0, _TorchvisionHook())
