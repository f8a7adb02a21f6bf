"""``encouraging.compare`` and its command: the engine's verdicts for anyone's numbers, in their own words."""

from __future__ import annotations

import csv
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import encouraging
from encouraging.cli import app
from encouraging.engine.records import read_records
from encouraging.errors import ArgumentError, DataError
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.metric_book import book_of
from encouraging.recipes import read_recipe
from synthetic_runs import SCORES, write_mnist_runs

EVIL = "<script>alert(1)</script>"


def write_csv(path: Path, numbers: dict[str, list[float]], metric: str = "accuracy") -> Path:
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arm", "seed", metric])
        rows.writerows((arm, seed, number) for arm, values in numbers.items() for seed, number in enumerate(values))
    return path


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """Ten lines of numbers: those of the runs in ``write_mnist_runs``."""
    return write_csv(tmp_path / "numbers.csv", SCORES, "best_accuracy")


def test_the_verdict_is_the_engines_for_the_same_numbers(ten, tmp_path):
    """The same ten numbers as runs of a recipe and as lines of a file."""
    records = read_records(write_mnist_runs(tmp_path / "runs"))
    recipe = read_recipe("mnist")
    recipe = recipe.model_copy(update={"claims": recipe.claims[:1]})
    theirs, = claim_rows(recipe, finals_of("mnist", records), book_of(records))
    found = encouraging.compare(ten, "best_accuracy", expected=recipe.claims[0].paper_difference)
    assert found["el"].comparison == theirs.comparison
    assert (found["el"].verdict, theirs.verdict) == ("holds", "reproduced")
    assert found["el"].needed == theirs.needed


