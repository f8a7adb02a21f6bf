"""BLEU from counts and the paired bootstrap are sacrebleu's own."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from encouraging.errors import ArgumentError, DtypeError, ShapeError
from encouraging.metrics import bleu_of_counts, paired_bootstrap
from encouraging.tasks.translation_scores import bleu, details, scores

words = st.lists(st.sampled_from([*"abcde", "."]), max_size=7).map(" ".join)


def counts_of(said, references):
    return [row[:6] for row in BLEU()._extract_corpus_statistics(list(said), [list(references)])]


@settings(deadline=None)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=8))
def test_bleu_of_counts_is_sacrebleus(pairs):
    said, references = zip(*pairs, strict=True)
    expected = BLEU().corpus_score(list(said), [list(references)]).score
    assert bleu_of_counts(counts_of(said, references)) == pytest.approx(expected, abs=1e-9)


def spoilt(lines, share, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choice("abc") if draw.random() < share else word for word in line.split()) for line in lines]


@pytest.mark.parametrize(("ours", "theirs"), [(0.2, 0.4), (0.3, 0.31), (0.5, 0.2), (0.3, 0.3)])
def test_the_paired_bootstrap_is_sacrebleus(ours, theirs):
    draw = random.Random(0)
    references = [" ".join(draw.choice("abcdefgh") for _ in range(draw.randint(3, 12))) for _ in range(80)]
    better, baseline = spoilt(references, ours, 1), spoilt(references, theirs, 2)
    _, table = PairedTest([("baseline", baseline), ("ours", better)], {"BLEU": BLEU()}, [references], "bs")()
    expected = table["BLEU"]
    found = paired_bootstrap(counts_of(better, references), counts_of(baseline, references))
    assert found.difference == pytest.approx(expected[1].score - expected[0].score, abs=1e-9)
    assert found.p == pytest.approx(expected[1].p_value, abs=1e-12)
    assert found.low < found.difference < found.high


def test_a_system_does_not_differ_from_itself_and_other_sentences_are_refused():
    counts = counts_of(["a b c d e", "a c"], ["a b c d e", "a b"])
    assert paired_bootstrap(counts, counts).difference == 0
    assert paired_bootstrap(counts, counts).p == pytest.approx(1 / 1001)  # sacrebleu counts larger differences only
    with pytest.raises(ShapeError, match="expected two translations of the same sentences"):
        paired_bootstrap(counts, counts[:1])
    with pytest.raises(ArgumentError, match=r"samples=0\): expected an integer, one draw or more"):
        paired_bootstrap([[4, 4, 4, 3, 2, 1]], [[4, 4, 4, 3, 2, 1]], samples=0)
    with pytest.raises(ShapeError, match=r"expected \(sentences, 6\)"):
        bleu_of_counts(np.ones((2, 5)))


def test_details_have_the_signature_and_the_sentences_at_both_ends():
    references = [f"a sentence with the number {at}" for at in range(12)]
    said = [reference if at % 3 else "nothing of it" for at, reference in enumerate(references)]
    found = details([f"quelle {at}" for at in range(12)], said, references)
    assert found["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert bleu_of_counts(found["counts"]) == pytest.approx(bleu(said, references))
    assert [row["chrf"] for row in found["sentences"]["best"]] == [pytest.approx(100)] * 5
    assert {row["source"] for row in found["sentences"]["worst"][:4]} == {f"quelle {at}" for at in (0, 3, 6, 9)}
    assert scores(["a half-time, it's"], ["a half-time, it's!"])["tokenised_bleu"] == pytest.approx(
        BLEU(tokenize="none").corpus_score(["a half - time , it ' s"], [["a half - time , it ' s !"]]).score)
    numbers = scores(said, references)
    assert numbers["bleu"] == numbers["tokenised_bleu"] == pytest.approx(bleu(said, references))
    assert numbers["length_ratio"] == pytest.approx(sum(len(line.split()) for line in said) / 72)


@pytest.mark.parametrize("wrong", [4.5, float("nan"), float("inf"), -1, "4"], ids=repr)
def test_what_is_no_count_is_refused(wrong):
    with pytest.raises(DtypeError, match="whole numbers, 0 or more"):
        bleu_of_counts([[wrong, 4, 4, 3, 2, 1]])


@pytest.mark.parametrize("samples", [0, -1, 1.5, True, None])
def test_a_bootstrap_draws_at_least_once(samples):
    counts = counts_of(["a b c d e"], ["a b c d e"])
    with pytest.raises(ArgumentError, match="one draw or more"):
        paired_bootstrap(counts, counts, samples=samples)
