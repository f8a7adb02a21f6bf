"""RetinaNet by name, on one of torchvision's ResNets, with the loss of any curve.

Backbones start from scratch, or from a file of weights that the user has; nothing is downloaded.
"""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..curves import Curve
from ..errors import RecipeError, did_you_mean, install_words
from ..plugins import is_reference, load_function

if TYPE_CHECKING:
    from torchvision.models.detection import RetinaNet

# The ResNet of each, and whether it is torchvision's second version: group norm in the heads, GIoU as the box loss.
DETECTORS = {f"retinanet_resnet{depth}_fpn": (f"resnet{depth}", False) for depth in (18, 34, 50, 101)}
DETECTORS |= {"retinanet_resnet50_fpn_v2": ("resnet50", True)}
# Numeric options and their limits; they are whole numbers if the lower limit is one.
NUMBERS: dict[str, tuple[float, float]] = {
    "trainable_layers": (0, 5), "score_thresh": (0.0, 1.0), "nms_thresh": (0.0, 1.0),
    "detections_per_img": (1, math.inf), "topk_candidates": (1, math.inf), "fg_iou_thresh": (0.0, 1.0),
    "bg_iou_thresh": (0.0, 1.0)}
OPTIONS = ("weights", "backbone_weights", *NUMBERS)
OVERLAPS = {"bg_iou_thresh": 0.4, "fg_iou_thresh": 0.5}  # torchvision's own
HEAD = "head.classification_head.cls_logits."  # the weights that depend on the number of classes


class Detector(nn.Module):
    """A RetinaNet for training by a task: with its losses it returns the number of ``positives`` of the batch and, if
    the losses are divided by it, the moving ``average`` of that number over the updates of all ranks."""

    def __init__(self, net: RetinaNet, divisor: str = "images") -> None:
        super().__init__()
        self.net, self.divisor = net, divisor
        net.transform._skip_resize = True  # in training the transforms of the data resize; in evaluation the model does
        # torchvision rounds its anchors to the type of the features, and for GIoU also to that of the predicted
        # offsets: in bfloat16 to multiples of 4 pixels above 512 pixels.
        net.backbone.register_forward_hook(_in_float32)
        net.head.regression_head.register_forward_hook(_in_float32)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None, curve: Curve | None = None,
                negative_curve: Curve | None = None, alpha: float | None = None) -> Any:
        """Detections, or in training the losses of a batch for a curve."""
        if targets is None or curve is None:
            return self.net(images)
        head = self.net.head.classification_head
        head.curve, head.negative_curve, head.alpha = curve, negative_curve or curve, alpha
        if images:
            losses = self.net(images, targets)
        else:  # this rank has no image of a small batch, but the other ranks wait for its gradients
            device = next(self.parameters()).device
            no_boxes = {"boxes": torch.zeros(0, 4, device=device),
                        "labels": torch.zeros(0, dtype=torch.int64, device=device)}
            losses = {name: 0 * loss for name, loss in self.net([torch.zeros(3, 64, 64, device=device)],
                                                                [no_boxes]).items()}
        counts = {"positives": head.positives if images else torch.zeros_like(head.positives)}
        if self.divisor == "moving_positives":
            counts["average"] = head.moving_positives.clone()
        return {**losses, **counts}


