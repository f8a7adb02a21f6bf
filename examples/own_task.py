"""Your own task: count the ones in a row of bits. Start it with `encouraging run own_task.toml`."""

from pathlib import Path

import torch
from torch import nn

from encouraging.commands.run import run_recipe
from encouraging.data import ResidentSource, Shuffled, generator
from encouraging.tasks import BaseTask, Metric

BITS = 12


class CountOnes(BaseTask):
    metrics = (Metric("exact", "exact counts", "%", digits=1, primary=True, low=0, high=100),
               Metric("distance", "distance from the count", better="lower", low=0))

    def __init__(self, spec):
        super().__init__(spec)
        rows = torch.randint(2, (1000, BITS), generator=generator(0)).to(self.device)
        self.train, self.test = rows[:500], rows[500:]

    def build(self):
        return nn.Sequential(nn.Linear(BITS, 64), nn.ReLU(), nn.Linear(64, BITS + 1)).to(self.device)

    def source(self, stage):
        train = self.spec.stages[stage - 1].train
        return ResidentSource(Shuffled(len(self.train), train.batch_size), self.spec.seed, self.device)

    def loss(self, model, batch, objective):
        rows = self.train[batch[0]]  # a batch of this source holds the indices of its examples
        return objective.loss(model(rows.float()), rows.sum(1))

    def predict(self, model, final, rank, world):
        rows = self.test[rank::world]  # with a single process, all of them
        yield {"errors": model(rows.float()).argmax(1) - rows.sum(1)}

    def evaluate(self, predictions):
        errors = torch.cat([piece["errors"] for piece in predictions]).float()
        return {"exact": 100 * (errors == 0).float().mean(), "distance": errors.abs().mean()}


if __name__ == "__main__":
    raise SystemExit(run_recipe(str(Path(__file__).with_suffix(".toml"))))
