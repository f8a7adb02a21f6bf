"""Two processes that work together, started from one that has imported torch already; and what they do in tests."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimiser of a process imports it
import torch.distributed as dist
from torch import Tensor, nn

from encouraging.data import Clock, ResidentSource, Shuffled, generator
from encouraging.engine import Interrupted, Loss, Metric, StagePlan, Train, distributed, execute, sweep, together
from encouraging.engine.distributed import World
from encouraging.engine.sync_norm import share_batch_norms
from encouraging.tasks import BaseTask, Objective, ObjectiveConfig, StageSpec, TaskSpec
from forked import forkserver
from toy_tasks import CPU, Blobs, run_spec

ROWS, TOKENS, CLASSES, WIDTH = 12, 5, 4, 6


def on_two_ranks(work: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
    """What ``work(world, *args)`` returns on rank 0 and on rank 1."""
    context = forkserver()
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in (0, 1):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, f"file://{folder}/store", timeout, work, args))
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        answers = [pickle.loads(pipe.recv_bytes()) for pipe in pipes]
        for process in processes:
            process.join()
    for kind, answer in answers:
        assert kind == "done", answer
    return [answer for _, answer in answers]


def _serve(pipe: Connection, rank: int, store: str, timeout: float, work: Callable[..., Any], args: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=timeout))
    try:
        answer = ("done", work(World(rank, 2, rank), *args))
    except Exception:
        answer = ("failed", traceback.format_exc())
    try:
        pipe.send_bytes(pickle.dumps(answer))  # as bytes: torch would share tensors, and this process ends
    finally:
        distributed.leave()


class Uneven(BaseTask[Any]):
    """Tokens with targets of which some rows have all, some a few and some none; classes have weights."""

    metrics = (Metric("nothing", "nothing", primary=True),)

    def __init__(self, objective: dict[str, Any], rows: int = ROWS, only: int | None = None) -> None:
        train = Train(max_steps=1, lr=1.0, batch_size=rows)
        super().__init__(TaskSpec("", "", (StageSpec(train, objective=ObjectiveConfig(**objective)),)))
        draw = generator(11)
        self.rows, self.sigmoid = rows, objective.get("link") == "sigmoid"
        self.x = torch.randn(ROWS, TOKENS, WIDTH, generator=draw)
        self.weight = torch.rand(CLASSES, generator=draw) + 0.2
        kept = torch.tensor([5, 5, 5, 0, 0, 0, 1, 0, 2, 5, 3, 0])  # tokens per row: the second part of four has none
        self.target = torch.randint(CLASSES, (ROWS, TOKENS), generator=draw)
        self.target[torch.arange(TOKENS) >= kept[:, None]] = -1
        if self.sigmoid:
            self.target = (torch.rand(ROWS, TOKENS, CLASSES, generator=draw) < 0.3).long()
            self.target[3:6] = 0
        if only is not None:
            self.x, self.target = self.x[only : only + 1], self.target[only : only + 1]

    def build(self) -> nn.Module:
        return nn.Linear(WIDTH, CLASSES)

    def source(self, stage: int) -> ResidentSource:
        return ResidentSource(Shuffled(len(self.x), self.rows, shuffle=False), 0, CPU)

    def logits(self, model: nn.Module, index: Tensor) -> Tensor:
        return model(self.x[index]) if self.sigmoid else model(self.x[index]).movedim(-1, 1)

    def loss(self, model: nn.Module, batch: Any, objective: Objective) -> Loss:
        return objective.loss(self.logits(model, batch[0]), self.target[batch[0]], self.weight)

    def predict(self, model: nn.Module, *how: Any) -> Iterator[dict[str, Any]]:
        yield {}

    def evaluate(self, predictions: Any) -> dict[str, float]:
        return {"nothing": 0.0}


def gradients(world: World, folder: Path, objectives: list[dict[str, Any]], parts: int,
              only: int | None = None) -> list[dict[str, Any]]:
    """The engine's gradient for each objective: one step at rate 1 from where the model starts."""
    found = []
    for number, objective in enumerate(objectives):
        task = Uneven(objective, ROWS // parts, only)
        train = Train(max_steps=1, lr=1.0, batch_size=ROWS // parts, accumulate=parts)
        torch.manual_seed(0)
        start = {name: param.detach().clone() for name, param in task.build().named_parameters()}
        seen: dict[str, Tensor] = {}

        def watch(model: nn.Module, *how: Any, task: Uneven = task, seen: dict[str, Tensor] = seen) -> Any:
            seen |= {name: param.detach().clone() for name, param in model.named_parameters()}
            return Uneven.predict(task, model, *how)

        task.predict = watch  # type: ignore[method-assign]
        final = execute(run_spec(folder / str(number), task, (train,), world=world))
        found.append({"loss": final["train_loss"], **{name: start[name] - seen[name] for name in start}})
    return found


class Normed(Blobs):
    """Batch norm and no dropout; every piece says which statistics it was made with."""

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16)), nn.Linear(16, 3))

    def predict(self, model: nn.Module, *how: Any) -> Iterator[dict[str, Any]]:
        for piece in super().predict(model, *how):
            yield {**piece, "mean": model[0][1].running_mean.clone(), "batches": int(model[0][1].num_batches_tracked)}

    def evaluate(self, predictions: Any) -> dict[str, float]:
        self.pieces = predictions
        return super().evaluate(predictions)


def statistics(world: World, folder: Path) -> list[Any]:
    """The batch-norm statistics with which each rank evaluated, as rank 0 received them."""
    task = Normed()
    execute(run_spec(folder, task, (Train(epochs=1, lr=0.1, batch_size=16),), world=world))
    return [(piece["mean"].tolist(), piece["batches"]) for piece in task.pieces] if world.leads else []


