"""Object detection with torchvision's RetinaNet, whose classification loss is any curve on the sigmoid link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator
from torch import Tensor, nn

from .. import curves
from ..data import DATASETS, Boxes, Clock, LoaderSource, Shuffled, dataset, read_boxes
from ..data.box_examples import BoxBatch, BoxExamples, check_shapes
from ..data.boxes import BOX_READERS
from ..data.samplers import RankBatches
from ..engine import Conclusion, Loss, Metric, Needs, Predictions, Task
from ..engine.metric import HIDDEN, PERCENT
from ..engine.settings import Frozen
from ..errors import RecipeError
from ..models.detection import build_detector, check_detector
from .base import BaseTask
from .box_metrics import NAMES, Evaluator
from .box_pictures import pictures
from .data_check import check_data
from .objective import Objective
from .options import read_options
from .spec import TaskSpec

NAMED = 12  # with more classes than this, classes have no columns of their own
SIZES = ("small", "medium", "large")


class Options(Frozen):
    """The ``options`` table of a detection recipe.

    In training the shorter side of an image is resized to one of ``sizes``, drawn at random; in evaluation it is
    resized to ``test_size``. The loss is divided by ``divisor``, see
    :func:`encouraging.integrations.torchvision.with_curve`. ``pictures`` is the number of test images that are kept
    with their boxes.
    """

    sizes: tuple[int, ...] = Field(default=(640, 672, 704, 736, 768, 800), min_length=1)
    test_size: int = Field(default=800, gt=1)
    max_size: int = Field(default=1333, gt=0)
    flip: float = Field(default=0.5, ge=0, le=1)
    divisor: Literal["images", "positives", "moving_positives"] = "images"
    evaluate_batch: int = Field(default=8, gt=0)
    pictures: int = Field(default=3, ge=0)

    @field_validator("sizes", mode="before")
    @classmethod
    def _check_sizes(cls, value: object) -> object:
        sizes = (value,) if isinstance(value, int) else value
        if isinstance(sizes, list | tuple) and any(not isinstance(size, int) or size < 2 for size in sizes):
            raise ValueError(f"{list(sizes)}: expected numbers of pixels, 2 or more")
        return sizes


def metrics_of(names: Sequence[str]) -> tuple[Metric, ...]:
    """COCO's numbers on the test part, on the validation part if there is one, and per class."""
    return (
        Metric("ap", "test AP", **PERCENT, primary=True,
               about="AP is COCO's: the mean over overlaps from 50% to 95%, in percent. Test AP is that of the last "
                     "epoch."),
        Metric("best_ap", "test AP at the best epoch", **PERCENT,
               about="The best epoch is the one with the highest validation AP where there is a validation part, else "
                     "with the highest test AP."),
        Metric("ap50", "test AP at 50% overlap", **PERCENT, **HIDDEN),
        Metric("best_ap50", "test AP50 at the best epoch", **PERCENT),
        Metric("ap75", "test AP at 75% overlap", **PERCENT, **HIDDEN),
        Metric("best_ap75", "test AP75 at the best epoch", **PERCENT),
        *(Metric(f"{best}ap_{size}", f"test AP of {size} boxes{words}", **PERCENT, **HIDDEN)
          for size in SIZES for best, words in (("", ""), ("best_", " at the best epoch"))),
        Metric("val_ap", "validation AP", **PERCENT, **HIDDEN),
        Metric("best_val_ap", "best validation AP", **PERCENT),
        *(Metric(f"val_ap{overlap}", f"validation AP at {overlap}% overlap", **PERCENT, **HIDDEN)
          for overlap in (50, 75)),
        *(Metric(f"val_ap_{size}", f"validation AP of {size} boxes", **PERCENT, **HIDDEN) for size in SIZES),
        *(Metric(f"class_ap.{name}", f"test AP of {name}", **PERCENT,
                 about="" if number else "AP of single classes is that of the model that the recipe concludes on.")
          for number, name in enumerate(names[:NAMED] if len(names) <= NAMED else ())),
        Metric("best_epoch", "best epoch", digits=1, better="lower", **HIDDEN),
        Metric("classification_loss", "classification loss", digits=3, better="lower", log=True, **HIDDEN),
        Metric("box_loss", "box loss", digits=3, better="lower", log=True, **HIDDEN),
        Metric("gradient_norm_ratio.ce", "gradient norm over cross-entropy's", **HIDDEN),
    )


