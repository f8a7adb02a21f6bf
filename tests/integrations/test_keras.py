"""The losses for Keras: Keras's own at the cross-entropy curve, the package's at all others, saved with the model."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

keras = pytest.importorskip("keras", reason="needs the package keras (pip install keras)")

from encouraging import curve_loss, curves, encouraging_loss  # noqa: E402
from encouraging.errors import ArgumentError, CurveError, DtypeError  # noqa: E402
from encouraging.integrations.keras import CurveLoss, EncouragingLoss  # noqa: E402
from paper_formulas import ALL_CURVES  # noqa: E402
from strategies import SEEDS, generator, rows_with_gaps  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")  # between Keras 3.15, torch and numpy 2.4
CLASSES = 5
SHAPES = st.sampled_from([(6,), (3, 4), (2, 3, 2)])


def draw(seed: int, shape: tuple[int, ...], low: float = -14.0, high: float = 16.0) -> tuple[Tensor, Tensor]:
    """Logits with the classes last, and labels; the gaps go from hopeless to certain."""
    count = int(np.prod(shape))
    gaps = low + (high - low) * torch.rand(count, generator=generator(seed), dtype=torch.float64)
    logits, labels = rows_with_gaps(gaps, CLASSES, seed)
    return logits.float().reshape(*shape, CLASSES), labels.reshape(shape)


def gradient(loss: object, labels: object, predictions: Tensor) -> Tensor:
    inside = predictions.detach().clone().requires_grad_()
    loss(labels, inside).backward()  # type: ignore[operator]
    return inside.grad


@given(SEEDS, SHAPES, st.sampled_from(["sum_over_batch_size", "sum", "none"]), st.booleans())
@settings(max_examples=20)
def test_the_cross_entropy_curve_is_the_loss_of_keras(seed, shape, reduction, weighted):
    logits, labels = draw(seed, shape)
    weight = torch.rand(shape, generator=generator(seed)) if weighted else None
    ours = CurveLoss(curves.cross_entropy(), from_logits=True, reduction=reduction)
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    torch.testing.assert_close(ours(labels, logits, weight), theirs(labels, logits, weight), rtol=1e-5, atol=1e-6)
    one_hot = torch.nn.functional.one_hot(labels, CLASSES).float()
    ours = CurveLoss(curves.cross_entropy(), from_logits=True, reduction=reduction, label_smoothing=0.1)
    theirs = keras.losses.CategoricalCrossentropy(from_logits=True, reduction=reduction, label_smoothing=0.1)
    torch.testing.assert_close(ours(one_hot, logits, weight), theirs(one_hot, logits, weight), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours(labels, logits, weight), theirs(one_hot, logits, weight), rtol=1e-5, atol=1e-6)


@given(SEEDS, SHAPES, st.sampled_from(ALL_CURVES))
@settings(max_examples=30)
def test_every_curve_is_the_packages_own_in_value_and_gradient(seed, shape, curve):
    logits, labels = draw(seed, shape)
    loss = CurveLoss(curve, from_logits=True)

    def own(labels: Tensor, logits: Tensor) -> Tensor:
        return curve_loss(logits.movedim(-1, 1), labels, curve)

    torch.testing.assert_close(loss(labels, logits), own(labels, logits))
    torch.testing.assert_close(gradient(loss, labels, logits), gradient(own, labels, logits))


@given(SEEDS, st.sampled_from([curves.encouraging(0.5), curves.encouraging(1.0), curves.focal(2.0)]))
@settings(max_examples=20)
def test_a_softmax_at_the_end_of_the_model_changes_neither_value_nor_gradient(seed, curve):
    """Down to probabilities that Keras's own loss clips: 1 - p comes from the rivals, and is exact."""
    logits, labels = draw(seed, (8,), high=40.0)
    of_logits, of_probabilities = CurveLoss(curve, from_logits=True), CurveLoss(curve)
    torch.testing.assert_close(of_probabilities(labels, logits.softmax(-1)), of_logits(labels, logits),
                               rtol=1e-4, atol=1e-5)
    ended = gradient(lambda labels, z: of_probabilities(labels, z.softmax(-1)), labels, logits)
    torch.testing.assert_close(ended, gradient(of_logits, labels, logits), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("as_given", [lambda t: t, lambda t: t[..., None], lambda t: t.float(), lambda t: t.numpy(),
                                      lambda t: t.int(), lambda t: t.tolist()])
def test_labels_come_in_every_form_that_keras_takes(as_given):
    logits, labels = draw(0, (6,))
    loss = EncouragingLoss(log_end=0.5, from_logits=True)
    torch.testing.assert_close(loss(as_given(labels), logits), encouraging_loss(logits, labels, log_end=0.5))


def test_ignored_labels_are_left_out_of_the_mean_as_in_keras():
    logits, labels = draw(1, (2, 7))
    labels[0, :3] = 255
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)
    ours = CurveLoss(curves.cross_entropy(), from_logits=True, ignore_class=255)
    torch.testing.assert_close(ours(labels, logits), theirs(labels, logits))
    el = EncouragingLoss(log_end=0.5, from_logits=True, ignore_class=255)
    kept = labels != 255
    torch.testing.assert_close(el(labels, logits), encouraging_loss(logits[kept], labels[kept], log_end=0.5))
    assert gradient(el, labels, logits)[~kept].abs().max() == 0


