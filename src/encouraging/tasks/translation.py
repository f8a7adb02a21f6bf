"""Machine translation: byte-pair encoding of both languages, batches of a few shapes, BLEU with beam search.

After every epoch the validation sentences are scored, and some of them are translated greedily. The test sentences are
translated once, in the final evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..data import Clock, Pairs, TextOptions, TokenBatches, learn_pieces, padded, read_corpus
from ..data.buckets import LENGTHS, TokenBatch
from ..data.pieces import END, PAD
from ..engine import Conclusion, Loss, Metric, Needs, Predictions, Task
from ..engine.metric import HIDDEN, PERCENT
from ..engine.settings import Frozen
from ..errors import DataError, RecipeError
from ..models.beam import beam_search
from ..models.translation_named import build_translation_model, check_translation_model
from .data_check import check_data
from .objective import Objective
from .options import read_options
from .spec import TaskSpec
from .token_loss import check_token_stage, token_loss
from .token_task import TokenTask
from .translation_scores import bleu, details, scores

SCORED_AT_ONCE = 4096  # tokens, with padding
USUAL = 64  # pieces; a batch has fewer sentences if they are longer


class Options(Frozen):
    """The ``options`` table of a translation recipe."""

    vocabulary: int = Field(default=10_000, ge=16)  # pieces of both languages together
    source: str = ""  # the file endings of the two languages, for data = "folder:..."
    target: str = ""
    lowercase: bool = False
    longest: int | None = Field(default=None, gt=0)  # words of a training sentence
    ratio: float | None = Field(default=None, ge=1)  # of the words of a training sentence and its translation
    lengths: int = Field(default=LENGTHS, gt=0)  # the number of lengths to which sentences are padded
    validated: int = Field(default=1000, ge=0)  # validation sentences that are translated after an epoch
    beam: int = Field(default=5, ge=1)
    length_penalty: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    most_pieces: int | None = Field(default=None, gt=0)  # of a translation with beam search, without its end
    sentences: int = Field(default=128, gt=0)  # per batch of the beam search
    tokenize: str = "13a"  # sacrebleu's tokeniser for BLEU

    @property
    def text(self) -> TextOptions:
        return TextOptions(self.lowercase, self.longest, self.ratio)


METRICS = (
    Metric("bleu", "BLEU", primary=True, low=0, high=100,
           about="BLEU is sacrebleu's on the test sentences, translated with beam search by the model that the recipe "
                 "concludes on."),
    Metric("tokenised_bleu", "BLEU on words and marks", low=0, high=100),
    Metric("chrf", "chrF", low=0, high=100),
    Metric("length_ratio", "length beside the reference", digits=3, low=0),
    Metric("test_loss", "test cross-entropy per piece", "nats", 3, better="lower", low=0),
    Metric("test_accuracy", "next piece accuracy", **PERCENT),
    Metric("gradient_norm_ratio.ce", "gradient norm over cross-entropy's", low=0,
           about="The gradient norm is compared with that of cross-entropy with the same smoothing, at the same "
                 "weights and on the same batches; both norms are means over updates."),
    Metric("val_loss", "validation cross-entropy per piece", "nats", 3, better="lower", log=True, **HIDDEN),
    Metric("val_bleu", "validation BLEU, greedy", low=0, high=100, **HIDDEN),
    Metric("val_accuracy", "validation next piece accuracy", **PERCENT, **HIDDEN),
    Metric("best_val_loss", "best validation cross-entropy", "nats", 3, better="lower", **HIDDEN),
)


class TranslationTask(TokenTask[TokenBatch]):
    """Sentences in two languages, a network and a loss; a batch is padded sentences and their translations."""

    metrics = METRICS
    ignored = PAD

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.options = Options(**spec.options)
        bleu(["a"], ["a"], self.options.tokenize)  # fails now and not after an epoch if a package is missing
        self.corpus = read_corpus(spec.data, spec.root, spec.folder, options=self.options.text,
                                  languages=(self.options.source, self.options.target))
        self.pieces = learn_pieces(self.corpus.train.source, self.corpus.train.target, self.options.vocabulary,
                                   joint=spec.model_options.get("share") == "all")
        self._score_batches: dict[str, TokenBatches] = {}
        self._encoded: dict[str, list[list[int]]] = {}

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        options = read_options(Options, spec.options)
        for stage in spec.stages:
            check_token_stage(stage, PAD, subject="translation", units="pieces", examples="sentences")
            monitor = stage.train.monitor
            if monitor is None or monitor == "bleu":
                raise RecipeError("monitor: test BLEU is measured only at the end. Set what chooses the best epoch: "
                                  'monitor = "val_loss", better = "lower", or monitor = "val_bleu".', "train")
            if monitor == "val_bleu" and not options.validated:
                raise RecipeError("monitor = 'val_bleu' with validated = 0: no validation sentence is translated, so "
                                  "there is no such number. Raise options.validated, or monitor val_loss.", "train")
        check_translation_model(spec.model, spec.model_options, spec.folder)
        if spec.data.startswith("folder:") and not (options.source and options.target):
            raise RecipeError(f"data = {spec.data!r} needs source and target, the endings of its files: "
                              'options = { source = "de", target = "en" }.', "options")
        datasets = check_data(spec, ("multi30k", "iwslt"), ("train", "test"),
                              "holds no sentences: expected data for translation, such as multi30k-de-en.")
        return Needs(datasets, ("tokenizers", "sacrebleu"), METRICS, monitors=("val_loss", "val_bleu", "val_accuracy"))

    def build(self) -> nn.Module:
        return build_translation_model(self.spec.model, self.pieces.size("source"), self.pieces.size("target"),
                                       self.spec.model_options, self.spec.folder).to(self.device)

    def source(self, stage: int) -> TokenBatches:
        spec = self.spec.stages[stage - 1]
        shuffle = spec.train.shuffle and spec.sampling.kind == "shuffled"
        return self._batches(self.corpus.train, spec.train.batch_size, shuffle)

    def _batches(self, pairs: Pairs, budget: int | None, shuffle: bool) -> TokenBatches:
        """Batches of at most ``budget`` tokens. None is the budget for scores, which must include every sentence,
        however long it is."""
        source, target = self.pieces.encode(pairs.source, "source"), self.pieces.encode(pairs.target, "target")
        if budget is None:
            budget = max(SCORED_AT_ONCE, *(len(numbers) + 1 for numbers in (*source, *target)))
        return TokenBatches(source, target, budget, self.spec.seed, self.device, shuffle=shuffle,
                            lengths=self.options.lengths)

    def loss(self, model: nn.Module, batch: TokenBatch, objective: Objective) -> Loss:
        source, target = batch
        hidden, weight = model(source, target[:, :-1])
        return token_loss(objective, hidden, weight, target[:, 1:])

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """Scores of the reference translations, and translations: greedy ones of the validation sentences, or in the
        final evaluation those of the test sentences, with beam search."""
        name, options = "test" if final else "validation", self.options
        for number, batch in enumerate(self._batches_to_score(name).batches(Clock(), 0, 0, 1)):
            if number % world == rank:
                yield {"scored": self._score(model, *batch)}
        # Both searches have equally many hypotheses per batch: small greedy steps would leave a GPU idle.
        encoded, beam = self._sentences_to_translate(name, final), options.beam if final else 1
        at_once = options.sentences * options.beam // beam
        batches = search_batches(encoded, at_once)
        for number in range(rank, len(batches), world):
            sentences = [encoded[index] for index in batches[number]]
            translated = translate_pieces(model, sentences, self.device, beam, options.length_penalty,
                                          options.most_pieces if final else None)
            yield {"numbers": batches[number], "translations": self.pieces.decode(translated, "target")}

    def _sentences_to_translate(self, name: str, final: bool) -> list[list[int]]:
        """Encoded once, because they are the same after every epoch."""
        if name not in self._encoded:
            sources = getattr(self.corpus, name).source
            self._encoded[name] = self.pieces.encode(sources if final else sources[: self.options.validated], "source")
        return self._encoded[name]

    def _batches_to_score(self, name: str) -> TokenBatches:
        """Built once, because they are the same after every epoch."""
        if name not in self._score_batches:
            self._score_batches[name] = self._batches(getattr(self.corpus, name), None, False)
        return self._score_batches[name]

    def _score(self, model: nn.Module, source: Tensor, target: Tensor) -> list[float]:
        """The summed cross-entropy of the labels, how many are the most probable piece, and how many there are."""
        hidden, weight = model(source, target[:, :-1])
        labels = target[:, 1:]
        counted = labels != PAD
        logits = F.linear(hidden[counted].float(), weight)
        right = (logits.argmax(1) == labels[counted]).sum()
        numbers = torch.stack([F.cross_entropy(logits, labels[counted], reduction="sum").double(), right.double()])
        return [*numbers.tolist(), int(counted.sum())]

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        numbers = self._likelihood(predictions, "val")
        translations = self._translations(predictions)
        if translations:
            references = self.corpus.validation.target[: len(translations)]
            numbers["val_bleu"] = bleu(translations, references, self.options.tokenize)
        return numbers

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        translations, test, options = self._translations(predictions), self.corpus.test, self.options
        numbers = {**scores(translations, test.target, options.tokenize), **self._likelihood(predictions, "test")}
        diagnosis = {"beam": options.beam, "length_penalty": options.length_penalty,
                     **details(test.source, translations, test.target, options.tokenize)}
        files = {"pieces.json": self.pieces.to_json(),
                 "translations.txt": "".join(f"{line}\n" for line in translations).encode()}
        return Conclusion(numbers, diagnosis={"translation": diagnosis}, files=files)

    @staticmethod
    def _translations(predictions: Sequence[Predictions]) -> list[str]:
        """The translations of all ranks in the order of the sentences."""
        lines = {index: line for part in predictions if "numbers" in part
                 for index, line in zip(part["numbers"], part["translations"], strict=True)}
        if sorted(lines) != list(range(len(lines))):
            raise DataError(f"{len(lines)} translations with gaps between them: a rank has lost some.")
        return [lines[index] for index in range(len(lines))]


def search_batches(sentences: Sequence[Sequence[int]], at_once: int) -> list[list[int]]:
    """The indices of the sentences of each batch. Sentences are sorted by length, because those of one length end
    together; batches of long sentences are smaller, because their keys and values need more memory.

    >>> search_batches([[5, 6, 7], [5], [5, 6]], at_once=2)
    [[1, 2], [0]]
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(sentences)), key=lambda index: len(sentences[index])):
        size = len(batches[-1]) if batches else at_once
        if size >= at_once or (size + 1) * len(sentences[index]) > at_once * USUAL:
            batches.append([])
        batches[-1].append(index)
    return batches


def translate_pieces(model: Any, sentences: Sequence[Sequence[int]], device: torch.device, beam: int = 5,
                     length_penalty: float = 1.0, most_pieces: int | None = None) -> list[list[int]]:
    """Translate sentences; they and the translations are indices of pieces, without an end mark."""
    longest = max(len(sentence) for sentence in sentences) + 1
    source = padded([[*sentence, END] for sentence in sentences], longest).to(device)
    limit = None if most_pieces is None else torch.full((len(source),), most_pieces + 1, device=device)
    return beam_search(model, source, beam, length_penalty, limit).lists()


_: type[Task[TokenBatch]] = TranslationTask  # mypy: a translation task is a task
