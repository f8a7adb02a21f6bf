"""Adversarial training: the batch is the attack's, and a step can be recorded in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encouraging.attacks import TRAINING_ATTACKS, Attack, adversarial_batch, fgsm, pgd, pgd_l2
from encouraging.engine.distributed import leave

Network = Callable[..., tuple[nn.Module, Tensor, Tensor]]


def test_the_attacks_are_the_papers() -> None:
    papers = {"fgsm": (Attack("fgsm"), 0.3), "pgd": (Attack("pgd", step_size=0.1, steps=7), 0.3),
              "pgd_l2": (Attack("pgd_l2", step_size=0.2, steps=7, damping=1.28e-8), 3.0)}
    assert papers == TRAINING_ATTACKS


def test_the_batch_is_the_attacks_own(network: Network) -> None:
    model, x, y = network()
    index = torch.arange(100, 100 + len(x))
    ours = {name: adversarial_batch(model, x, y, *setting, seed=torch.tensor(5), index=index)
            for name, setting in TRAINING_ATTACKS.items()}
    assert torch.equal(ours["fgsm"], fgsm(model, x, y, 0.3))
    assert torch.equal(ours["pgd"], pgd(model, x, y, 0.3, steps=7, step_size=0.1, seed=5, index=index))
    assert torch.equal(ours["pgd_l2"], pgd_l2(model, x, y, 3.0, steps=7, step_size=0.2, damping=1.28e-8))


def test_settings_reach_the_attack(network: Network) -> None:
    model, x, y = network()
    free = adversarial_batch(model, 2 * x, y, Attack("fgsm", clip=False, loss="margin"), 0.3)
    assert torch.equal(free, fgsm(model, 2 * x, y, 0.3, clip=False, loss="margin"))
    start = Attack("pgd_l2", random_start=True, steps=2)
    assert torch.equal(adversarial_batch(model, x, y, start, 1.0, seed=3),
                       pgd_l2(model, x, y, 1.0, random_start=True, steps=2, seed=3))


@pytest.mark.parametrize("name", TRAINING_ATTACKS)
def test_a_training_step_keeps_mode_statistics_and_gradients(network: Network, name: str) -> None:
    model, x, y = network()
    model.train()
    nn.functional.cross_entropy(model(x), y).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found = adversarial_batch(model, x, y, *TRAINING_ATTACKS[name])
    assert not found.requires_grad
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(torch.equal(p.grad, before) for p, before in zip(model.parameters(), gradients, strict=True))


def test_a_model_wrapped_for_several_processes_is_attacked_inside(network: Network, tmp_path: Any) -> None:
    """The wrapper would wait for gradients of the parameters that never come, and refuse the step after."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        model, x, y = network()
        wrapped = nn.parallel.DistributedDataParallel(model)
        for seed in range(2):
            found = adversarial_batch(wrapped, x, y, *TRAINING_ATTACKS["pgd"], seed=seed)
            nn.functional.cross_entropy(wrapped(found), y).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        del wrapped  # else it would be the last to hold gloo's threads, and could wait for them forever
    finally:
        leave()


def test_adversarial_training_makes_a_model_robust(digits: Any) -> None:
    x, y = digits.x, digits.y
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    attack, eps = TRAINING_ATTACKS["pgd"][0], 0.1
    for step in range(100):
        found = adversarial_batch(model, x[100:], y[100:], attack, eps, seed=step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(found), y[100:]).backward()
        optimizer.step()
    held = digits.first(100)
    hit = [(m(pgd(m, *held, eps, loss="margin")).argmax(1) == held[1]).double().mean() for m in (model, digits.model)]
    assert hit[0] > hit[1] + 0.2


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@cuda
@pytest.mark.parametrize("name", TRAINING_ATTACKS)
def test_it_can_be_recorded_in_a_cuda_graph_with_a_seed_that_changes(network: Network, name: str) -> None:
    model, x, y = network()
    model, x, y = model.cuda().train(), x.cuda(), y.cuda()
    seed, index = torch.zeros((), dtype=torch.int64, device="cuda"), torch.arange(len(x), device="cuda")

    def batch() -> Tensor:
        return adversarial_batch(model, x, y, *TRAINING_ATTACKS[name], seed=seed, index=index)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            batch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch()
    for number in (0, 7, 8):
        seed.fill_(number)
        graph.replay()
        recorded = out.clone()
        torch.testing.assert_close(recorded, batch(), rtol=0, atol=1e-9)
    assert all(module.training for module in model.modules())


@cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", TRAINING_ATTACKS)
def test_nothing_waits_for_the_device(network: Network, name: str) -> None:
    model, x, y = network()
    model, x, y = model.cuda(), x.cuda(), y.cuda()
    adversarial_batch(model, x, y, *TRAINING_ATTACKS[name])
    torch.cuda.set_sync_debug_mode("error")
    try:
        attacked = adversarial_batch(model, x, y, *TRAINING_ATTACKS[name], seed=1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not torch.equal(attacked, x)


@cuda
def test_random_starts_are_the_same_on_every_device() -> None:
    from encouraging.attacks._noise import uniform

    index = torch.arange(1000)
    assert torch.equal(uniform((1000, 30), 2**62, 9, index), uniform((1000, 30), 2**62, 9, index.cuda()).cpu())
