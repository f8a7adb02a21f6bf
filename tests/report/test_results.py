"""The page of results: made from records alone."""

from __future__ import annotations

import json
import re

import pytest

from encouraging.report.markdown_board import plain_text
from encouraging.report.results import results_page
from synthetic_runs import write_mnist_runs


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")


def test_the_page_puts_ours_beside_the_papers(runs):
    page = results_page(runs)
    for words in ("## mnist", "| el | 5 | 99.57 ± 0.02 (paper 99.56) |", "99.42 -> 99.56", "**reproduced**", "a card"):
        assert words in page, words
    assert results_page(runs) == page
    assert f"The records are in `{runs.name}/`" in page


def test_runs_with_other_settings_than_the_recipes_are_named(runs):
    assert "Departures" not in results_page(runs)
    path = runs / "mnist/el/seed0/config.json"
    config = json.loads(path.read_text())
    config["asked"]["train"][0]["precision"] = "fp32"
    path.write_text(json.dumps(config))
    assert "there train.precision = 'bf16', here 'fp32'" in results_page(runs)


@pytest.mark.hardening(10)
def test_text_of_unknown_origin_is_shown_as_it_is(runs):
    for path in runs.rglob("timing.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {
            "device": "# a | card\n\n## <script>alert(1)</script> [x](y)", "torch": "2.11|`+*cu*`"}))
    path = runs / "mnist/el/seed0/config.json"
    config = json.loads(path.read_text())
    config["asked"]["train"][0]["precision"] = "<b>|*x*"
    path.write_text(json.dumps(config))
    page = results_page(runs)
    assert "<script>" not in page
    assert "<b>" not in page
    assert re.findall(r"^## (.*)", page, re.MULTILINE) == ["Scoreboard", "mnist"]
    assert "\\# a \\| card ## &lt;script&gt;alert(1)&lt;/script&gt; \\[x\\](y); torch 2.11\\|\\`+\\*cu\\*\\`;" in page
    assert "&lt;b&gt;\\|\\*x\\*" in page


@pytest.mark.hardening(10)
def test_ordinary_names_are_not_escaped():
    for name in ("NVIDIA H200", "AMD EPYC (2 cores)", "torch 2.11.0+cu130", "there train.batch_size = 64, here 32"):
        assert plain_text(name) == name
