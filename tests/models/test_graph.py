"""The network for graphs against its published definition, against torch-geometric's layers, and by itself."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encouraging.data import GraphBatch, Graphs, ResidentGraphs, data_dir, missing, read_graphs
from encouraging.data.registry import VARIABLE
from encouraging.errors import RecipeError
from encouraging.models import Classifier
from encouraging.models.graph import GraphConv, sagpool_gcn
from encouraging.models.graph_named import build_graph_model, check_graph_model, graph_packages_of
from graph_toys import stars_and_rings

CPU = torch.device("cpu")


def batch_of(graphs: Graphs, numbers: list[int] | None = None) -> GraphBatch:
    index = torch.arange(len(graphs)) if numbers is None else torch.tensor(numbers, dtype=torch.long)
    batch = ResidentGraphs(graphs, CPU).batch(index)
    return batch._replace(x=batch.x.double())


def network(features: int, **options: float) -> Classifier:
    torch.manual_seed(1)
    model = sagpool_gcn(2, features, **options).double().eval()
    with torch.no_grad():  # biases start at 0, where mistakes with them do not show
        for param in model.parameters():
            param.add_(0.1 * torch.randn_like(param))
    return model


def dense_logits(model: Classifier, x: Tensor, adjacency: Tensor) -> Tensor:
    """One graph by the formulas of Kipf and Welling (2017) and Lee et al. (2019), with whole matrices.

    GCN: D^-1/2 (A + I) D^-1/2 X W. SAGPool: the half of the nodes, rounded up, with the highest tanh(GCN(X, A)), their
    features times these scores, and the rows and columns of A that are theirs. The hierarchical network reads out the
    maximum and the mean after each of three blocks, and sums these.
    """
    def convolve(layer: GraphConv, h: Tensor) -> Tensor:
        looped = adjacency + torch.eye(len(adjacency), dtype=h.dtype)
        root = looped.sum(1).rsqrt()
        return torch.diag(root) @ looped @ torch.diag(root) @ h @ layer.weight.T + layer.bias

    readout = torch.zeros(())
    for block in model.body.blocks:
        x = F.relu(convolve(block.conv, x))
        score = torch.tanh(convolve(block.score, x))[:, 0]
        kept = score.sort(descending=True, stable=True).indices[: math.ceil(len(x) / 2)]
        x, adjacency = x[kept] * score[kept][:, None], adjacency[kept][:, kept]
        readout = readout + torch.cat([x.max(0).values, x.mean(0)])
    return model.head(F.relu(model.body.second(F.relu(model.body.first(readout)))))


def each_by_itself(model: Classifier, graphs: Graphs) -> Tensor:
    logits, start, edge = [], 0, 0
    for size, edges in zip(graphs.sizes.tolist(), graphs.edges.tolist(), strict=True):
        adjacency = torch.zeros(size, size, dtype=torch.float64)
        pairs = graphs.edge_index[:, edge : edge + edges] - start
        adjacency[pairs[1], pairs[0]] = 1.0
        logits.append(dense_logits(model, graphs.x[start : start + size].double(), adjacency))
        start, edge = start + size, edge + edges
    return torch.stack(logits)


def gradients(model: nn.Module, logits: Tensor, labels: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(F.cross_entropy(logits, labels), list(model.parameters())))


def test_logits_and_gradients_are_those_of_the_published_formulas():
    graphs, model = stars_and_rings(), network(3)
    ours, theirs = model(batch_of(graphs)), each_by_itself(model, graphs)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for mine, expected in zip(gradients(model, ours, graphs.labels), gradients(model, theirs, graphs.labels),
                              strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-12)
        assert expected.abs().sum() > 0


@pytest.mark.parametrize("name", ["proteins", "nci1"])
def test_the_same_on_real_graphs_where_many_nodes_are_alike(name):
    """The nodes of real graphs are of few kinds, so scores tie: the first of equals is kept, here and there."""
    if missing(name, data_dir()):
        pytest.skip(f"{name} is not in {data_dir()}: set {VARIABLE}")
    graphs = read_graphs(name)
    chosen = [number for number in range(40) if graphs.sizes[number] < 60]
    model = network(graphs.features, hidden=32)
    ours = model(batch_of(graphs, chosen))
    whole = each_by_itself(model, _first(graphs, 40))[chosen]
    # Rounding decides between nodes that are alike in theory, so a graph may differ a little.
    close = torch.isclose(ours, whole, rtol=1e-9, atol=1e-12).all(1)
    assert close.double().mean() > 0.6
    torch.testing.assert_close(ours, whole, rtol=0.05, atol=0.05)


def _first(graphs: Graphs, count: int) -> Graphs:
    nodes, edges = int(graphs.sizes[:count].sum()), int(graphs.edges[:count].sum())
    return Graphs(graphs.x[:nodes], graphs.edge_index[:, :edges], graphs.sizes[:count], graphs.edges[:count],
                  graphs.labels[:count], graphs.classes)


class FromLibrary(nn.Module):
    """The authors' network from torch-geometric's layers; its scores are the older SAGPooling's, as theirs are."""

    def __init__(self, model: Classifier) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        blocks = model.body.blocks
        self.convs = nn.ModuleList(_copied(GCNConv(b.conv.weight.shape[1], len(b.conv.weight)), b.conv) for b in blocks)
        self.scores = nn.ModuleList(_copied(GCNConv(b.score.weight.shape[1], 1), b.score) for b in blocks)
        self.top = nn.ModuleList([model.body.first, model.body.second, model.head])

    def forward(self, data: GraphBatch) -> Tensor:
        from torch_geometric.nn import global_max_pool, global_mean_pool
        from torch_geometric.nn.pool.connect.filter_edges import filter_adj
        from torch_geometric.nn.pool.select.topk import topk

        x, edges, batch, readout = data.x, data.edge_index, data.batch, torch.zeros(())
        for conv, scorer in zip(self.convs, self.scores, strict=True):
            x = F.relu(conv(x, edges))
            score = torch.tanh(scorer(x, edges)[:, 0])
            kept = topk(score, 0.5, batch)
            x, batch, nodes = x[kept] * score[kept][:, None], batch[kept], len(x)
            edges, _ = filter_adj(edges, None, kept, None, nodes)
            readout = readout + torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], 1)
        first, second, head = self.top
        return head(F.relu(second(F.relu(first(readout)))))


