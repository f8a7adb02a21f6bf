"""A run ends with its report, and ``encouraging report`` writes one from its records, or says why it cannot."""

from __future__ import annotations

import io
import statistics
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console
from typer.testing import CliRunner

import synthetic_runs as synthetic
from encouraging import cli
from encouraging.commands.run import run_recipe
from encouraging.engine.records import collect, read_records
from encouraging.errors import RunError
from encouraging.recipes import read_recipe
from encouraging.report import page
from encouraging.report.numbers import show
from encouraging.report.page import write_report
from page_elements import Reading


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A real run of two arms and three seeds, and what it printed."""
    out, said = tmp_path_factory.mktemp("runs"), io.StringIO()
    code = run_recipe("digits", arms=("ce", "el_1"), seeds="3", overrides=["train.epochs=2"], device="cpu",
                             threads=1, jobs=1, out=out, console=Console(file=said, width=200))
    assert code == 0
    return out, said.getvalue()


def test_where_figures_cannot_be_written_their_folder_is_named_and_the_page_is_there(tmp_path):
    recipe = read_recipe("digits")
    records = [synthetic.record("digits", "ce", 0, config=recipe.config("ce", 0))]
    (tmp_path / "figures").write_text("a file")
    with pytest.raises(RunError, match=r"figures: the figures cannot be written .*report\.html is there"):
        write_report(records, tmp_path / "report.html", figures=tmp_path / "figures")
    assert (tmp_path / "report.html").is_file()


def test_figures_alone_are_written_for_papers(tmp_path):
    recipe = read_recipe("digits")
    records = [synthetic.record("digits", arm, seed, config=recipe.config(arm, seed), outside=("svhn",))
               for arm in ("ce", "el_1") for seed in range(2)]
    written = write_report(records, tmp_path / "new" / "report.html", figures=tmp_path / "figures")
    names = {path.name for path in written[1:]}
    assert {"claims.svg", "claims.png", "margins.svg", "ood-roc-1.png", "gradient-mass.svg", "training.png"} <= names
    for path in written[1:]:
        if path.suffix == ".svg":
            assert "var(--" not in path.read_text()
            ET.parse(path)
        else:
            assert path.read_bytes()[:4] == b"\x89PNG"


def test_a_run_ends_with_its_report(trained):
    out, said = trained
    path = out / "digits" / "report.html"
    assert f"report: {path}" in said
    read = Reading(path.read_text())
    words = " ".join(read.words)
    assert "encouraging run digits --set train.epochs=2 --arm ce --arm el_1 --seeds 3" in words
    assert "el_1 beats ce on the median margin" in words
    accuracy = [r.final["accuracy"] for r in read_records(out) if r.arm == "el_1"]
    assert show(statistics.fmean(accuracy)) in words


def test_a_report_that_fails_does_not_fail_the_run(trained, monkeypatch):
    out, _ = trained

    def broken(*_, **__):
        raise RuntimeError("no ink")

    monkeypatch.setattr(page, "write_report", broken)
    said = io.StringIO()
    code = run_recipe("digits", arms=("ce", "el_1"), seeds="3", overrides=["train.epochs=2"], device="cpu",
                             threads=1, jobs=1, out=out, console=Console(file=said, width=200))
    assert code == 0
    assert "the report could not be written: no ink" in said.getvalue()


def test_the_command_line(trained, tmp_path):
    out, _ = trained
    collect(out, tmp_path / "records")
    done = CliRunner().invoke(cli.app, ["report", str(tmp_path / "records"), "-o", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(("runs", "out", "words"), [
    ("nothing", "r.html", "expected a directory of runs"),
    ("empty", "r.html", "no finished run"),
    ("runs", ".", "this is a folder"),
    ("runs", "file/r.html", "cannot be written"),
])
def test_what_cannot_be_done_is_said_in_words(trained, tmp_path, monkeypatch, runs, out, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "runs").symlink_to(trained[0])
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["report", runs, "-o", out])
    assert done.exit_code == 2
    assert words in done.output
