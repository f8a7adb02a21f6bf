"""Models that the engine compiles: none is left uncompiled, and ranks exchange as much as without a compiler."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from compiled_ranks import exchanges
from encouraging.engine.compiled import Compiled
from encouraging.models import Classifier
from two_ranks import on_two_ranks


@pytest.fixture
def compilations(monkeypatch):
    """The graphs that were made."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    with torch._dynamo.config.patch(recompile_limit=8):
        yield graphs
    torch._dynamo.reset()


def network(width):
    return Classifier(nn.Sequential(nn.Linear(4, width), nn.ReLU()), nn.Linear(width, 3))


def test_the_tenth_network_of_a_process_is_compiled_too(compilations):
    for number, width in enumerate(range(5, 15), 1):
        Compiled(network(width))(torch.zeros(2, 4))
        assert len(compilations) == number


def test_every_shape_of_a_network_is_compiled_for_once_whatever_the_seed(compilations):
    for _ in range(2):
        model = Compiled(network(5))
        for rows in range(1, 13):
            model(torch.zeros(rows, 4))
        assert len(compilations) == 12


def test_compiled_ranks_exchange_gradients_once_per_update(tmp_path):
    (plain, weights), _ = on_two_ranks(exchanges, tmp_path / "plain", False)
    (count, ours), _ = on_two_ranks(exchanges, tmp_path / "compiled", True)
    assert count == plain == 4
    torch.testing.assert_close(ours, weights)


def test_a_state_may_hold_what_has_no_shape():
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            pass

    Compiled(nn.Sequential(Extra(2, 2), nn.LazyLinear(3)))
