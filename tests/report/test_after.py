"""Arms that start from the finished weights of another arm, as the report shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import synthetic_runs as synthetic
from encouraging.report.arms import groups_of
from encouraging.report.chapters import chapters_of
from encouraging.report.sections import training


def runs(after):
    """Two runs of each arm; ``after`` says which arm starts from which."""
    found = [synthetic.record("decoupling", arm, seed) for arm in ("ce", "crt", "crt_again") for seed in range(2)]
    return [replace(run, config={**run.config, "after": after[run.arm]}) if run.arm in after else run for run in found]


def drawn(records):
    """The first and the last epoch of every arm in the training curves, and the caption."""
    group = groups_of(records, {})[0]
    picture = training.picture(group.shown, group.metrics)
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    picture.panels[0].draw(axes)
    ends = [tuple(line.get_xdata()[[0, -1]].tolist()) for line in axes.lines]
    return dict(zip([arm.name for arm in group.shown], ends, strict=True)), picture


@pytest.fixture
def epochs():
    return len(runs({})[0].epochs)


def test_curves_begin_after_the_epochs_of_the_arm_that_the_weights_are_from(epochs):
    ends, picture = drawn(runs({"crt": "ce", "crt_again": "crt"}))
    assert ends == {"ce": (1, epochs), "crt": (epochs + 1, 2 * epochs), "crt_again": (2 * epochs + 1, 3 * epochs)}
    assert "crt (from ce) and crt_again (from crt)" in picture.caption
    assert f"after epoch {3 * epochs}" in picture.alt


def test_an_evaluation_alone_is_drawn_at_the_epoch_whose_weights_it_measures(epochs):
    """Of an arm with ``epochs = 0``, and of a later stage without epochs; what starts from them is not moved."""
    evaluation = {"stage": 1, "epoch": 0, "step": 40, "accuracy": 90.0}
    records = [replace(run, epochs=[evaluation] if run.arm == "crt" else
                       [*run.epochs, {**evaluation, "stage": 2}] if run.arm == "ce" else run.epochs)
               for run in runs({"crt": "ce", "crt_again": "crt"})]
    ends, picture = drawn(records)
    assert ends == {"ce": (1, epochs), "crt": (epochs, epochs), "crt_again": (epochs + 1, 2 * epochs)}
    assert f"crt 90.00% after epoch {epochs}" in picture.alt


def test_where_the_other_arm_is_missing_the_caption_says_that_epochs_are_the_arm_s_own(epochs):
    ends, picture = drawn(runs({"crt": "elsewhere/ce"}))
    assert ends["crt"] == (1, epochs)
    assert "Counted from the first epoch of their own" in picture.caption
    assert "crt (from elsewhere/ce)" in picture.caption


def test_arms_that_start_from_scratch_have_the_caption_that_they_had():
    _, picture = drawn(runs({}))
    assert picture.caption.endswith("can be compared directly.")


def test_arms_of_one_loss_are_described_by_what_distinguishes_them():
    chapter, = chapters_of(runs({"crt": "ce", "crt_again": "crt"}))
    table = next(section for section in chapter.sections if section.key == "arms").tables[0]
    words = [row[0].small for row in table.rows]
    assert len(set(words)) == 3
    assert "starts from ce" in words[1]