def test_the_classes_may_stand_on_another_axis():
    logits, labels = draw(2, (2, 4, 3))
    first = EncouragingLoss(log_end=0.5, from_logits=True, axis=1)
    last = EncouragingLoss(log_end=0.5, from_logits=True)
    one_hot = torch.nn.functional.one_hot(labels, CLASSES).float()
    torch.testing.assert_close(first(labels, logits.movedim(-1, 1)), last(labels, logits))
    torch.testing.assert_close(first(one_hot.movedim(-1, 1), logits.movedim(-1, 1)), last(labels, logits))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("curve", [curves.cross_entropy(), curves.encouraging(1.0)], ids=repr)
def test_small_probabilities_of_16_bits_have_a_loss_and_a_gradient(dtype, curve):
    """float16 has no normal number below 6e-5, but smaller numbers all the same."""
    probabilities = torch.tensor([[1e-6, 0.4, 0.6], [1e-5, 0.9, 0.1]]).to(getattr(torch, dtype))
    labels = torch.zeros(2)
    loss = CurveLoss(curve, dtype=dtype, reduction="none")(labels, probabilities)
    exact = CurveLoss(curve, reduction="none")(labels, probabilities.float())
    assert loss.dtype == probabilities.dtype
    torch.testing.assert_close(loss, exact.to(loss.dtype))
    scaled = CurveLoss(curve, dtype=dtype, reduction="sum")
    slope = gradient(lambda labels, p: 1e-3 * scaled(labels, p), labels, probabilities)
    assert (slope[:, 0] < -10).all()


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype("float32"), labels


def network(loss: object, softmax: bool) -> object:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(32, activation="relu"),
                              keras.layers.Dense(10, activation="softmax" if softmax else None)])
    model.compile(keras.optimizers.SGD(0.3), loss=loss, metrics=["accuracy"])
    return model


@pytest.mark.parametrize("softmax", [True, False])
def test_a_model_trains_below_zero_and_is_saved_with_its_loss(tmp_path: Path, softmax: bool):
    images, labels = digits()
    model = network(EncouragingLoss(log_end=0.5, from_logits=not softmax), softmax)
    history = model.fit(images, labels, epochs=4, batch_size=64, verbose=0, validation_split=0.1,
                        callbacks=[keras.callbacks.EarlyStopping(patience=2), keras.callbacks.TerminateOnNaN()]).history
    assert history["loss"][-1] < 0 < history["loss"][0]
    assert history["accuracy"][-1] > 0.85
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is EncouragingLoss
    assert loaded.loss.curve == curves.encouraging(0.5)
    assert loaded.evaluate(images, labels, verbose=0) == pytest.approx(model.evaluate(images, labels, verbose=0))
    outputs = torch.as_tensor(model.predict(images, verbose=0))
    own = encouraging_loss(outputs.log() if softmax else outputs, torch.as_tensor(labels), log_end=0.5)
    assert loaded.evaluate(images, labels, verbose=0)[0] == pytest.approx(own.item(), abs=1e-5)


