"""Language models: the next token of a running text, its likelihood, and what temperature scaling makes of it.

After every epoch the validation text is scored, and in the final evaluation the test text. Text is scored in windows
that overlap by half, so that every token but the first counts once and has its context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from ..data import generator
from ..data.text import read_text
from ..data.tokens import BYTES, learn_tokens
from ..data.windows import IGNORED, TextWindows, WindowBatch, evaluation_windows
from ..engine import Conclusion, Loss, Metric, Needs, ParameterGroup, Predictions, Task
from ..engine.metric import HIDDEN, PERCENT
from ..engine.settings import Frozen
from ..errors import DataError, RecipeError
from ..metrics import Reader, accuracy, summary
from ..models.continuation import continued
from ..models.language_named import build_language_model, check_language_model
from .classification import POSTERIOR, readable_curve
from .data_check import check_data
from .objective import Objective
from .objective_config import compared_curves
from .options import read_options
from .spec import TaskSpec
from .token_loss import check_token_stage, token_loss
from .token_task import TokenTask

TOKENS_AT_ONCE, LOGITS_AT_ONCE = 1 << 15, 1 << 24  # that are scored
WRITTEN = 300  # tokens that a finished run writes as a sample
PROMPT = 64  # tokens of the test text that come before it


class Options(Frozen):
    """The ``options`` table of a recipe for running text."""

    context: int = Field(default=256, gt=0)  # tokens of a window
    vocabulary: int | None = Field(default=None, ge=BYTES)  # pieces of words; None for characters
    validation: float = Field(default=0.05, gt=0, lt=1)  # shares of a text in one piece
    test: float = Field(default=0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _check_training_text(self) -> Options:
        if self.validation + self.test >= 1:
            raise ValueError(f"validation = {self.validation} and test = {self.test} leave no text to train on")
        return self


METRICS = (
    Metric("bits", "bits per character", digits=3, better="lower", low=0, primary=True,
           about="Bits per character are the negative log-likelihood of the test text in base 2, over its characters."),
    Metric("scaled_bits", "bits per character, scaled", digits=3, better="lower", low=0,
           about="Scaled: after all logits are divided by one temperature, which is fitted on half of the test tokens, "
                 "drawn at random, and judged on the other half."),
    Metric("temperature.value", "temperature", digits=2, better="lower", low=0, **HIDDEN),
    Metric("accuracy", "next token accuracy", **PERCENT),
    Metric("test_loss", "test cross-entropy per token", "nats", 3, better="lower", low=0, **HIDDEN),
    Metric("val_loss", "validation cross-entropy per token", "nats", 3, better="lower", log=True, **HIDDEN),
    Metric("val_accuracy", "validation next token accuracy", **PERCENT, **HIDDEN),
    Metric("best_val_loss", "best validation cross-entropy", "nats", 3, better="lower", **HIDDEN),
    Metric("ece", "calibration error", digits=4, better="lower", low=0, high=1),
    Metric("temperature.ece_after", "calibration error, scaled", digits=4, better="lower", low=0, high=1, **HIDDEN),
    *POSTERIOR,
    Metric("margin.median", "median margin"),
    Metric("margin.mean", "mean margin", **HIDDEN),
    Metric("energy.label", "energy on the data", better="lower", **HIDDEN),
    Metric("energy.rival", "lowest rival energy", **HIDDEN),
    Metric("gradient_norm_ratio.ce", "gradient norm over cross-entropy's", low=0, **HIDDEN),
)


class LanguageTask(TokenTask[WindowBatch]):
    """A text, a network and a loss; a batch is windows of the text and the token after every one of theirs."""

    metrics = METRICS
    examples = "windows"
    ignored = IGNORED

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.options = Options(**spec.options)
        self.text = read_text(spec.data, spec.root, spec.folder, validation=self.options.validation,
                              test=self.options.test)
        self.tokens = learn_tokens(self.text.train, self.options.vocabulary)
        self.train = self.tokens.encode(self.text.train)
        self.scored = {"validation": self.tokens.encode(self.text.validation).to(self.device),
                       "test": self.tokens.encode(self.text.test).to(self.device)}
        for part, tokens in self.scored.items():
            if len(tokens) < 2:
                raise DataError(f"the {part} part is a single piece of the vocabulary: expected two or more, because "
                                "a piece is predicted from those before it. Use a longer text.")

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        options = read_options(Options, spec.options)
        for stage in spec.stages:
            check_token_stage(stage, IGNORED, subject="running text", units="tokens", examples="windows of text")
            monitor = stage.train.monitor
            if monitor is None or monitor == "bits":
                raise RecipeError("monitor: the test text is scored only at the end. Set what chooses the best epoch: "
                                  'monitor = "val_loss", better = "lower".', "train")
        check_language_model(spec.model, spec.model_options, spec.folder)
        datasets = check_data(spec, ("text",), ("train",),
                              "is no running text: expected tinyshakespeare, folder:PATH or module:function.")
        return Needs(datasets, () if options.vocabulary is None else ("tokenizers",), METRICS,
                     monitors=("val_loss", "val_accuracy"), examples="windows")

    def build(self) -> nn.Module:
        return build_language_model(self.spec.model, self.tokens.size, self.options.context, self.spec.model_options,
                                    self.spec.folder).to(self.device)

    def groups(self, model: nn.Module) -> Sequence[ParameterGroup]:
        """As usual for Transformers, norms and biases do not decay."""
        named = [*model.parameters()]
        return [ParameterGroup([p for p in named if p.ndim > 1]),
                ParameterGroup([p for p in named if p.ndim < 2], weight_decay=0.0)]

    def source(self, stage: int) -> TextWindows:
        spec = self.spec.stages[stage - 1]
        return TextWindows(self.train, self.options.context, spec.train.batch_size, self.spec.seed, self.device,
                           shuffle=spec.train.shuffle and spec.sampling.kind == "shuffled")

    def loss(self, model: nn.Module, batch: WindowBatch, objective: Objective) -> Loss:
        inputs, labels = batch
        output = model(inputs)
        if not isinstance(output, tuple | list) or len(output) != 2:
            raise RecipeError(f"{self.spec.model} returned a {type(output).__name__} for tokens: expected a pair, the "
                              "features (rows, positions, width) and the weight of the output layer (tokens, width).",
                              "model")
        features, weight = output
        return token_loss(objective, features, weight, labels)

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """The likelihood of the validation text; in the final evaluation a reader of the test text's logits, and a
        continuation of its first tokens."""
        rows = max(1, min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // self.tokens.size) // self.options.context)
        tokens = self.scored["test" if final else "validation"]
        for number, (inputs, labels) in enumerate(evaluation_windows(tokens, self.options.context, rows)):
            if number % world != rank:
                continue
            features, weight = model(inputs)
            counted = labels != IGNORED
            logits, labels = F.linear(features[counted].float(), weight.float()), labels[counted]
            if final:
                reader = Reader(self.tokens.size, seed=number)
                reader.update(logits, labels)
                yield {"number": number, "reader": reader}
            else:
                right = (logits.argmax(1) == labels).sum().double()
                total = F.cross_entropy(logits, labels, reduction="sum").double()
                yield {"scored": [*torch.stack([total, right]).tolist(), len(labels)]}
        if final and rank == 0:
            written = continued(model, tokens[:PROMPT], self.options.context, generator(self.spec.seed))
            yield {"written": self.tokens.decode(list(islice(written, WRITTEN)))}

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        return self._likelihood(predictions, "val")

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        reader = Reader(self.tokens.size)
        for part in sorted((part for part in predictions if "reader" in part), key=lambda part: part["number"]):
            reader.merge(part["reader"])
        diagnosis = reader.diagnosis(curves=compared_curves(self.spec.stages[-1].objective),
                                     trained_with=readable_curve(self.spec.stages[-1], last))
        numbers = summary(diagnosis)
        first = self.scored["test"][:1].tolist()  # is not predicted
        bits = len(reader.readings) / (len(self.text.test) - len(self.tokens.decode(first))) / math.log(2)
        numbers |= {"accuracy": accuracy(reader.readings), "test_loss": numbers["nll"], "bits": numbers["nll"] * bits}
        if scaled := diagnosis["calibration"].get("temperature"):
            numbers["scaled_bits"] = scaled["nll_after"] * bits
        written = next(part["written"] for part in predictions if "written" in part)
        prompt = self.tokens.decode(self.scored["test"][:PROMPT].tolist())
        diagnosis["text"] = {"sentences": {"prompt": prompt, "written": written}}
        return Conclusion(numbers, diagnosis=diagnosis, files={"tokens.json": self.tokens.to_json()})


_: type[Task[WindowBatch]] = LanguageTask  # mypy: a task of running text is a task
