"""skorch: its losses are ours, nets keep them wherever scikit-learn copies nets, and a plateau below 0 is seen."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from torch import nn

skorch = pytest.importorskip("skorch", reason="needs the package skorch (pip install skorch)")

from skorch.callbacks import EarlyStopping, EpochScoring  # noqa: E402
from skorch.dataset import Dataset  # noqa: E402
from skorch.helper import predefined_split  # noqa: E402

from encouraging import EncouragingLoss, encouraging_loss  # noqa: E402

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = (IMAGES / 16).astype("float32")


def net(epochs: int = 2, **arguments: object) -> object:
    return skorch.NeuralNetClassifier(nn.Linear, module__in_features=64, module__out_features=10, verbose=0,
                                      criterion=EncouragingLoss, criterion__log_end=0.5, lr=0.3, max_epochs=epochs,
                                      **arguments)


def test_its_validation_loss_is_ours_and_its_probabilities_are_a_softmax():
    held_out = predefined_split(Dataset(IMAGES[:64], LABELS[:64]))
    trained = net(train_split=held_out).fit(IMAGES, LABELS)
    logits = trained.module_(torch.as_tensor(IMAGES[:64])).detach()
    own = encouraging_loss(logits, torch.as_tensor(LABELS[:64]), log_end=0.5)
    assert trained.history[-1, "valid_loss"] == pytest.approx(own.item(), abs=1e-5)
    np.testing.assert_allclose(trained.predict_proba(IMAGES[:64]), logits.softmax(1).numpy(), rtol=1e-4)


def test_nets_are_pickled_copied_and_cloned_with_their_loss():
    trained = net(train_split=False).fit(IMAGES, LABELS)
    for again in (pickle.loads(pickle.dumps(trained)), copy.deepcopy(trained), clone(trained).fit(IMAGES, LABELS)):
        assert repr(again.criterion_) == "EncouragingLoss(log_end=0.5)"


def test_log_end_is_searched_like_any_parameter():
    search = GridSearchCV(net(train_split=False), {"criterion__log_end": [0.25, 1.0]}, cv=2).fit(IMAGES, LABELS)
    assert search.best_estimator_.criterion_.log_end == search.best_params_["criterion__log_end"]


@pytest.mark.parametrize(("mode", "stops"), [("rel", False), ("abs", True)])
def test_a_plateau_below_zero_is_seen_by_absolute_thresholds_alone(mode, stops):
    """What the documentation warns of: relative thresholds, the default, take a constant loss for progress."""
    constant = EpochScoring(lambda *_: -1.0, lower_is_better=True, name="constant")
    stopping = EarlyStopping("constant", patience=3, threshold_mode=mode, sink=lambda *_: None)
    trained = net(8, callbacks=[("constant", constant), ("stopping", stopping)]).fit(IMAGES[:300], LABELS[:300])
    assert (len(trained.history) < 8) == stops