def _copied(theirs: nn.Module, ours: GraphConv) -> nn.Module:
    theirs.double().load_state_dict({"lin.weight": ours.weight.detach(), "bias": ours.bias.detach()})
    return theirs


def test_logits_and_gradients_are_those_of_torch_geometrics_layers():
    graphs, model = stars_and_rings(), network(3)
    theirs, batch = FromLibrary(model), batch_of(graphs)
    logits, expected = model(batch), theirs(batch)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    F.cross_entropy(expected, graphs.labels).backward()
    pairs = [(block.conv, conv) for block, conv in zip(model.body.blocks, theirs.convs, strict=True)]
    pairs += [(block.score, conv) for block, conv in zip(model.body.blocks, theirs.scores, strict=True)]
    layers = [param for layer, _ in pairs for param in (layer.weight, layer.bias)]
    mine = torch.autograd.grad(F.cross_entropy(logits, graphs.labels), layers)
    for ours, reference in zip(mine, [p.grad for _, conv in pairs for p in (conv.lin.weight, conv.bias)], strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-12)


def test_it_starts_as_torch_geometrics_layers_do():
    from torch_geometric.nn import GCNConv

    for inputs, outputs in ((3, 128), (128, 1)):
        torch.manual_seed(0)
        ours = GraphConv(inputs, outputs)
        torch.manual_seed(0)
        theirs = GCNConv(inputs, outputs)
        ratio = (ours.weight.std() / theirs.lin.weight.std()).item()
        assert ratio == pytest.approx(1, abs=0.15)
        assert ours.weight.abs().max() <= math.sqrt(6 / (inputs + outputs))
        assert not ours.bias.any()


def test_every_graph_of_a_batch_has_its_own_logits():
    graphs, model = stars_and_rings(), network(3)
    together = model(batch_of(graphs))
    for number in range(len(graphs)):
        torch.testing.assert_close(model(batch_of(graphs, [number]))[0], together[number], rtol=1e-12, atol=1e-12)
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(0)).tolist()
    torch.testing.assert_close(model(batch_of(graphs, order)), together[order], rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    graphs, model = stars_and_rings(6), network(3, hidden=4)
    batch = batch_of(graphs)
    names = [name for name, _ in model.named_parameters()]

    def logits(*values: Tensor) -> Tensor:
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (batch,))

    assert torch.autograd.gradcheck(logits, tuple(model.parameters()))