def test_a_script_of_ten_lines_is_judged_in_three_seconds_and_without_torch(ten, tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = ("import sys\nfrom encouraging.cli import app\n"
            "try: app()\nfinally: assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, "compare", ten, "--metric", "best_accuracy", "-o",
                           tmp_path / "page.html"], capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "holds" in done.stdout
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 3  # seconds of the processor: machines are shared


def test_the_page_has_the_readers_own_words(tmp_path):
    numbers = {"our old model": [1.0, 1.1, 0.9, 1.05], "new <b>": [0.5, 0.7, 0.45, 0.6], "other": [1.0, 1.2, 0.8, 1.0]}
    found = encouraging.compare(numbers, "seconds per step", better="lower", expected=1.0, title="Is it faster?")
    assert [row.verdict for row in found] == ["holds", "no difference"]
    page = found.page()
    for words in ("<h1>Is it faster?</h1>", "new &lt;b&gt; beats our old model on seconds per step (lower is better)",
                  '<p class="verdict no-difference">no difference</p>', "<dt>our old model → new &lt;b&gt;</dt>"):
        assert words in page, words
    links = re.findall(r'<th scope="row" role="rowheader"><a href="#([^"]+)"', page)
    assert links == ["claim-1", "claim-2"]
    assert all(f'<article class="claim" id="{link}">' in page for link in links)
    for words in ("paper", "Cross-entropy", "recipe"):
        assert words not in page.split("</style>")[1].split("<script>")[0]
    assert "<h1>Is it faster?</h1>" in found.write(tmp_path / "page.html").read_text()


def test_hostile_names_stay_text():
    page = encouraging.compare({EVIL: [1.0, 2.0, 3.0], "b": [2.0, 3.5, 3.9]}, EVIL, title=EVIL).page()
    assert page.count("<script") == 1  # the page's own
    assert "alert(1)</script>" not in page


def test_every_other_arm_and_metric_is_a_claim_and_holm_goes_over_all(tmp_path):
    rows = [{"arm": arm, "seed": seed, "a": place + seed / 10, "b": seed * place / 7} for place, arm in enumerate("xyz")
            for seed in range(4)]
    found = encouraging.compare(rows, ["a", "b"], baseline="y")
    assert [(row.claim.metric, row.claim.arm, row.claim.beats) for row in found] == [
        ("a", "x", "y"), ("a", "z", "y"), ("b", "x", "y"), ("b", "z", "y")]
    assert len(found) == 4
    assert {round(row.comparison.level, 4) for row in found} <= {0.9875, 0.9833, 0.975, 0.95}
    with pytest.raises(KeyError):
        found["nobody"]


def test_seeds_that_one_arm_lacks_are_left_out_and_counted():
    found = encouraging.compare({"ce": {0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3}, "el": {1: 2.0, 2: 2.3, 3: 2.1, 9: 7.0}})
    assert found["el"].pairs.seeds == [1, 2, 3]
    assert found["el"].comparison.n == 3


@pytest.mark.parametrize(("numbers", "how", "words"), [
    ({"ce": [1.0]}, {}, "^numbers of the arm ce alone; expected two arms or more"),
    ({}, {}, "^no numbers; expected two arms or more"),
    ({"ce": {0: 1.0}, "el": {1: 1.0}}, {}, "no seed has numbers of ce and of another arm"),
    ({"ce": [1.0], "ours": [1.0]}, {"baseline": "our"},
     "baseline 'our': expected one of the arms ce, ours. Did you mean 'ours'?"),
    ({"ce": [1.0], "el": [1.0]}, {"better": "low"}, "expected 'higher' or 'lower'. Did you mean 'lower'?"),
    ({"ce": [1.0], "el": [1.0]}, {"expected": -1.0}, "expected = -1.0: expected a number above 0"),
    ({"ce": [1.0], "el": [1.0]}, {"overlap": float("nan")}, "overlap = nan"),
    ({"ce": [1.0], "el": [1.0]}, {"metric": ["x", "x"]}, "expected each name once"),
])
def test_what_cannot_be_compared_is_refused_in_words(numbers, how, words):
    with pytest.raises((DataError, ArgumentError), match=words.replace("?", r"\?")):
        encouraging.compare(numbers, **how)


@pytest.mark.parametrize(("content", "words", "message"), [
    ("arm,seed,accuracy\nce,0,1\n", [], "numbers.csv: numbers of the arm ce alone"),
    ("arm,seed,accuracy\n", [], "numbers.csv: no numbers; expected two arms or more, with one row per arm and seed"),
    ("arm,seed,accuracy\nce,0,1\nel,0,one\n", [], "line 3: accuracy is 'one'"),
    ("arm,seed,score\nce,0,1\n", [], "no 'accuracy'"),
    ("arm,seed,accuracy\nce,0,1\nel,0,2\n", ["--expected", "0"], "expected = 0.0"),
    ("arm,seed,accuracy\nce,0,1\nel,0,2\n", ["-o", "numbers.csv"], "read by the command itself"),
    ("arm,seed,accuracy\nce,0,1\nel,0,2\n", ["-o", "."], "a folder"),
])
def test_a_bad_file_ends_with_2_and_one_line(tmp_path, monkeypatch, content, words, message):
    monkeypatch.chdir(tmp_path)
    Path("numbers.csv").write_text(content)
    done = CliRunner().invoke(app, ["compare", "numbers.csv", "--metric", "accuracy", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.csv"]
    assert Path("numbers.csv").read_text() == content


def test_the_command_prints_and_writes(ten, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["compare", str(ten), "--metric", "best_accuracy", "--baseline", "el", "--title",
                                    "Mine"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "ce beats el: best_accuracy" in done.output
    assert "fails" in done.output
    assert "wrote comparison.html" in done.output
    assert "<h1>Mine</h1>" in Path("comparison.html").read_text()


@pytest.mark.parametrize("width", [380, 1200])
def test_the_page_is_at_home_in_a_browser(open_page, ten, tmp_path, width):
    path = encouraging.compare(ten, "best_accuracy", title="long " * 30).write(tmp_path / "page.html")
    shown = open_page(path, viewport=(width, 900))
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.inner_text(".verdict") == "holds"
    apart_page = encouraging.compare(apart(), "accuracy").write(tmp_path / "apart.html")
    assert open_page(apart_page, viewport=(width, 900)).evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scale", [1e200, 1e-320])
def test_numbers_at_the_ends_of_their_range_are_compared(scale):
    """Their spread overflows, or has more decimals than can be shown."""
    found = encouraging.compare({"ce": [1 * scale, -1 * scale, 1 * scale], "el": [-1 * scale, 1 * scale, 0.0]}, "loss")
    assert found["el"].verdict == "undecided"
    assert "el beats ce" in found.page()


@pytest.mark.parametrize(("metric", "how", "words"), [
    (3, {}, "metric: 3: expected the name of a column"),
    (["loss", ""], {}, "metric: '': expected the name of a column"),
    ("loss", {"expected": "much"}, "expected = 'much': expected a number above 0"),
    ("loss", {"overlap": "a half"}, "overlap = 'a half': expected a number above 0"),
])
def test_arguments_of_another_type_are_refused_in_words(metric, how, words):
    with pytest.raises(ArgumentError, match=words):
        encouraging.compare({"ce": [1.0, 2.0], "el": [2.0, 3.0]}, metric, **how)


BOTH = [{"arm": arm, "seed": seed, "accuracy": 90 + gain * seed / 9 + gain, "loss": 0.5 - gain / 9 - seed * gain / 99}
        for arm, gain in (("ce", 0), ("el", 1)) for seed in range(4)]


def test_every_metric_has_a_direction_and_an_expected_difference_of_its_own():
    found = encouraging.compare(BOTH, ["accuracy", "loss"], better={"loss": "lower"}, expected={"loss": 0.02})
    assert [row.verdict for row in found] == ["holds", "holds"]
    assert [(row.claim.better, row.claim.expected) for row in found] == [("higher", None), ("lower", 0.02)]
    assert not found.notes


@pytest.mark.parametrize(("how", "words"), [
    ({"better": "lower"}, "better = 'lower' for 2 metrics .accuracy, loss.: .* as better={'loss': 'lower'}"),
    ({"expected": 0.3}, "expected = 0.3 for 2 metrics .* as expected={'accuracy': 0.3}"),
    ({"better": {"los": "lower"}}, "better: 'los' is not one of the metrics accuracy, loss. Did you mean 'loss'"),
    ({"better": {"loss": "low"}}, "better.'loss'. = 'low': expected 'higher' or 'lower'"),
    ({"expected": {"loss": 0}}, "expected.'loss'. = 0: expected a number above 0"),
])
def test_one_setting_for_several_metrics_is_refused(how, words):
    with pytest.raises(ArgumentError, match=words):
        encouraging.compare(BOTH, ["accuracy", "loss"], **how)


def test_a_loss_without_a_direction_is_not_judged_without_a_word():
    found = encouraging.compare(BOTH, ["accuracy", "loss"])
    assert found.notes == ["loss is judged as higher is better. Where lower is better, say so: --metric loss:lower, in "
                           "Python better={'loss': 'lower'}"]
    assert found.notes[0] in str(found)
    assert "loss is judged as higher is better" in found.page()
    assert not encouraging.compare(BOTH, "loss", better="higher").notes


@pytest.mark.parametrize(("words", "verdicts", "refusal"), [
    (["--metric", "accuracy", "--metric", "loss:lower:0.02"], 2, ""),
    (["--metric", "accuracy", "--metric", "loss:lower", "--expected", "loss=0.02", "--expected", "accuracy=1"], 2, ""),
    (["--metric", "loss", "--lower", "--expected", "0.02"], 1, ""),
    (["--metric", "loss:lower", "--lower"], 1, ""),
    (["--metric", "accuracy", "--metric", "loss", "--expected", "0.3"], 0, "say for which, as --expected accuracy=0.3"),
    (["--metric", "accuracy", "--metric", "loss", "--lower"], 0, "say for which, as --metric loss:lower"),
    (["--metric", "loss:higher", "--lower"], 0, "say different things"),
    (["--metric", "loss:lower:much"], 0, "'much' is no number"),
    (["--metric", "loss:lower:0.1", "--expected", "0.2"], 0, "of loss is given twice"),
    (["--metric", "loss", "--expected", "accuracy=0.2"], 0, "'accuracy' is not one of the metrics loss"),
])
def test_the_command_takes_settings_per_metric(tmp_path, monkeypatch, words, verdicts, refusal):
    monkeypatch.chdir(tmp_path)
    Path("n.csv").write_text("\n".join([",".join(BOTH[0]), *(",".join(map(str, row.values())) for row in BOTH)]))
    done = CliRunner().invoke(app, ["compare", "n.csv", *words], env={"COLUMNS": "200"})
    assert done.exit_code == (2 if refusal else 0), done.output
    assert done.stdout.count("holds") == verdicts
    assert refusal in done.stderr


def apart() -> list[dict[str, object]]:
    """Three arms, one of which shares no seed with the others; one number is empty."""
    rows: list[dict[str, object]] = [{"arm": arm, "seed": seed, "accuracy": 90 + place + seed % 10 * place / 10}
                                     for place, (arm, first) in enumerate((("ce", 0), ("ours", 0), ("el", 10)))
                                     for seed in range(first, first + 5)]
    return [*rows, {"arm": "ours", "seed": 7, "accuracy": ""}]


def test_arms_without_a_common_seed_are_told_which_seeds_they_have(tmp_path, monkeypatch):
    words = "no seed has been run with both arms (ce has 0 to 4, el 10 to 14)"
    found = encouraging.compare(apart(), "accuracy")
    assert f"el beats ce on accuracy: not measured: {words}" in str(found)
    page = found.page()
    assert page.count(words) == 2  # on the board and in the claim
    for other in ("encouraging run", "Nobody has run", "questions of our own", "Other settings"):
        assert other not in page
    assert "Run both with the same seeds." in page
    monkeypatch.chdir(tmp_path)
    write_csv(Path("n.csv"), {}).write_text("\n".join(
        ["arm,seed,accuracy", *(",".join(map(str, row.values())) for row in apart())]))
    done = CliRunner().invoke(app, ["compare", "n.csv", "--metric", "accuracy"], env={"COLUMNS": "200"})
    assert f"el beats ce: accuracy: {words}" in done.output
    assert "n.csv, line 17: accuracy is empty, so this seed is left out of it" in done.output


def test_seeds_keep_their_names_where_arms_share_none():
    with pytest.raises(DataError, match=r"both arms \(ce has a and b, el c\)"):
        encouraging.compare({"ce": {"a": 1.0, "b": 2.0}, "el": {"c": 1.0}})


def test_many_empty_numbers_are_counted():
    rows = [*BOTH, *({"arm": "ce", "seed": seed, "accuracy": None, "loss": 1} for seed in range(10, 18))]
    assert [note.split(":")[0] for note in encouraging.compare(rows, "accuracy").notes] == [
        "row 9", "row 10", "row 11", "row 12", "row 13", "and 3 more empty numbers"]


def test_the_columns_of_arms_may_be_given_as_a_list():
    table = {"seed": [0, 1, 2], "ce": [1.0, 2.0, 3.0], "el": [2.0, 2.9, 4.1]}
    listed, in_words = (encouraging.compare(table, "accuracy", arm=arm) for arm in (["ce", "el"], "ce,el"))
    assert str(listed) == str(in_words)
