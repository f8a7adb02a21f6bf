"""Scores of translations: BLEU and chrF by sacrebleu, the counts of BLEU per sentence, the best and worst sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..data.pieces import translation_extra
from ..errors import RecipeError, did_you_mean

SHOWN = 5  # best sentences, and as many worst ones


def bleu(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> float:
    """Corpus BLEU from 0 to 100; ``tokenize`` is one of sacrebleu's tokenisers."""
    return float(_bleu(tokenize).corpus_score(list(translations), [list(references)]).score)


def words_and_marks(line: str) -> str:
    """A sentence with spaces around every punctuation mark.

    >>> words_and_marks("It's half-time.")
    "It ' s half - time ."
    """
    return " ".join(re.findall(r"\w+|[^\w\s]", line))


def scores(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> dict[str, float]:
    """BLEU by sacrebleu's tokeniser and on words and marks, chrF, and the ratio of the lengths of translations and
    references in words."""
    corpus_bleu = _bleu(tokenize).corpus_score(list(translations), [list(references)])
    chrf = _chrf().corpus_score(list(translations), [list(references)])
    marked = [[words_and_marks(line) for line in lines] for lines in (translations, references)]
    marked_bleu = _bleu("none").corpus_score(marked[0], [marked[1]])
    return {"bleu": float(corpus_bleu.score), "tokenised_bleu": float(marked_bleu.score), "chrf": float(chrf.score),
            "length_ratio": corpus_bleu.sys_len / max(corpus_bleu.ref_len, 1)}


def details(sources: Sequence[str], translations: Sequence[str], references: Sequence[str],
            tokenize: str = "13a") -> dict[str, Any]:
    """sacrebleu's signature, BLEU's counts per sentence, and the sentences with the highest and the lowest chrF."""
    metric = _bleu(tokenize)
    metric.corpus_score(list(translations), [list(references)])  # the signature needs it
    counts = [row[:6] for row in metric._extract_corpus_statistics(list(translations), [list(references)])]
    chrf = _chrf()
    per_sentence = [float(chrf.sentence_score(translation, [reference]).score)
                    for translation, reference in zip(translations, references, strict=True)]
    order = sorted(range(len(translations)), key=lambda index: per_sentence[index])

    def rows(indices: Sequence[int]) -> list[dict[str, Any]]:
        return [{"chrf": per_sentence[index], "source": sources[index], "said": translations[index],
                 "reference": references[index]} for index in indices]

    return {"signature": str(metric.get_signature()), "counts": [[int(number) for number in row] for row in counts],
            "sentences": {"best": rows(order[::-1][:SHOWN]), "worst": rows(order[:SHOWN])}}


def _bleu(tokenize: str) -> Any:
    with translation_extra("sacrebleu"):
        from sacrebleu.metrics import BLEU
    if tokenize not in BLEU.TOKENIZERS:
        raise RecipeError(f"tokenize = {tokenize!r}: sacrebleu has {', '.join(BLEU.TOKENIZERS)}."
                          + did_you_mean(tokenize, BLEU.TOKENIZERS), "options")
    try:
        return BLEU(tokenize=tokenize, force=True)  # without force it warns about text that is already tokenised
    except (ImportError, RuntimeError) as error:
        raise RecipeError(f"tokenize = {tokenize!r}: sacrebleu cannot use it ({' '.join(str(error).split())}).",
                          "options") from error


def _chrf() -> Any:
    with translation_extra("sacrebleu"):
        from sacrebleu.metrics import CHRF
    return CHRF()