def test_no_graphs_have_no_logits_but_a_gradient():
    """A rank's share of a small last batch may be empty."""
    model = network(3)
    logits = model(batch_of(stars_and_rings(), []))
    assert logits.shape == (0, 2)
    logits.sum().backward()
    assert all(param.grad is not None and not param.grad.any() for param in model.parameters())


def test_graphs_without_edges_and_of_one_node_have_logits():
    alone = Graphs(torch.ones(3, 3), torch.empty(2, 0, dtype=torch.long), torch.tensor([1, 2]), torch.tensor([0, 0]),
                   torch.tensor([0, 1]), 2)
    model = network(3)
    torch.testing.assert_close(model(batch_of(alone)), each_by_itself(model, alone))


@pytest.mark.parametrize("kind", ["GCN", "GIN", "GraphSAGE", "GAT"])
def test_stacks_of_torch_geometric_are_built_by_name(kind):
    model = build_graph_model(f"torch_geometric/{kind}", 2, 3, {"hidden": 8, "layers": 2})
    graphs = stars_and_rings(5)
    logits = model(ResidentGraphs(graphs, CPU).batch(torch.arange(5)))
    assert logits.shape == (5, 2)
    logits.sum().backward()
    assert graph_packages_of(f"torch_geometric/{kind}") == ("torch_geometric",)


def own_network(classes: int, features: int, width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(features, width), nn.Linear(width, classes))


def not_a_network(**_: int) -> str:
    return "none"


def test_a_network_of_ones_own_is_given_classes_and_features():
    assert build_graph_model(f"{__file__}:own_network", 2, 3, {"width": 5})[0].weight.shape == (5, 3)
    with pytest.raises(RecipeError, match="returned a str"):
        build_graph_model(f"{__file__}:not_a_network", 2, 3)


def without_features(classes: int) -> nn.Module:
    return nn.Linear(1, classes)


@pytest.mark.parametrize(("own", "options", "words"), [
    ("own_network", {"widht": 5}, "Did you mean 'width'"), ("without_features", {}, "features: "),
    ("CPU", {}, "has the type device: expected a function"), ("own_netwrk", {}, "Did you mean 'own_network'"),
])
def test_a_function_that_does_not_fit_is_refused_before_anything_is_built(own, options, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        check_graph_model(f"{__file__}:{own}", options)


@pytest.mark.parametrize(("name", "key", "values"), [
    ("sagpool_gcn", "ratio", [0, -1, 1.5, math.nan, "half", True]), ("sagpool_gcn", "hidden", [1, 0, -3, 2.5]),
    ("sagpool_gcn", "dropout", [-0.1, 2, None]), ("torch_geometric/GIN", "layers", [0, 1.0]),
])
def test_values_that_no_network_can_have_are_refused(name, key, values):
    for value in values:
        with pytest.raises(RecipeError, match=re.escape(f"{key} = {value!r}: expected a")):
            check_graph_model(name, {key: value})


def test_a_tiny_ratio_keeps_one_node_of_every_graph():
    graphs, model = stars_and_rings(), network(3, ratio=1e-9)
    body = model.body
    batch = batch_of(graphs)
    _, kept, sizes = body.blocks[0](batch.x, batch.edge_index, batch.batch, batch.sizes)
    assert sizes.tolist() == [1] * len(graphs)
    assert batch.batch[kept].tolist() == list(range(len(graphs)))
    assert model(batch).isfinite().all()


@pytest.mark.parametrize(("name", "options", "words"), [
    ("sagpool", {}, "Did you mean 'sagpool_gcn'"), ("sagpool_gcn", {"hiden": 3}, "Did you mean 'hidden'"),
    ("torch_geometric/GNI", {}, "Did you mean 'GIN'"), ("torch_geometric/GIN", {"ratio": 1}, "takes hidden, layers"),
])
def test_unknown_names_are_answered_with_the_nearest(name, options, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        check_graph_model(name, options)


def test_without_torch_geometric_its_names_are_refused_with_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    with pytest.raises(RecipeError, match=r"pip install torch-geometric"):
        check_graph_model("torch_geometric/GIN", {})