def normed(world: World, folder: Path, train: Train) -> None:
    execute(run_spec(folder, Normed(), (train,), world=world))


def normed_until(world: World, folder: Path, plans: tuple[StagePlan, ...], stop: tuple[int, int, int] | None) -> str:
    """Train until a signal comes with a batch: of this stage, epoch and number."""
    class Stops(Normed):
        def batches(self, clock: Clock, start: int, *ranks: int) -> Iterator[Any]:
            for number, batch in enumerate(super().batches(clock, start, *ranks), start):
                if (clock.stage, clock.epoch, number) == stop:
                    signal.raise_signal(signal.SIGTERM)
                yield batch

    try:
        execute(run_spec(folder, Stops(), plans, world=world))
    except Interrupted:
        return "stopped"
    return "done"


class Statless(Normed):
    """A batch norm without running statistics, and three more pieces on one rank than on the other."""

    def build(self) -> nn.Module:
        norm = nn.BatchNorm1d(16, track_running_stats=False)
        return nn.Sequential(nn.Sequential(nn.Linear(8, 16), norm), nn.Linear(16, 3))

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[dict[str, Any]]:
        for _ in range(3 if rank else 0):
            model(self.x)
        yield from Blobs.predict(self, model, final, rank, world)


def statless(world: World, folder: Path, train: Train) -> dict[str, Any]:
    return execute(run_spec(folder, Statless(), (train,), world=world))


def shared_norm(world: World, cases: list[tuple[nn.Module, Tensor]]) -> list[dict[str, Tensor]]:
    """What a batch norm that is shared makes of this rank's rows: output, gradients, statistics."""
    found = []
    for norm, whole in cases:
        layer = share_batch_norms(nn.Sequential(copy.deepcopy(norm)), CPU)  # its memory is shared by the ranks
        rows = whole[:3] if world.leads else whole[3:]
        for _ in range(2):
            x = rows.clone().requires_grad_()
            out = layer(x)
            (out * out.detach().sin()).sum().backward()
        parts = {name: param.grad for name, param in layer.named_parameters()}
        for gradient in parts.values():
            dist.all_reduce(gradient)
        found.append({"out": out.detach(), "input": x.grad, **parts, **dict(layer.named_buffers())})
    return found


def stages(world: World, folder: Path, plans: tuple[StagePlan, ...]) -> None:
    execute(run_spec(folder, Blobs(dropout=0.0), plans, world=world))


def wait_for_leader(world: World, seconds: float, timeout: float, beat: float) -> tuple[Any, float]:
    """Rank 0 works longer than a collective would wait."""
    distributed.TIMEOUT, distributed.BEAT = timedelta(seconds=timeout), beat

    def work() -> dict[str, float]:
        time.sleep(seconds)
        return {"bleu": 27.5}

    began = time.monotonic()
    return world.by_leader(work, CPU), time.monotonic() - began


def fail_as_leader(world: World) -> str:
    """Rank 0 raises an error of its own; the other one does not wait until it has lost patience."""
    def work() -> None:
        raise ZeroDivisionError("no reason")

    try:
        world.by_leader(work, CPU)
    except (ZeroDivisionError, ValueError) as error:
        return str(error)
    return ""


def die_as_leader(world: World, timeout: float) -> str:
    """Rank 0 shows no sign of life."""
    distributed.TIMEOUT = timedelta(seconds=timeout)
    if world.leads:
        return ""
    try:
        world.by_leader(lambda: None, CPU)
    except ValueError as error:
        return str(error)
    return "no error"


def lead_twice(world: World) -> list[str]:
    """Rank 0 works alone in two runs, each with a world of its own, and fails in the first."""
    def fail() -> str:
        raise ZeroDivisionError("no reason")

    said = []
    for work in (fail, lambda: "fine"):
        try:
            said.append(World(world.rank, world.size).by_leader(work, CPU))
        except (ZeroDivisionError, ValueError):
            said.append("failed")
    return said


def diverge_alone(world: World, folder: Path) -> str:
    """The loss is huge on rank 1 alone, in the second update of the second epoch."""
    class Huge(Blobs):
        def loss(self, model: nn.Module, batch: Any, objective: float) -> Loss:
            self.updates = getattr(self, "updates", 0) + 1
            loss = super().loss(model, batch, objective)
            return Loss(loss.mean * 1e6, loss.count) if world.rank == 1 and self.updates == 9 else loss

    try:
        execute(run_spec(folder, Huge(dropout=0.0), (Train(epochs=3, lr=1e-9, batch_size=16),), world=world))
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def end_together(world: World, fails: dict[str, tuple[int, ...]], wait: float) -> tuple[list[tuple[str, str]], str]:
    """Jobs that begin and end with a barrier; some fail on some ranks in between. What was reported, and raised."""
    together.WAIT = wait

    def work(job: str, on_epoch: Any) -> None:
        world.wait()
        if world.rank in fails.get(job, ()):
            raise ZeroDivisionError(f"rank {world.rank} has no reason")
        if len(fails.get(job, ())) != world.size:
            world.wait()

    events: list[sweep.Event] = []
    try:
        together.run_together(["a", "b", "c"], work, events.append, world)
    except ValueError as error:
        return [(event.kind, event.job) for event in events], str(error)
    return [(event.kind, event.job) for event in events], ""


def leave_a_model_behind(world: World) -> list[str]:
    """The names of the threads that are left, where a model of both ranks can only be found by the collector."""
    gc.disable()
    held = [world.wrap(nn.Linear(2, 2), CPU)]
    held.append(held)  # type: ignore[arg-type]
    del held
    distributed.leave()
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
