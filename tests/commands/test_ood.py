"""``encouraging ood``: a trained run against images that nothing here was tuned on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from encouraging.cli import app
from encouraging.data import load
from encouraging.engine.files import read_json
from encouraging.recipes.trained import load_trained
from encouraging.report.detection_words import below_chance, best_words
from page_text import PageText
from tiny_images import write_mnist

RANDOM = np.random.default_rng(0)


def call(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["ood", *map(str, words), "--device", "cpu"], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


def test_its_own_test_images_give_the_numbers_of_training(trained: Path, tmp_path: Path) -> None:
    """The recipe's out-of-distribution set is the digits themselves: bytes from 0 to 16 there, floats here."""
    images, _ = load("digits", "test")
    np.savez(tmp_path / "digits.npz", images=images[:, 0].numpy() / 16)
    run = trained / "ce/seed0"
    said = call(run, "--data", tmp_path / "digits.npz", "--json", tmp_path / "o.json")
    assert "597 images, the first of 8 x 8 pixels and grey" in said
    found = json.loads((tmp_path / "o.json").read_text())["scores"]
    kept = read_json(run / "final.json")["ood"]
    for score in ("msp", "min_energy", "free_energy", "max_probability"):
        for key in ("auroc", "aupr"):
            assert found[score][key] == pytest.approx(kept[score][key], abs=2)
        assert found[score]["auroc"] == pytest.approx(50, abs=1)


def test_a_folder_of_other_sizes_and_modes_works_and_makes_a_page(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, shape in enumerate([(64, 48, 3), (9, 33), (20, 20, 4)]):
        Image.fromarray(RANDOM.integers(0, 256, shape, dtype=np.uint8)).save(folder / f"{number}.png")
    said = call(trained / "el/seed0", "--data", folder, "-o", tmp_path / "page.html")
    for word in ("photos: 3 images", "MSP", "MaxLogit", "log-odds of the top class", "AUPR_OUT", "hit el seed 0"):
        assert word in said, word
    page = PageText((tmp_path / "page.html").read_text())
    assert ["score", "AUROC", "AUPR", "FPR95"] in page.cells  # without the name of the only model in every row
    assert any("which the model was not trained on" in words for words in page.words)
    assert "panel is scaled" not in " ".join(page.words)
    assert "the first one is made grey, resized and cut to the middle" in said
    assert "These numbers are rough: each of the 3 images of photos is 33% of all." in said


def test_scores_are_those_of_the_fitted_images(trained: Path, tmp_path: Path) -> None:
    array = RANDOM.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "noise.npz", images=array)
    call(trained / "ce/seed0", "--data", tmp_path / "noise.npz", "--json", tmp_path / "o.json", "--name", "n")
    run = load_trained(trained / "ce/seed0", torch.device("cpu"))
    with torch.no_grad():
        inside = run.unit_model(run.task.unit(run.task.test[0])).amax(1)
        outside = run.unit_model(torch.from_numpy(array)[:, None].float() / 255).amax(1)
    auroc = 100 * (inside[:, None] > outside).double().mean().item()
    found = json.loads((tmp_path / "o.json").read_text())
    assert (found["name"], found["images"]) == ("n", 40)
    assert found["scores"]["min_energy"]["auroc"] == pytest.approx(auroc, abs=0.02)
    assert found["scores"]["min_energy"]["openood"]["AUROC"] == found["scores"]["min_energy"]["auroc"]


@pytest.mark.parametrize(("words", "message"), [
    (["--data", "nowhere"], "nowhere: no such file or folder"),
    (["--data", "fashion-mnist"], "Did you mean 'fashion_mnist'?"),
    (["--data", ".", "-o", "no/where.html"], "there is no folder no"),
])
def test_what_is_wrong_is_said_before_anything_is_computed(trained: Path, words: list[str], message: str) -> None:
    assert message in call(trained / "ce/seed0", *words, code=2)


def test_a_folder_that_is_no_run_is_refused(trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8), dtype=np.uint8))
    said = call(trained, "--data", tmp_path / "a.npz", code=2)
    assert "expected the directory of a finished run" in said
    assert "Finished runs are below it, such as" in said
    assert "There is no such folder" in call(tmp_path / "nowhere", "--data", tmp_path / "a.npz", code=2)
    said = call(tmp_path / "a.npz", "--data", tmp_path / "a.npz", code=2)
    assert "It is a file. Logits from elsewhere are read by `encouraging diagnose`" in said
    assert "train it with" in call(tmp_path, "--data", tmp_path / "a.npz", code=2)


def test_the_page_and_the_numbers_are_two_files(trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "grey.npz", images=RANDOM.random((3, 8, 8)))
    said = call(trained / "ce/seed0", "--data", tmp_path / "grey.npz", "--out", tmp_path / "o", "--json",
                tmp_path / "." / "o", code=2)
    assert "the page and the numbers cannot be one file" in said
    assert not (tmp_path / "o").exists()


def test_missing_data_is_said_in_the_words_of_this_command(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "ce/seed0", tmp_path / "seed0"))
    config = read_json(run / "config.json")
    config["recipe"]["data"] = "mnist"
    (run / "config.json").write_text(json.dumps(config))
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8), dtype=np.uint8))
    said = call(run, "--data", tmp_path / "a.npz", "--datasets", tmp_path / "nothing", code=2)
    assert "or point --datasets or ENCOURAGING_DATA at a directory" in said
    assert "Fetch them with `encouraging run RECIPE --download`" in said
    assert "--data " not in said


