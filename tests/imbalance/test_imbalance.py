"""Long tails: profiles against the published sizes, sampling by counting, shifts by Bayes' rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from encouraging import LDAMLoss, curve_loss
from encouraging.curves import Curve
from encouraging.data import ClassBalanced
from encouraging.errors import ArgumentError, DtypeError, ShapeError
from encouraging.imbalance import (
    adjusted_logits,
    balanced_indices,
    balanced_logits,
    effective_weights,
    exponential_counts,
    log_prior,
    long_tail_indices,
)
from strategies import CURVES, SEEDS, generator


@pytest.mark.parametrize(("largest", "classes", "imbalance", "total"), [
    (500, 100, 100, 10847), (500, 100, 50, 12608), (500, 100, 10, 19573),
    (5000, 10, 100, 12406), (5000, 10, 50, 13996), (5000, 10, 10, 20431), (500, 100, 1, 50000),
])
def test_profiles_have_the_published_sizes(largest: int, classes: int, imbalance: float, total: int) -> None:
    counts = exponential_counts(largest, classes, imbalance)
    assert int(counts.sum()) == total
    assert (counts[0], counts[-1]) == (largest, int(largest / imbalance))
    assert bool((counts.diff() <= 0).all())


@pytest.mark.parametrize("arguments", [(500, 1, 10), (500, 10, 0.5), (500, 10, math.nan), (500, 10, 501), (0, 10, 1)])
def test_a_profile_that_cannot_be_is_refused(arguments: tuple[int, int, float]) -> None:
    with pytest.raises(ArgumentError, match="expected two classes or more"):
        exponential_counts(*arguments)


@given(seed=st.integers(0, 5), imbalance=st.sampled_from([1, 2, 10, 50]))
def test_a_long_tail_keeps_as_many_as_the_profile_says_and_depends_on_the_seed_alone(seed: int, imbalance: int) -> None:
    labels = (torch.arange(700) % 7)[torch.randperm(700, generator=generator(1))]
    kept = long_tail_indices(labels, imbalance, seed)
    assert torch.equal(kept, kept.unique())
    assert torch.equal(torch.bincount(labels[kept]), exponential_counts(100, 7, imbalance))
    torch.rand(3)
    assert torch.equal(kept, long_tail_indices(labels, imbalance, seed))
    assert set(long_tail_indices(labels, 50, seed).tolist()) <= set(kept.tolist())
    if imbalance > 1:
        assert not torch.equal(kept, long_tail_indices(labels, imbalance, seed + 1))


def test_only_a_balanced_set_is_cut() -> None:
    for labels in (torch.tensor([0, 0, 1]), torch.tensor([0, 2]), torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(ArgumentError, match="balanced set"):
            long_tail_indices(labels, 1)


@st.composite
def tails(draw: st.DrawFn) -> torch.Tensor:
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any))
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate(sizes)])
    return labels[torch.randperm(len(labels), generator=generator(draw(SEEDS)))]


@given(labels=tails(), count=st.integers(0, 100), per_class=st.sampled_from([1, 4]), seed=SEEDS)
def test_balanced_sampling_takes_every_class_equally_often(labels: torch.Tensor, count: int, per_class: int,
                                                           seed: int) -> None:
    drawn = balanced_indices(labels, count, generator(seed), per_class)
    assert drawn.shape == (count,)
    present = labels.unique()
    often = torch.bincount(labels[drawn], minlength=int(labels.max()) + 1)[present]
    assert int(often.max() - often.min()) <= per_class
    visits = labels[drawn][: count // per_class * per_class].view(-1, per_class)
    assert bool((visits == visits[:, :1]).all())  # the examples of a visit are of one class
    for start in range(0, len(visits) - len(present) + 1, len(present)):  # all classes before one comes again
        assert torch.equal(visits[start : start + len(present), 0].sort().values, present)
    for c in present.tolist():  # all examples of a class before one comes again
        mine = drawn[labels[drawn] == c]
        repeats = torch.bincount(mine, minlength=len(labels))[labels == c]
        assert int(repeats.max() - repeats.min()) <= 1
    assert torch.equal(drawn, balanced_indices(labels, count, generator(seed), per_class))


def test_balanced_sampling_is_random_in_classes_and_in_examples() -> None:
    labels = torch.arange(1000) % 10
    one, other = (balanced_indices(labels, 1000, generator(seed), 1) for seed in (0, 1))
    assert not torch.equal(one, other)
    assert len(one.unique()) == 1000  # an epoch over a balanced set sees everything once
    first = torch.stack([labels[balanced_indices(labels, 1, generator(seed), 1)[0]] for seed in range(300)])
    assert int(torch.bincount(first, minlength=10).min()) > 10  # 30 each, give or take four deviations


@pytest.mark.parametrize("per_class", [None, 4])
def test_the_sampler_s_batches_are_these_positions(per_class: int | None) -> None:
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate((30, 7, 1))])
    batches = ClassBalanced(labels, 16, per_class).batches(generator(3))
    assert [len(batch) for batch in batches] == [16, 16, 6]
    assert torch.equal(torch.cat(list(batches)), balanced_indices(labels, 38, generator(3), per_class or 1))


def test_sampling_that_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"got \(0,\)"):
        balanced_indices(torch.zeros(0, dtype=torch.int64), 3, generator(0))
    with pytest.raises(ArgumentError, match="per_class of at least 1"):
        balanced_indices(torch.zeros(3, dtype=torch.int64), 3, generator(0), per_class=0)


def test_effective_weights_are_the_formula_and_sum_to_the_classes() -> None:
    counts = exponential_counts(500, 100, 100)
    raw = torch.tensor([(1 - 0.9999) / (1 - 0.9999**n) for n in counts.tolist()], dtype=torch.float64)
    torch.testing.assert_close(effective_weights(counts).double(), raw / raw.sum() * 100, rtol=1e-6, atol=0)
    assert effective_weights(counts, beta=0.0).tolist() == [1.0] * 100
    assert float(effective_weights(counts).sum()) == pytest.approx(100)
    with pytest.raises(ArgumentError, match="at least one training example per class"):
        effective_weights(torch.tensor([3, 0]))


@given(seed=SEEDS, curve=CURVES)
def test_shifts_cancel_and_equal_counts_change_nothing(seed: int, curve: Curve) -> None:
    g = generator(seed)
    logits = 3 * torch.randn(9, 5, generator=g, dtype=torch.float64)
    target, counts = torch.randint(5, (9,), generator=g), torch.randint(1, 900, (5,), generator=g)
    torch.testing.assert_close(adjusted_logits(balanced_logits(logits, counts, 0.7), counts, 0.7), logits)
    equal = torch.full((5,), 7)
    torch.testing.assert_close(curve_loss(balanced_logits(logits, equal), target, curve),
                               curve_loss(logits, target, curve), rtol=1e-6, atol=1e-6)


def test_balanced_softmax_is_its_published_formula() -> None:
    logits, counts = torch.randn(6, 4, dtype=torch.float64), torch.tensor([500, 90, 20, 3])
    target = torch.tensor([0, 1, 2, 3, 0, 3])
    weighted = counts * logits.exp()
    expected = -(weighted.gather(1, target[:, None])[:, 0] / weighted.sum(1)).log().mean()
    torch.testing.assert_close(F.cross_entropy(balanced_logits(logits, counts), target), expected, rtol=1e-6, atol=1e-7)


def test_adjustment_of_a_perfect_model_gives_the_decision_of_balanced_classes() -> None:
    """Bayes' rule: from p(y) p(x | y) to p(x | y), for a table of a hundred x."""
    likelihood = torch.rand(100, 4, dtype=torch.float64, generator=generator(0))
    counts = torch.tensor([1000, 100, 10, 1])
    posterior = likelihood * counts
    posterior = posterior / posterior.sum(1, keepdim=True)
    assert torch.equal(adjusted_logits(posterior.log(), counts).argmax(1), likelihood.argmax(1))
    assert not torch.equal(posterior.argmax(1), likelihood.argmax(1))
    assert adjusted_logits(posterior.half(), counts).dtype == torch.float16