def _in_float32(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return outputs.float()
    return type(outputs)((name, output.float()) for name, output in outputs.items())


def check_detector(name: str, options: Mapping[str, Any], folder: str | None = None) -> None:
    """Refuse an unknown model, or options that it does not take, before anything is built."""
    if is_reference(name):
        load_function(name, folder, "model")
        return
    if name not in DETECTORS:
        raise RecipeError(f"no detector is called {name!r}; expected {', '.join(DETECTORS)}, or module:function."
                          + did_you_mean(name, DETECTORS), "model")
    for key in options:
        if key not in OPTIONS:
            raise RecipeError(f"{key}: the model {name} takes {', '.join(OPTIONS)}." + did_you_mean(key, OPTIONS),
                              "model_options")
        if key in NUMBERS:
            _check_number(key, options[key])
    below, above = ({**OVERLAPS, **options}[key] for key in OVERLAPS)
    if below > above:
        raise RecipeError(f"bg_iou_thresh = {below} with fg_iou_thresh = {above}: expected the overlap up to which an "
                          "anchor is background, and at least that from which on it is matched.", "model_options")
    for key in ("weights", "backbone_weights"):
        if key in options:
            _weights_file(key, options[key], folder)
    if {"weights", "backbone_weights"} <= options.keys():
        raise RecipeError("weights and backbone_weights: a whole detector has its backbone's weights too; give one.",
                          "model_options")
    if "trainable_layers" in options and not {"weights", "backbone_weights"} & options.keys():
        raise RecipeError("trainable_layers: without weights or backbone_weights all layers learn.", "model_options")


def _check_number(key: str, given: object) -> None:
    low, high = NUMBERS[key]
    kinds = int if isinstance(low, int) else (int, float)
    if isinstance(given, bool) or not isinstance(given, kinds) or not low <= given <= high:
        words = f"from {low} to {high}" if high < math.inf else f"of {low} or more"
        raise RecipeError(f"{key} = {given!r}: expected a {'whole ' * isinstance(low, int)}number {words}.",
                          "model_options")


def build_detector(name: str, classes: int, options: Mapping[str, Any] | None = None, *, min_size: int = 800,
                   max_size: int = 1333, divisor: str = "images", folder: str | None = None) -> Detector:
    """The detector of that name, freshly initialised from torch's random state or from files of weights.

    Args:
        name: one of :data:`DETECTORS`, or ``module:function``, which is called with ``classes``, ``min_size``,
            ``max_size`` and the options that it takes, and returns a ``RetinaNet`` of torchvision.
        classes: number of classes, without the background.
        options: ``backbone_weights``, a file with the state of the ResNet, with which torchvision freezes batch norm
            and all but the last three stages (``trainable_layers``); ``weights``, a file with the state of a complete
            detector, whose last layer is initialised again if it has another number of classes; RetinaNet's thresholds.
        min_size: shorter side of an image in evaluation.
        max_size: its longer side at most.
        divisor: see :func:`encouraging.integrations.torchvision.with_curve`.
    """
    from ..curves import focal

    try:
        from ..integrations.torchvision import with_curve
    except (ImportError, RuntimeError) as error:
        raise RecipeError(f"{name} needs {install_words('torchvision', error)}", "model") from error
    options = dict(options or {})
    check_detector(name, options, folder)
    sides = {"min_size": min_size, "max_size": max_size}
    if is_reference(name):
        net = _own(name, load_function(name, folder, "model"), classes, sides, options)
    else:
        net = _named(name, classes, sides, options, folder)
    return Detector(with_curve(net, focal(2.0), alpha=0.25, divisor=divisor), divisor)  # type: ignore[arg-type]


def _own(name: str, build: Callable[..., Any], classes: int, sides: dict[str, int], options: dict[str, Any]) -> Any:
    from torchvision.models.detection import RetinaNet

    takes = inspect.signature(build).parameters
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    unknown = [key for key in options if key not in takes and not anything]
    if unknown:
        raise RecipeError(f"{unknown[0]}: {name} takes {', '.join(takes)}." + did_you_mean(unknown[0], takes),
                          "model_options")
    net = build(classes=classes, **{key: value for key, value in sides.items() if key in takes or anything}, **options)
    if not isinstance(net, RetinaNet):
        raise RecipeError(f"{name} returned a {type(net).__name__}: expected a RetinaNet of torchvision.", "model")
    return net


def _named(name: str, classes: int, sides: dict[str, int], options: dict[str, Any], folder: str | None) -> Any:
    from torchvision.models.detection import RetinaNet, retinanet_resnet50_fpn_v2
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops import FrozenBatchNorm2d
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    weights, backbone = options.pop("weights", None), options.pop("backbone_weights", None)
    layers = int(options.pop("trainable_layers", 3 if weights or backbone else 5))
    resnet, second_version = DETECTORS[name]
    # As in torchvision's own functions: with weights, batch norm of the first version is frozen.
    fpn = resnet_fpn_backbone(
        backbone_name=resnet, weights=None, trainable_layers=layers, returned_layers=[2, 3, 4],
        norm_layer=FrozenBatchNorm2d if (weights or backbone) and not second_version else nn.BatchNorm2d,
        extra_blocks=LastLevelP6P7(2048 if second_version else 256, 256))
    if second_version:
        net = retinanet_resnet50_fpn_v2(weights=None, weights_backbone=None, num_classes=classes, **sides, **options)
        net.backbone = fpn
    else:
        net = RetinaNet(fpn, classes, **sides, **options)
    if backbone is not None:
        _load(net.backbone.body, "backbone_weights", _weights_file("backbone_weights", backbone, folder), resnet, "fc.")
    if weights is not None:
        path = _weights_file("weights", weights, folder)
        _load(net, "weights", path, name, HEAD if _classes_of(path) != net.state_dict()[f"{HEAD}bias"].shape[0] else "")
    return net


def _weights_file(key: str, given: object, folder: str | None) -> Path:
    path = Path(str(given)).expanduser()
    candidates = [path, *([Path(folder) / path] if folder else [])]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        raise RecipeError(f"{key} = {str(given)!r}: there is no such file. Expected the state of a model of "
                          "torchvision, as .pth or .safetensors; nothing is downloaded. Leave the key out to start "
                          "from scratch.", "model_options")
    return file


def _state(path: Path) -> dict[str, Tensor]:
    import safetensors.torch

    try:
        state = (safetensors.torch.load_file(path) if path.suffix == ".safetensors"
                 else torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:  # torch's message advises to load it in a way that can run any code
        raise RecipeError(f"{path}: cannot be read as a file of weights: it is damaged, or contains something other "
                          "than tensors. Expected what torch.save(model.state_dict(), path) writes.",
                          "model_options") from error
    except Exception as error:  # zip, torch and safetensors raise their own exceptions
        raise RecipeError(f"{path}: cannot be read as a file of weights ({type(error).__name__}: {error}).",
                          "model_options") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise RecipeError(f"{path}: expected a dict of tensors, the state_dict of a model.", "model_options")
    return dict(state)


def _classes_of(path: Path) -> int | None:
    bias = _state(path).get(f"{HEAD}bias")
    return None if bias is None else bias.shape[0]


def _load(model: nn.Module, key: str, path: Path, kind: str, without: str) -> None:
    """Load all weights from a file, except those whose names begin with ``without``."""
    state = {name: tensor for name, tensor in _state(path).items() if not without or not name.startswith(without)}
    try:
        keys = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # another shape
        raise RecipeError(f"{key}: {path} is not the state of torchvision's {kind}: "
                          f"{str(error).splitlines()[-1].strip()}", "model_options") from error
    for words, names in (("lacks", keys.missing_keys), ("has the unknown", keys.unexpected_keys)):
        # Frozen batch norm has no counters.
        wrong = [name for name in names if not name.endswith("num_batches_tracked")
                 and not (without and name.startswith(without))]
        if wrong:
            raise RecipeError(f"{key}: {path} {words} {wrong[0]}{f' and {len(wrong) - 1} more' if wrong[1:] else ''}: "
                              f"expected the state of torchvision's {kind}.", "model_options")
