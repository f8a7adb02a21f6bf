"""Numbers per arm and seed: read from every form alike, and refused in words that say where."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encouraging.errors import DataError
from encouraging.judge.numbers import Reader

ROWS = [{"arm": arm, "seed": seed, "accuracy": number + seed / 10} for arm, number in (("ce", 92.0), ("el", 92.5))
        for seed in range(3)]
EXPECTED = {arm: {seed: {"accuracy": number + seed / 10} for seed in range(3)}
            for arm, number in (("ce", 92.0), ("el", 92.5))}


class Frame:
    """What a DataFrame has, without pandas: ``columns``, and a column by its name."""

    def __init__(self, columns: dict[str, list[object]]) -> None:
        self.columns, self._content = list(columns), columns

    def __getitem__(self, name: str) -> list[object]:
        return self._content[name]


def columns() -> dict[str, list[object]]:
    return {name: [row[name] for row in ROWS] for name in ROWS[0]}


def separated(mark: str) -> str:
    return "\n".join([mark.join(ROWS[0]), *(mark.join(map(str, row.values())) for row in ROWS)]) + "\n"


FILES = {
    "n.csv": separated(","), "semicolons.csv": separated(";"), "spaces.csv": separated(", "),
    "mark.csv": "\ufeff" + separated(","), "windows.csv": separated(",").replace("\n", "\r\n"), "N.CSV": separated(","),
    "n.tsv": separated("\t"), "quoted.csv": separated(",").replace("ce", '"ce"'),
    "n.jsonl": "\n".join(map(json.dumps, ROWS)), "n.ndjson": "\n\n".join(map(json.dumps, ROWS)),
    "rows.json": json.dumps(ROWS), "columns.json": json.dumps(columns()),
    "arms.json": json.dumps({arm: [92.0 + (arm == "el") / 2 + s / 10 for s in range(3)] for arm in ("ce", "el")}),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read_alike(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name].encode())
    for path in (tmp_path / name, str(tmp_path / name)):
        assert Reader(["accuracy"]).read(path) == EXPECTED


@pytest.mark.parametrize("source", [
    ROWS, iter(ROWS), columns(), Frame(columns()),
    {arm: [values[seed]["accuracy"] for seed in values] for arm, values in EXPECTED.items()},
    {arm: {seed: values[seed]["accuracy"] for seed in values} for arm, values in EXPECTED.items()},
    EXPECTED,
], ids=["rows", "iterator", "columns", "frame", "lists", "by seed", "by seed and metric"])
def test_every_form_in_memory_is_read_alike(source):
    assert Reader(["accuracy"]).read(source) == EXPECTED


def test_final_numbers_of_runs_are_read_by_their_paths():
    finals = {"ce": {0: {"ood": {"energy": {"fpr95": 0.1}}}}, "el": {0: {"ood": {"energy": {"fpr95": 0.2}}}}}
    assert Reader(["ood.energy.fpr95"]).read(finals)["el"] == {0: {"ood.energy.fpr95": 0.2}}


def test_other_words_for_arm_and_seed_and_names_for_seeds():
    rows = [{"loss": loss, "fold": fold, "x": 1.0} for loss in ("a", "b") for fold in ("first", "second")]
    assert Reader(["x"], "loss", "fold").read(rows) == {"a": {0: {"x": 1.0}, 1: {"x": 1.0}},
                                                        "b": {0: {"x": 1.0}, 1: {"x": 1.0}}}


@pytest.mark.parametrize("one", [{"0": 91.0, "1": 92.0}, {0.0: 91.0, 1.0: 92.0}], ids=["text", "floats"])
def test_a_seed_is_the_same_as_text_and_as_a_number(one):
    numbers = Reader(["x"]).read({"ce": one, "el": [91.5, 92.5]})
    assert list(numbers["ce"]) == list(numbers["el"]) == [0, 1]
    with pytest.raises(DataError, match="arm ce with seed 0 appears twice"):
        Reader(["x"]).read({"ce": {0: 1.0, "0": 2.0}})


WIDE = {"seed": [3, 5], "ce": [92.0, 92.1], "el": [92.5, 92.6]}


@pytest.mark.parametrize("source", [
    "seed,ce,el\n3,92.0,92.5\n5,92.1,92.6\n", WIDE, Frame(WIDE), [dict(zip(WIDE, row, strict=True)) for row in
                                                                   zip(*WIDE.values(), strict=True)],
], ids=["file", "columns", "frame", "rows"])
def test_a_table_with_one_column_per_arm(tmp_path, source):
    if isinstance(source, str):
        (tmp_path / "n.csv").write_text(source)
        source = tmp_path / "n.csv"
    assert Reader(["accuracy"], "ce, el").read(source) == {
        "ce": {3: {"accuracy": 92.0}, 5: {"accuracy": 92.1}}, "el": {3: {"accuracy": 92.5}, 5: {"accuracy": 92.6}}}


def test_a_table_with_one_column_per_arm_needs_no_seeds_but_one_metric_and_columns_that_are_there(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("ce,el\n92.0,92.5\n92.1,92.6\n")
    assert Reader(["x"], "ce,el").read(path)["el"] == {0: {"x": 92.5}, 1: {"x": 92.6}}
    for metrics, arm, words in ((["x", "y"], "ce,el", "has one metric, got x, y"),
                                (["x"], "ce,le", "no 'le'; there are ce, el"),
                                (["x"], "arm", 'name these columns: --arm ce,el (in Python, arm="ce,el")')):
        with pytest.raises(DataError) as error:
            Reader(metrics, arm).read(path)
        assert words in str(error.value)


def test_a_file_may_begin_with_empty_lines_and_quote_other_marks(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text('\n \r\narm,seed,"acc; top; 1; %"\nce,0,92\nce,1,x\n')
    with pytest.raises(DataError, match="line 5: acc; top; 1; % is 'x', expected a number"):
        Reader(["acc; top; 1; %"]).read(path)
    path.write_text(path.read_text().replace("x", "91"))
    assert Reader(["acc; top; 1; %"]).read(path) == {"ce": {0: {"acc; top; 1; %": 92.0}, 1: {"acc; top; 1; %": 91.0}}}


@pytest.mark.parametrize(("source", "words"), [
    ({1: [1.0], "1": [2.0], "el": [3.0]}, "arms: '1' appears twice among 1, 1, el"),
    ({"arm": ["a"], "seed": [0], 1: [1.0], "1": [2.0]}, "columns: '1' appears twice"),
    (Frame({"arm": ["a"], "seed": [0]}), "no 'x'"),
    ([{"arm": "ce", "seed": float("nan"), "x": 1.0}], "row 1: seed is empty"),
])
def test_names_that_are_one_text_are_refused(source, words):
    with pytest.raises(DataError) as error:
        Reader(["x"]).read(source)
    assert words in str(error.value)


def test_an_empty_cell_is_a_seed_without_a_number():
    assert Reader(["x"]).read([{"arm": "a", "seed": 0, "x": ""}, {"arm": "a", "seed": 1, "x": "2"}]) == {
        "a": {0: {}, 1: {"x": 2.0}}}


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.lists(st.floats(allow_nan=False), max_size=5), max_size=4))
def test_lists_by_arm_keep_every_number(source):
    metric = "a metric that no arm is called"
    found = Reader([metric], "arm column", "seed column").read(source)
    assert {arm: [seeds[seed][metric] for seed in range(len(seeds))] for arm, seeds in found.items()} == source


@pytest.mark.parametrize(("name", "content", "words"), [
    ("n.txt", "", "expected a file that ends with .csv"),
    ("n.csv", "", "the file is empty"),
    ("n.csv", "arm,seed,acuracy\nce,0,1\n", "no 'accuracy'; there are arm, seed, acuracy. Did you mean 'acuracy'?"),
    ("n.csv", "loss,seed,accuracy\nce,0,1\n", "line 2: no column 'arm'; there are loss, seed, accuracy"),
    ("n.csv", "arm,accuracy\nce,1\n", "no column 'seed'"),
    ("n.csv", "arm,seed,accuracy\nce,0,high\n", "line 2: accuracy is 'high', expected a number"),
    ("n.csv", "arm;seed;accuracy\nce;0;92,1\n", "accuracy is '92,1', expected a number. Write a point instead"),
    ("n.csv", "arm,seed,accuracy\nce,0,1\n".encode("utf-16"), "it is not text in UTF-8"),
    ("n.csv", "arm,seed,accuracy\nce,0,1\nce,0,2\n", "line 3: arm ce with seed 0 appears twice"),
    ("n.csv", "arm,seed,accuracy\nce,0\n", "line 2: not as many cells as the 3 columns"),
    ("n.csv", "arm,seed,accuracy\nce,0,1,2\n", "line 2: not as many cells"),
    ("n.csv", "arm,seed,arm\nce,0,1\n", "line 1: expected the names of the columns, each once"),
    ("n.csv", "arm,seed,accuracy\n,0,1\n", "line 2: arm is empty"),
    ("n.csv", 'arm,seed,accuracy\n"ce,0,1\n', "unexpected end of data"),
    ("n.csv", "\xff\xfe\x00".encode("latin-1"), "cannot be read"),
    ("n.jsonl", '{"arm": "ce"\n', "line 1: not JSON"),
    ("n.jsonl", "[1, 2]\n", "line 1: a list; expected the columns"),
    ("n.jsonl", '{"arm": "ce", "seed": [1], "accuracy": 1}\n', "line 1: seed is a list, expected a name or a number"),
    ("n.jsonl", '{"arm": {"x": 1}, "seed": 1, "accuracy": 1}\n', "line 1: arm is a dict, expected a name"),
    ("n.jsonl", "[" * 100_000, "line 1: not JSON"),
    ("n.csv", "\n\narm,seed,arm\nce,0,1\n", "line 3: expected the names of the columns"),
    ("n.csv", "arm,seed,accuracy\nce,0,9_0.5\n", "line 2: accuracy is '9_0.5', expected a number"),
    ("n.csv", "arm,seed,accuracy\nce,0,1\nc\0e,1,1\n", "line 3: has a NUL character"),
    ("n.csv", "seed,ce,el\n0,1,2\n", "Where each arm has a column of its own, name these columns: --arm ce,el"),
    ("n.csv", "arm,accuracy\nce,1\n", "Where no column does, add one: differences are taken between numbers"),
    ("n.jsonl", '{"arm": "ce", "seed": 1, "seed": 2, "accuracy": 1}\n', "the key 'seed' appears twice"),
    ("n.json", '{"ce": [1], "el": [2], "ce": [3]}', "cannot be read (the key 'ce' appears twice in one object)"),
    ("n.json", "{", "cannot be read"),
    ("n.json", "3", "numbers are a int"),
    ("n.json", '{"ce": 3}', "arm ce: int; expected a list of numbers"),
    ("n.json", '{"ce": [true]}', "arm ce, seed 0: accuracy is 'True', expected a number"),
    ("n.json", '{"seed": [0, 1], "arm": ["ce"], "accuracy": [1, 2]}', "columns of different lengths"),
])
def test_a_bad_file_is_refused_with_the_place(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as error:
        Reader(["accuracy"]).read(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(DataError):
            Reader(["accuracy"]).read(path)