def test_counts_that_give_no_prior_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"class 1 has the count 0; expected at least one training example per"):
        log_prior(torch.tensor([3, 0]))
    with pytest.raises(ShapeError, match=r"the shape \(4,\) for logits of the shape \(2, 4\), got \(3,\)"):
        adjusted_logits(torch.zeros(2, 4), torch.ones(3))


@pytest.mark.parametrize("counts", [[500, 60, 5], (500, 60, 5), np.array([500, 60, 5]), Counter({2: 5, 0: 500, 1: 60}),
                                    [500.0, 60.0, 5.0], np.array([500, 60, 5], dtype=np.uint16)])
def test_counts_of_any_ordinary_kind_are_those_of_the_tensor(counts: Any) -> None:
    tensor, logits = torch.tensor([500, 60, 5]), torch.randn(4, 3)
    assert torch.equal(effective_weights(counts), effective_weights(tensor))
    assert torch.equal(log_prior(counts), log_prior(tensor))
    for shift in (balanced_logits, adjusted_logits):
        assert torch.equal(shift(logits, counts), shift(logits, tensor))
    assert torch.equal(LDAMLoss(counts).margins, LDAMLoss(tensor).margins)


@pytest.mark.parametrize("use", [effective_weights, log_prior, LDAMLoss,
                                 lambda counts: balanced_logits(torch.zeros(2, 3), counts),
                                 lambda counts: adjusted_logits(torch.zeros(2, 3), counts)])