class DetectionTask(BaseTask[BoxBatch]):
    """A dataset of images with boxes, a RetinaNet and a curve."""

    metrics = metrics_of(())
    sums = ("classification", "boxes", "weight", "examples")

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.options = Options(**spec.options)
        self.data: Boxes = read_boxes(spec.data, spec.root, spec.folder)
        for boxes in self.data.parts.values():
            check_shapes(boxes.images, self.options.max_size)
        self.metrics = metrics_of(self.data.names)
        self.parts_evaluated = {part: boxes for part, boxes in self.data.parts.items() if part != "train"}
        for monitor in (stage.train.monitor or "" for stage in spec.stages):
            if monitor.startswith("val_") and "validation" not in self.parts_evaluated:
                raise RecipeError(f"monitor = {monitor!r}: {spec.data} has no validation part. Expected "
                                  f"{monitor.removeprefix('val_')!r}, measured on the test part, or data with a "
                                  "validation part.", "train")
        self.evaluators = {part: Evaluator(self.data, boxes) for part, boxes in self.parts_evaluated.items()}
        for monitor in {stage.train.monitor or "" for stage in spec.stages}:
            part, name = ("validation" if monitor.startswith("val_") else "test"), monitor.removeprefix("val_")
            if name in self.evaluators[part].absent:
                raise RecipeError(f"monitor = {monitor!r}: the {part} part of {spec.data} has no box of that size. "
                                  f"Expected another number, such as {monitor.partition('ap_')[0]}ap.", "train")
        self.workers = spec.stages[0].train.workers
        self._sources: dict[tuple[str, int, int], LoaderSource[BoxBatch, BoxBatch]] = {}

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        options = read_options(Options, spec.options)
        for stage in spec.stages:
            if stage.objective.link != "sigmoid" or stage.objective.loss != "curve":
                raise RecipeError("an arm of a detection recipe needs link = 'sigmoid' and a curve: every anchor has "
                                  "one sigmoid per class.", "arms")
            if stage.objective.divisor != "weights":
                raise RecipeError(f"divisor = {stage.objective.divisor!r} in an arm: in detection it is an option of "
                                  "the task, options.divisor = 'images', 'positives' or 'moving_positives'.", "arms")
            if (stage.objective.reweight_from_epoch is not None or stage.objective.logit_norm is not None
                    or stage.objective.logit_scale != 1):
                raise RecipeError("reweight_from_epoch, logit_norm and logit_scale belong to classification. Leave "
                                  "them out.", "arms")
            if stage.sampling.kind == "class_balanced":
                raise RecipeError("sampling = 'class_balanced': an image has boxes of several classes. Expected "
                                  "'shuffled' or 'sequential'.", "stages")
            if stage.train.compile:
                raise RecipeError("compile: every batch of images has another shape. Leave it out.", "train")
            if options.divisor == "moving_positives" and stage.train.accumulate > 1:
                raise RecipeError("divisor = 'moving_positives' averages the positives batch by batch: use "
                                  "accumulate = 1, or divisor = 'positives'.", "options")
        check_detector(spec.model, spec.model_options, spec.folder)
        with_boxes = ", ".join(name for name, facts in DATASETS.items() if facts.reader in BOX_READERS)
        datasets = check_data(spec, BOX_READERS, ("train", "test"),
                              f"has no boxes: expected {with_boxes}, folder:PATH or module:function.")
        names = dataset(spec.data).names if datasets else ()
        monitors = [f"{part}{name}" for part in ("", "val_") for name in NAMES]
        return Needs(datasets, ("torchvision", "pycocotools"), metrics_of(names),
                     monitors=[*monitors, "classification_loss", "box_loss"], examples="images")

    def build(self) -> nn.Module:
        options = self.options
        return build_detector(self.spec.model, self.data.classes, self.spec.model_options, min_size=options.test_size,
                              max_size=options.max_size, divisor=options.divisor,
                              folder=self.spec.folder).to(self.device)

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        net: Any = model.net
        return {"body": net.backbone, "head": net.head}

    def source(self, stage: int) -> LoaderSource[BoxBatch, BoxBatch]:
        spec, options = self.spec.stages[stage - 1], self.options
        images = self.data.parts["train"].images
        device = None if spec.train.workers else self.device
        examples = BoxExamples(images, options.sizes, options.max_size, options.flip, device)
        shuffle = spec.train.shuffle and spec.sampling.kind == "shuffled"
        return LoaderSource(examples, Shuffled(len(images), spec.train.batch_size, shuffle), self.spec.seed,
                            workers=spec.train.workers, move=self._move)

    def _move(self, batch: BoxBatch) -> BoxBatch:
        return batch.to(self.device)

    def probes(self, clock: Clock) -> dict[str, Objective]:
        own = self.spec.stages[clock.stage - 1].objective
        return {"ce": Objective(curves.cross_entropy(), link="sigmoid", alpha=own.alpha)}

    def loss(self, model: nn.Module, batch: BoxBatch, objective: Objective) -> Loss:
        losses = model(batch.images, batch.targets, objective.curve, objective.negative_curve, objective.alpha)
        mean = losses["classification"] + losses["bbox_regression"]
        if self.options.divisor == "images":
            return Loss(mean, len(batch.images), self._sums(losses, batch, len(batch.images), len(batch.images)))
        if self.options.divisor == "positives":
            positives = losses["positives"]
            divisor = positives.clamp(min=1)
            return Loss(mean, positives, self._sums(losses, batch, divisor, positives), mean * divisor, 1.0)
        from ..integrations.torchvision import ranks

        moving_average = float(losses["average"])
        per_rank = moving_average / ranks()
        return Loss(mean, 0, self._sums(losses, batch, per_rank, per_rank), mean * per_rank, moving_average)

    @staticmethod
    def _sums(losses: Mapping[str, Tensor], batch: BoxBatch, divisor: float | Tensor,
              weight: float | Tensor) -> dict[str, float | Tensor]:
        """The two losses as sums; the epoch's sums are divided by the sum of the weights in the end."""
        return {"classification": losses["classification"].detach() * divisor,
                "boxes": losses["bbox_regression"].detach() * divisor, "weight": weight,
                "examples": len(batch.images)}

    def training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        weight = max(sums["weight"], 1.0)
        return {"classification_loss": sums["classification"] / weight, "box_loss": sums["boxes"] / weight}

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """Detections of the validation and test images, in batches that do not depend on the number of ranks."""
        for part in self.parts_evaluated:
            for batch in self._evaluation_source(part, rank, world).batches(Clock(), 0, 0, 1):
                for index, detections in zip(batch.numbers, model(batch.images), strict=True):
                    yield {"part": part, "index": index, **{key: value.cpu() for key, value in detections.items()}}

    def _evaluation_source(self, part: str, rank: int, world: int) -> LoaderSource[BoxBatch, BoxBatch]:
        key = (part, rank, world)
        if key not in self._sources:
            examples = BoxExamples(self.parts_evaluated[part].images, device=self.device)
            rank_batches = RankBatches(len(examples.images), self.options.evaluate_batch, rank, world)
            workers = 0 if examples.cached else self.workers  # images in memory need no loading
            self._sources[key] = LoaderSource(examples, rank_batches, 0, workers=workers, move=self._move)
        return self._sources[key]

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for part, detections in detections_by_part(predictions).items():
            measured, _ = self.evaluators[part].measure(detections)
            prefix = {"test": "", "validation": "val_"}.get(part, f"{part}_")
            numbers |= {f"{prefix}{name}": value for name, value in measured.items()}
        return numbers

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        detections = detections_by_part(predictions)["test"]
        measured, by_class = self.evaluators["test"].measure(detections)
        numbers: dict[str, Any] = {
            "class_ap": by_class, "concluded": measured,
            "images": {part: len(boxes) for part, boxes in self.data.parts.items()},
            "boxes": {part: sum(len(image.boxes) for image in boxes.images)
                      for part, boxes in self.data.parts.items()},
            "skipped_boxes": {part: boxes.skipped for part, boxes in self.data.parts.items()}}
        drawn = pictures(self.data.parts["test"].images, detections, self.data.names, self.options.pictures)
        return Conclusion(numbers, diagnosis={"boxes": drawn} if drawn["images"] else None)


def detections_by_part(predictions: Sequence[Predictions]) -> dict[str, dict[int, Predictions]]:
    """Detections by part and index of the image, from the pieces of all ranks."""
    parts: dict[str, dict[int, Predictions]] = {}
    for piece in predictions:
        parts.setdefault(piece["part"], {})[int(piece["index"])] = piece
    return parts


_: type[Task[BoxBatch]] = DetectionTask  # mypy: a detection task is a task
