"""How translations are scored: BLEU and chrF by sacrebleu, what BLEU counts per sentence, the best and the worst."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..data.pieces import translation_extra
from ..errors import RecipeError, did_you_mean

SHOWN = 5  # sentences at either end


def bleu(said: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> float:
    """Corpus BLEU from 0 to 100; ``tokenize`` is one of sacrebleu's tokenisers."""
    return float(_metric(tokenize).corpus_score(list(said), [list(references)]).score)


def words_and_marks(line: str) -> str:
    """A sentence with spaces around every mark that is neither a letter nor a digit.

    >>> words_and_marks("It's half-time.")
    "It ' s half - time ."
    """
    return " ".join(re.findall(r"\w+|[^\w\s]", line))


def scores(said: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> dict[str, float]:
    """BLEU by sacrebleu's tokeniser and on words and marks, chrF, and how long the translations are beside the
    references, in words."""
    whole = _metric(tokenize).corpus_score(list(said), [list(references)])
    chrf = _chrf().corpus_score(list(said), [list(references)])
    marked = [[words_and_marks(line) for line in lines] for lines in (said, references)]
    plain = _metric("none").corpus_score(marked[0], [marked[1]])
    return {"bleu": float(whole.score), "tokenised_bleu": float(plain.score), "chrf": float(chrf.score),
            "length_ratio": whole.sys_len / max(whole.ref_len, 1)}


def details(sources: Sequence[str], said: Sequence[str], references: Sequence[str],
            tokenize: str = "13a") -> dict[str, Any]:
    """sacrebleu's signature, what BLEU counts of every sentence, and the sentences that are translated best and worst
    by their own chrF."""
    metric = _metric(tokenize)
    metric.corpus_score(list(said), [list(references)])
    counts = [row[:6] for row in metric._extract_corpus_statistics(list(said), [list(references)])]
    own = _chrf()
    each = [float(own.sentence_score(ours, [theirs]).score) for ours, theirs in zip(said, references, strict=True)]
    order = sorted(range(len(said)), key=lambda number: each[number])

    def rows(numbers: Sequence[int]) -> list[dict[str, Any]]:
        return [{"chrf": each[at], "source": sources[at], "said": said[at], "reference": references[at]}
                for at in numbers]

    return {"signature": str(metric.get_signature()), "counts": [[int(number) for number in row] for row in counts],
            "sentences": {"best": rows(order[::-1][:SHOWN]), "worst": rows(order[:SHOWN])}}


def _metric(tokenize: str) -> Any:
    with translation_extra("sacrebleu"):
        from sacrebleu.metrics import BLEU
    if tokenize not in BLEU.TOKENIZERS:
        raise RecipeError(f"tokenize = {tokenize!r}: sacrebleu has {', '.join(BLEU.TOKENIZERS)}."
                          + did_you_mean(tokenize, BLEU.TOKENIZERS), "options")
    try:
        return BLEU(tokenize=tokenize, force=True)  # it would warn of text that is tokenised already
    except (ImportError, RuntimeError) as error:
        raise RecipeError(f"tokenize = {tokenize!r}: sacrebleu cannot use it ({' '.join(str(error).split())}).",
                          "options") from error


def _chrf() -> Any:
    with translation_extra("sacrebleu"):
        from sacrebleu.metrics import CHRF
    return CHRF()