@pytest.mark.parametrize(("counts", "error", "words"), [
    ([5, 0, 3], ArgumentError, "class 1 has the count 0.*leave it out of the classes"),
    ({0: 5, 2: 3}, ArgumentError, "keys 0, 2; expected the class indices 0 to 1.*leave it out"),
    ({"cat": 5, "dog": 3}, ArgumentError, "keys 'cat', 'dog'; expected the class indices"),
    ([5, -1, 3], ArgumentError, "a count of -1; expected at least one"),
    ([5.0, math.nan, 3.0], ArgumentError, "a count of nan"),
    ([], ArgumentError, r"counts of the shape \(0,\)"),
    ([[1, 2, 3]], ArgumentError, r"counts of the shape \(1, 3\)"),
    ("500", DtypeError, "counts are a str; expected numbers in a tensor"),
    (500, DtypeError, "counts are a int"), (None, DtypeError, "counts are a NoneType"),
    (["many", "few", "none"], DtypeError, "counts are a list; expected numbers"),
    ([[1, 2], [3]], DtypeError, "counts are a list"),
])
def test_counts_of_another_kind_are_refused_in_words(use: Callable[[Any], Any], counts: Any, error: type[Exception],
                                                     words: str) -> None:
    with pytest.raises(error, match=words):
        use(counts)


@pytest.mark.parametrize("logits", [[[0.0, 1.0]], np.zeros((1, 2)), torch.zeros(1, 2, dtype=torch.int64)])
def test_logits_that_are_no_tensor_of_numbers_are_refused_in_words(logits: Any) -> None:
    for shift in (balanced_logits, adjusted_logits):
        with pytest.raises(DtypeError, match="expected a tensor of floating point numbers"):
            shift(logits, [1, 3])


def test_labels_may_be_lists_and_arrays() -> None:
    labels = torch.arange(100) % 5
    for same in (labels.tolist(), labels.numpy()):
        assert torch.equal(long_tail_indices(same, 4), long_tail_indices(labels, 4))
        assert torch.equal(balanced_indices(same, 9, generator(0)), balanced_indices(labels, 9, generator(0)))
    for use in (lambda labels: long_tail_indices(labels, 4), lambda labels: balanced_indices(labels, 9, generator(0))):
        with pytest.raises(DtypeError, match="labels are"):
            use("cats")
        with pytest.raises(DtypeError, match=r"labels are torch.float32; expected integers"):
            use([0.0, 1.0])
        with pytest.raises(ArgumentError):
            use([[0, 1], [1, 0]])
        with pytest.raises(ArgumentError, match=r"the label at position 2 is -100; expected class indices from 0 on"):
            use([0, 1, -100, -1])


def test_arrays_that_run_backwards_are_read() -> None:
    counts, labels = np.array([5, 60, 500]), np.arange(100) % 5
    assert torch.equal(effective_weights(counts[::-1]), effective_weights([500, 60, 5]))
    assert torch.equal(long_tail_indices(labels[::-1], 4), long_tail_indices(labels[::-1].copy(), 4))


@pytest.mark.parametrize("counts", [[500, 60, 5], torch.tensor([500, 60, 5])], ids=["list", "tensor"])
def test_shifts_and_weights_compile_as_one_graph(counts: Any) -> None:
    logits, labels = torch.randn(8, 3, generator=generator(0)), torch.arange(8) % 3
    for loss in (lambda z: F.cross_entropy(balanced_logits(z, counts), labels), lambda z: adjusted_logits(z, counts),
                 lambda z: F.cross_entropy(z, labels, effective_weights(counts).to(z.dtype))):
        torch.testing.assert_close(torch.compile(loss, backend="eager", fullgraph=True)(logits), loss(logits))


@pytest.mark.parametrize("shift", [balanced_logits, lambda z, counts: -adjusted_logits(-z, counts)],
                         ids=["balanced", "adjusted"])
def test_shifts_of_float64_have_all_its_digits(shift: Callable[[Any, Any], torch.Tensor]) -> None:
    counts = [5, 1000, 3]
    exact = torch.tensor([math.log(count / 1008) for count in counts], dtype=torch.float64)
    torch.testing.assert_close(shift(torch.zeros(3, dtype=torch.float64), counts), exact, rtol=1e-15, atol=0)
    assert shift(torch.zeros(3), counts).dtype == torch.float32


@pytest.mark.parametrize("call", [
    lambda: effective_weights([1, 2], "0.9"), lambda: exponential_counts(math.nan, 3, 2.0),
    lambda: exponential_counts(math.inf, 3, 2.0), lambda: exponential_counts(10, 2.5, 2.0),
    lambda: exponential_counts(10, 3, "2"), lambda: long_tail_indices([0, 1], None),
    lambda: balanced_indices([0, 1], 2.5, torch.Generator()),
    lambda: balanced_indices([0, 1], 2, torch.Generator(), per_class="1"),
], ids=["beta", "NaN", "infinite", "classes", "imbalance", "of indices", "count", "per class"])
def test_what_is_no_such_number_is_refused_in_words(call: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match="expected"):
        call()