def test_the_page_begins_with_the_answer_and_the_columns_have_names_of_their_own(trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "noise.npz", x=RANDOM.integers(0, 256, (40, 8, 8), dtype=np.uint8), y=np.zeros(40))
    said = call(trained / "ce/seed0", "--data", tmp_path / "noise.npz", "-o", tmp_path / "page.html", "--json",
                tmp_path / "o.json")
    assert "597 test images against 40 images of noise" in said
    for words in ("OpenOOD's FPR@95 is the share of test images", "the paper's FPR95 is the share of new images"):
        assert words in said
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["test_images"] == 597
    auroc = found["scores"]["max_probability"]["auroc"]
    page = (tmp_path / "page.html").read_text()
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings[0].startswith("Out-of-distribution detection")
    assert "Margins" in headings
    lead = page.index('class="lead"')
    assert (f"AUROC {auroc:.2f}%: how well the log-odds of the top class separates 40 images of noise from 597 test "
            "images.") in page[lead : lead + 300]
    assert page.index("AUROC, noise") < page.index("negative log-likelihood")


def test_the_columns_mean_what_the_lines_below_them_say(trained: Path, tmp_path: Path) -> None:
    array = RANDOM.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "noise.npz", images=array)
    call(trained / "ce/seed0", "--data", tmp_path / "noise.npz", "--json", tmp_path / "o.json")
    run = load_trained(trained / "ce/seed0", torch.device("cpu"))
    with torch.no_grad():
        inside = run.unit_model(run.task.unit(run.task.test[0])).amax(1).sort().values
        outside = run.unit_model(torch.from_numpy(array)[:, None].float() / 255).amax(1).sort().values
    found = json.loads((tmp_path / "o.json").read_text())["scores"]["min_energy"]
    rejected = (inside <= outside[37]).double().mean().item()  # 38 of 40 new images are detected
    accepted = (outside >= inside[29]).double().mean().item()  # 568 of 597 test images are accepted
    assert found["openood"]["FPR@95"] == pytest.approx(100 * rejected, abs=0.2)
    assert found["fpr95"] == pytest.approx(100 * accepted, abs=0.2)


def test_a_dataset_is_taken_by_its_name(trained: Path, tmp_path: Path) -> None:
    """The digits again, as test_its_own_test_images_give_the_numbers_of_training has them from a file."""
    run = trained / "ce/seed0"
    said = call(run, "--data", "digits", "--json", tmp_path / "o.json")
    assert "597 test images against 597 images of digits" in said
    assert "recoloured" not in said
    assert "the first one is" not in said
    assert "rough" not in said
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["name"] == "digits"
    assert found["scores"]["min_energy"]["auroc"] == pytest.approx(50, abs=1)
    write_mnist(tmp_path / "data")
    said = call(run, "--data", "fashion_mnist", "--datasets", tmp_path / "data", "--name", "clothes")
    assert "8 images of clothes" in said
    assert "the first one is resized" in said


def test_scores_have_the_same_names_in_the_terminal_and_on_the_page(trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "noise.npz", images=RANDOM.integers(0, 256, (40, 8, 8), dtype=np.uint8))
    said = call(trained / "el/seed0", "--data", tmp_path / "noise.npz", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for name in ("MaxLogit (minus the lowest energy)", "Energy (minus the free energy)", "log-odds of the top class",
                 "MSP (highest probability in float32)"):
        assert name in said
        assert name in page
    assert ">highest probability<" not in page  # log-odds are none


@pytest.mark.parametrize(("arm", "name"), [("ce", "the log-odds of the top class"),
                                           ("el", "MaxLogit (minus the lowest energy)")])
def test_the_score_is_chosen_by_the_loss_and_not_by_the_result(trained: Path, tmp_path: Path, arm: str,
                                                                name: str) -> None:
    np.savez(tmp_path / "noise.npz", images=RANDOM.integers(0, 256, (40, 8, 8), dtype=np.uint8))
    said = call(trained / arm / "seed0", "--data", tmp_path / "noise.npz", "-o", tmp_path / "page.html")
    assert f"Recommended after this loss: {name}, AUROC" in said
    assert f"how well {name} separates" in (tmp_path / "page.html").read_text()


def test_the_best_score_is_named_as_such_and_worse_than_chance_as_such() -> None:
    detection = {"examples": 400, "scores": {"min_energy": {"auroc": 40.0}, "msp": {"auroc": 60.0},
                                             "max_probability": {"auroc": 49.5}}}
    assert best_words(detection, "min_energy") == \
        "The best score on these data is MSP (highest probability in float32), 60.00%, which is known only afterwards."
    assert best_words(detection, "msp") == ""
    (words,) = below_chance(detection, 400)
    assert words.startswith("The AUROC of MaxLogit (minus the lowest energy) is below 50%, worse than chance")
    assert not list(below_chance({**detection, "examples": 5}, 400))  # five examples decide nothing


def test_scores_that_are_as_good_at_the_digits_shown_are_named_together() -> None:
    rates = {"min_energy": 61.2, "free_energy": 60.0, "max_probability": 64.4668, "msp": 64.4712}
    detection = {"examples": 100, "scores": {score: {"auroc": value} for score, value in rates.items()}}
    assert best_words(detection, "min_energy") == (
        "The best scores on these data are the log-odds of the top class and MSP (highest probability in float32), "
        "64.47%, which is known only afterwards.")
    assert best_words(detection, "max_probability") == ""
