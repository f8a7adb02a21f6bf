"""Graphs from TU files, by name, and put together to batches."""

from __future__ import annotations

import re
import zipfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encouraging.data import DATASETS, Graphs, ResidentGraphs, data_dir, download, load, missing, read_graphs, read_tu
from encouraging.data import fetch as module
from encouraging.data.registry import VARIABLE, Archive, Dataset, File
from encouraging.errors import DataError, RecipeError
from graph_toys import stars_and_rings, write_tu

CPU = torch.device("cpu")


def test_files_are_read_as_their_format_says(tmp_path):
    graphs = read_tu(write_tu(tmp_path))
    assert graphs.sizes.tolist() == [3, 2]
    assert graphs.labels.tolist() == [0, 1]
    assert graphs.classes == 2
    assert graphs.x.tolist() == torch.eye(3)[[2, 0, 2, 1, 0]].tolist()  # the kinds 5, 6 and 7
    assert graphs.edge_index.T.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [3, 4], [4, 3]]
    assert graphs.edges.tolist() == [6, 2]


def test_without_kinds_every_node_has_the_feature_1(tmp_path):
    assert read_tu(write_tu(tmp_path, node_labels=None)).x.tolist() == [[1.0]] * 5


def test_without_kinds_attributes_are_the_features_and_beside_kinds_they_are_not_read(tmp_path):
    attributes = "0.5, -2\n1e-1, 3\n1, 1\n2, 0\n7, 4.25\n"
    alone = read_tu(write_tu(tmp_path / "alone", node_labels=None, node_attributes=attributes))
    torch.testing.assert_close(alone.x, torch.tensor([[0.5, -2], [0.1, 3], [1, 1], [2, 0], [7, 4.25]]), rtol=0, atol=0)
    both = read_tu(write_tu(tmp_path / "both", node_attributes=attributes))
    assert torch.equal(both.x, read_tu(write_tu(tmp_path / "kinds")).x)