def test_weights_of_classes_and_examples_are_those_of_keras():
    """A weight of 0 for a class is the same as leaving its examples out of the sum."""
    logits, labels = draw(3, (12,))
    loss = EncouragingLoss(log_end=0.5, from_logits=True)
    weight = (labels != 0).float()
    kept = encouraging_loss(logits[labels != 0], labels[labels != 0], log_end=0.5, reduction="sum")
    torch.testing.assert_close(loss(labels, logits, weight), kept / len(labels))


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_a_config_makes_the_same_loss(curve):
    loss = CurveLoss(curve, from_logits=True, ignore_class=3, label_smoothing=0.1, axis=1, reduction="sum", name="mine")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    assert again.curve == curve


def test_a_config_follows_a_change_of_the_curve():
    loss = EncouragingLoss(log_end=0.5)
    loss.curve = curves.encouraging(1.0)
    assert EncouragingLoss.from_config(loss.get_config()).curve == curves.normal()


def test_a_curve_of_ones_own_trains_and_says_at_loading_what_to_do(tmp_path: Path):
    images, labels = digits()
    model = network(CurveLoss(curves.from_probability(lambda p: -p.log()), from_logits=True), softmax=False)
    model.fit(images[:64], labels[:64], epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    with pytest.raises(CurveError, match="compile=False"):
        keras.saving.load_model(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras", compile=False).count_params() == model.count_params()


@dataclass(frozen=True, repr=False)
class Mine(curves.focal):
    """A curve with the name of another one and a formula of its own."""

    def value(self, gap: Tensor) -> Tensor:
        return self.gamma * torch.nn.functional.softplus(-gap)

    def pull(self, gap: Tensor) -> Tensor:
        return self.gamma * torch.sigmoid(-gap)


def test_a_subclass_of_a_curve_is_not_loaded_as_the_curve_it_is_made_from():
    config = CurveLoss(Mine(5.0), from_logits=True).get_config()
    with pytest.raises(CurveError, match=r"one's own \(Mine\).*compile=False"):
        CurveLoss.from_config(config)
    with pytest.raises(CurveError, match="compile=False"):
        CurveLoss.from_config({**config, "curve": "focal"})  # a class that is called as a curve of the catalogue is


def test_what_is_no_curve_is_refused():
    with pytest.raises(DtypeError, match="curve"):
        CurveLoss("focal")
    with pytest.raises(ArgumentError, match="label_smoothing"):
        EncouragingLoss(label_smoothing=2.0)


@pytest.mark.parametrize(("arguments", "labels", "words"), [
    ({"axis": 2}, [0, 1], r"axis=2 for predictions of shape \(2, 3\).*from -2 to 1"),
    ({"axis": "last"}, [0, 1], "axis='last': expected an integer"),
    ({"ignore_class": 255.0}, [0, 1], "ignore_class=255.0: expected an integer"),
    ({"ignore_class": 2}, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "ignore_class=2 with labels.*sample_weight 0"),
])
def test_errors_speak_of_the_arguments_of_keras(arguments, labels, words):
    with pytest.raises(ArgumentError, match=words):
        EncouragingLoss(**arguments)(labels, torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize("labels", [[1, 0], [[1.0], [0.0]]])
def test_one_sigmoid_is_no_classifier_with_two_classes(labels):
    with pytest.raises(ArgumentError, match=r"one class.*Dense\(2, activation='softmax'\)"):
        EncouragingLoss()(labels, torch.tensor([[0.8], [0.3]]))


def test_a_backend_that_is_missing_is_answered_with_what_to_set():
    code = "import sys; sys.modules['tensorflow'] = None; import encouraging.integrations.keras"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "KERAS_BACKEND": "tensorflow"},
                          capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: Keras could not import its backend, TensorFlow: set")


def test_another_backend_is_refused_with_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ArgumentError, match=r"its jax backend: expected torch.*KERAS_BACKEND=torch"):
        EncouragingLoss()