@pytest.mark.parametrize("change", [
    lambda text: text.replace("\n", "\r\n"), lambda text: f"{text}\n \n\t\n", lambda text: text.rstrip(),
    lambda text: f"\ufeff{text}", lambda text: text.replace(",", " ,\t").replace("\n", " \n"),
], ids=["CRLF", "blank last lines", "no last newline", "byte order mark", "spaces"])
def test_how_an_editor_leaves_lines_does_not_matter(tmp_path, change):
    plain, changed = write_tu(tmp_path / "plain"), tmp_path / "changed"
    changed.mkdir()
    for path in plain.iterdir():
        (changed / path.name).write_text(change(path.read_text()), encoding="utf-8", newline="")
    ours, theirs = read_tu(changed), read_tu(plain)
    for part in ("x", "edge_index", "sizes", "edges", "labels"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


def test_edges_of_one_direction_stay_so_and_nodes_and_graphs_without_edges_are_kept(tmp_path):
    graphs = read_tu(write_tu(tmp_path, A="3, 1\n", graph_indicator="1\n1\n1\n1\n2\n", graph_labels="6\n3\n"))
    assert graphs.edge_index.T.tolist() == [[2, 0]]
    assert (graphs.sizes.tolist(), graphs.edges.tolist(), graphs.labels.tolist()) == ([4, 1], [1, 0], [1, 0])


@pytest.mark.parametrize(("files", "words"), [
    ({"A": None}, "expected one file NAME_A.txt"), ({"graph_labels": None}, "graph_labels.txt: there is no such file"),
    ({"A": "1, 2\n2; 1\n"}, "expected lines of whole numbers"), ({"A": "1, 9\n"}, "two nodes per line, 1 to 5"),
    ({"A": "0, 1\n"}, "two nodes per line"), ({"A": "1, 2, 3\n"}, "two nodes per line"),
    ({"A": "1, 5\n"}, "the edge 1, 5 joins two graphs"), ({"graph_indicator": "1\n2\n1\n2\n2\n"}, "ascending"),
    ({"graph_indicator": "1\n1\n1\n1\n1\n"}, "expected the numbers 1 to 2"), ({"graph_labels": "1\n1\n"}, "got 1"),
    ({"graph_indicator": "1\n1\n1\n3\n3\n", "graph_labels": "1\n2\n1\n"}, "graph 2 has no nodes"),
    ({"node_labels": "1\n2\n"}, "2 lines for 5 nodes"), ({"node_labels": "1\n2\n1\n2\n9999999\n"}, "kinds of nodes"),
    ({"node_labels": f"{-2**63}\n2\n1\n2\n{2**63 - 1}\n"}, "kinds of nodes"),
    ({"A": "1, 9\n"}, "got 2 per line, 1 to 9"),
    *(({part: text}, f"{part}.txt: the file is empty") for text in ("", "\n  \n", "# nothing\n")
      for part in ("A", "graph_indicator", "graph_labels", "node_labels")),
    ({"graph_labels": "0, 1\n1, 0\n"}, "graph_labels.txt: 2 numbers per line: expected one"),
    ({"graph_indicator": "1, 1\n1, 1\n1, 1\n2, 1\n2, 1\n"}, "graph_indicator.txt: 2 numbers per line"),
    ({"node_labels": None, "node_attributes": "1\n2\n"}, "2 lines for 5 nodes"),
    ({"node_labels": None, "node_attributes": "1\n2\nnan\n1\n2\n"}, "expected finite numbers"),
    ({"node_labels": None, "node_attributes": "1\n2\nx\n1\n2\n"}, "expected lines of numbers"),
])
def test_damaged_files_are_refused_in_words(tmp_path, files, words):
    with pytest.raises(DataError, match=re.escape(words)):
        read_tu(write_tu(tmp_path, **files))


@given(order=st.permutations(range(7)), count=st.integers(0, 7))
def test_a_batch_holds_its_graphs_one_after_another(order, count):
    graphs = stars_and_rings(7)
    index = torch.tensor(order[:count], dtype=torch.long)
    batch = ResidentGraphs(graphs, CPU).batch(index)
    assert batch.num_graphs == count
    node = edge = 0
    starts, edge_starts = (t.cumsum(0) - t for t in (graphs.sizes, graphs.edges))
    for number, graph in enumerate(index.tolist()):
        size, edges = int(graphs.sizes[graph]), int(graphs.edges[graph])
        theirs = slice(int(starts[graph]), int(starts[graph]) + size)
        assert torch.equal(batch.x[node : node + size], graphs.x[theirs])
        assert batch.batch[node : node + size].tolist() == [number] * size
        own = graphs.edge_index[:, int(edge_starts[graph]) : int(edge_starts[graph]) + edges] - starts[graph]
        assert torch.equal(batch.edge_index[:, edge : edge + edges], own + node)
        node, edge = node + size, edge + edges
    assert (len(batch.x), batch.edge_index.shape[1]) == (node, edge)


@pytest.mark.parametrize(("change", "words"), [
    ({"sizes": torch.tensor([2, 2])}, "graphs of 4 nodes"), ({"edges": torch.tensor([2, 1])}, "3 edges"),
    ({"labels": torch.tensor([0])}, "1 labels: expected one of each"),
    ({"edge_index": torch.tensor([[0, 3], [3, 0]])}, "another graph"),
    ({"edge_index": torch.tensor([[0, 1], [1, 9]])}, "another graph"),
    ({"labels": torch.tensor([0, 2])}, "labels from 0 to 2 for 2 classes: expected 0 to 1"),
    ({"labels": torch.tensor([-1, 1])}, "labels from -1 to 1"), ({"labels": [0, 1]}, "labels is a list"),
    ({"labels": torch.tensor([0.0, 1.0])}, "labels is torch.float32: expected whole numbers"),
    ({"labels": torch.tensor([[0], [1]])}, "labels has the shape (2, 1): expected 1 dimension"),
    ({"sizes": torch.tensor([3.0, 2.0])}, "sizes is torch.float32"), ({"sizes": torch.tensor([5, 0])}, "sizes from 0"),
    ({"edges": torch.tensor([3, -1])}, "edges from -1"), ({"edge_index": torch.ones(2, 2)}, "edge_index is torch"),
    ({"x": torch.ones(5)}, "x has the shape (5,): expected 2 dim"), ({"x": torch.ones(5, 0)}, "one feature per"),
    ({"x": torch.ones(5, 1).double()}, "x.float() turns"), ({"x": torch.ones(5, 1).long()}, "x is torch.int64"),
    ({"x": torch.full((5, 1), torch.nan)}, "expected finite numbers"), ({"classes": 1}, "classes = 1: expected"),
    ({"classes": 2.0}, "classes = 2.0"), ({"x": torch.ones(5, 1, device="meta")}, "x is on meta"),
])
def test_graphs_that_do_not_fit_together_are_refused(change, words):
    fields = {"x": torch.ones(5, 1), "edge_index": torch.tensor([[0, 1], [1, 0]]), "sizes": torch.tensor([3, 2]),
              "edges": torch.tensor([2, 0]), "labels": torch.tensor([0, 1]), "classes": 2}
    assert len(Graphs(**fields)) == 2
    with pytest.raises(DataError, match=re.escape(words)):
        Graphs(**fields | change)


def no_graphs() -> list[int]:
    return [1]


def misspelt() -> dict[str, int]:
    return {"nodes": 1}


@pytest.mark.parametrize(("name", "words"), [
    ("mnist", "mnist is not a dataset of graphs"), (f"{__file__}:no_graphs", "returned a list"),
    (f"{__file__}:misspelt", "does not fit encouraging.data.Graphs"), ("protein", "Did you mean 'proteins'"),
])
def test_what_holds_no_graphs_is_refused(name, words):
    with pytest.raises(DataError, match=re.escape(words)):
        read_graphs(name)


def test_a_name_that_is_no_function_is_refused():
    with pytest.raises(RecipeError, match="has the type device: expected a function"):
        read_graphs(f"{__file__}:CPU")


def test_graphs_are_read_by_name_from_folders_and_functions(tmp_path, monkeypatch):
    write_tu(tmp_path / "TOY/raw")
    assert len(read_graphs("folder:TOY/raw", tmp_path)) == 2
    assert len(read_graphs("folder:TOY", tmp_path)) == 2
    assert len(read_graphs(f"{stars_and_rings.__code__.co_filename}:stars_and_rings")) == 60
    with pytest.raises(DataError, match="proteins holds graphs: expected images"):
        load("proteins", "train")
    with pytest.raises(DataError, match=r"PROTEINS/raw/PROTEINS_A\.txt"):
        read_graphs("proteins", tmp_path)


def test_an_archive_of_the_collection_is_unpacked_where_torch_geometric_keeps_it(tmp_path, monkeypatch):
    folder = write_tu(tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "TOY.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"TOY/{path.name}")
    files = tuple(File(f"TOY/raw/{path.name}") for path in sorted(folder.iterdir()))
    monkeypatch.setitem(DATASETS, "toy", Dataset("toy", "tu", 2, (), (), (), files, files, ("place://",),
                                                 Archive("TOY.zip", None)))
    monkeypatch.setattr(module, "_fetch", lambda *_: tmp_path / "TOY.zip")
    download("toy", tmp_path / "out")
    assert len(read_graphs("toy", tmp_path / "out")) == 2
    monkeypatch.setitem(DATASETS, "toy", Dataset("toy", "tu", 2, (), (), (), (File("TOY/raw/TOY_B.txt"),), (), (),
                                                 Archive("TOY.zip", None)))
    with pytest.raises(DataError, match=r"holds no TOY/raw/TOY_B\.txt"):
        download("toy", tmp_path / "again")


@pytest.mark.parametrize(("name", "graphs", "nodes", "edges", "features", "classes"), [
    ("proteins", 1113, 43471, 162088, 3, [663, 450]), ("nci1", 4110, 122747, 265506, 37, [2053, 2057]),
])
def test_real_data(name, graphs, nodes, edges, features, classes):
    if missing(name, data_dir()):
        pytest.skip(f"{name} is not in {data_dir()}: set {VARIABLE}")
    found = read_graphs(name)
    assert (len(found), found.x.shape, found.edge_index.shape[1]) == (graphs, (nodes, features), edges)
    assert torch.bincount(found.labels).tolist() == classes
