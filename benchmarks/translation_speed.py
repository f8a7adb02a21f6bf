"""What translation costs on this machine: training beside a bare loop, and beam search with a profile of its time.

    python benchmarks/translation_speed.py --data DIR --out results/bench/translation.json [--recipe multi30k-de-en]

Training is measured in target tokens per second, over the same batches: the engine with CUDA graphs where it has them,
the engine without, and a bare loop (forward, torch's cross-entropy on stored logits, backward, AdamW) with the same
model and precision. Beam search translates the test sentences, up to 1000, with the recipe's beam; the model is fresh
unless ``--run`` names a finished one, and a fresh one rarely ends a sentence early, which makes it the slow case. The
profile of one more batch is written beside the JSON file as a table (``.txt``).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from encouraging.data import Clock, Pieces
from encouraging.data.pieces import PAD
from encouraging.engine.distributed import World
from encouraging.engine.environment import choose_device, environment
from encouraging.engine.graph import Replay
from encouraging.engine.meter import DeviceMeter, HostMeter
from encouraging.engine.optim import build_optimizer
from encouraging.engine.precision import float32_is
from encouraging.engine.update import Update
from encouraging.recipes import read_recipe
from encouraging.recipes.translator import load_translator
from encouraging.tasks import build_task
from encouraging.tasks.translation import TranslationTask, translate_pieces


def batches_of(task: TranslationTask) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Epoch after epoch."""
    source, epoch = task.source(1), 0
    while True:
        epoch += 1
        yield from source.batches(Clock(1, epoch, 0), 0, 0, 1)


def rate(step: Callable[[Any], None], task: TranslationTask, warm: int, steps: int) -> float:
    """Target tokens per second, padding not counted."""
    stream = batches_of(task)
    for batch in islice(stream, warm):
        step(batch)
    batches = list(islice(stream, steps))
    tokens = sum(int((target[:, 1:] != PAD).sum()) for _, target in batches)
    _wait(task.device)
    began = time.perf_counter()
    for batch in batches:
        step(batch)
    _wait(task.device)
    return tokens / (time.perf_counter() - began)


def engine_step(task: TranslationTask, graph: bool) -> tuple[Callable[[Any], None], Replay]:
    train, model = task.spec.stages[0].train, task.build()
    model.train()
    optimizer = build_optimizer(train, task.groups(model), task.device)
    cuda = task.device.type == "cuda"
    meter = DeviceMeter(train.diverge_above, task.device) if cuda else HostMeter(train.diverge_above)
    update = Update(task, model, optimizer, train, meter, None, World(), task.device)
    replay, objective = Replay(update, graph and cuda), task.objective(Clock())
    return lambda batch: replay([batch], objective, False), replay


def bare_step(task: TranslationTask) -> Callable[[Any], None]:
    train, model = task.spec.stages[0].train, task.build()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), train.lr, betas=train.betas, weight_decay=train.weight_decay,
                                  fused=task.device.type == "cuda")
    smoothing = task.objective(Clock()).label_smoothing

    def step(batch: Any) -> None:
        source, target = batch
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(task.device.type, torch.bfloat16, enabled=train.precision == "bf16"):
            hidden, weight = model(source, target[:, :-1])
            loss = F.cross_entropy(F.linear(hidden, weight).flatten(0, 1).float(), target[:, 1:].flatten(),
                                   ignore_index=PAD, label_smoothing=smoothing)
        loss.backward()
        optimizer.step()

    return step


def search_times(task: TranslationTask, model: Any, pieces_of: Pieces,
                 sentences: int) -> tuple[dict[str, float], list[list[int]]]:
    """Seconds for all sentences, in batches of similar lengths; and one of those batches."""
    encoded = sorted(pieces_of.encode(task.corpus.test.source[:sentences], "source"), key=len)
    size, options = task.options.sentences, task.options
    parts = [encoded[first : first + size] for first in range(0, len(encoded), size)]
    middle = parts[len(parts) // 2]
    translate_pieces(model, middle, task.device, options.beam, options.length_penalty)
    _wait(task.device)
    began, pieces = time.perf_counter(), 0
    for part in parts:
        said = translate_pieces(model, part, task.device, options.beam, options.length_penalty)
        pieces += sum(map(len, said))
    _wait(task.device)
    seconds = time.perf_counter() - began
    return {"sentences": len(encoded), "beam": options.beam, "seconds": seconds,
            "sentences_per_second": len(encoded) / seconds, "pieces": pieces}, middle


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the data directory")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--recipe", default="multi30k-de-en", help="default: %(default)s")
    parser.add_argument("--arm", default="el_05_ls", help="default: %(default)s")
    parser.add_argument("--run", type=Path, help="a finished run whose model translates; default: a fresh model")
    parser.add_argument("--device", default="auto", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="updates that are timed (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=300, help="updates before that (default: %(default)s)")
    parser.add_argument("--sentences", type=int, default=1000, help="to translate (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
    args = parser.parse_args()
    device = choose_device(args.device)
    recipe = read_recipe(args.recipe, args.set)
    task = build_task("translation", recipe.task_spec(args.arm, 0, device, args.data))
    assert isinstance(task, TranslationTask)
    source = task.source(1)
    found: dict[str, Any] = {"recipe": args.recipe, "arm": args.arm, "environment": environment(device),
                             "precision": task.spec.stages[0].train.precision, "lengths": source.lengths,
                             "filling": source.filling, "tokens_per_second": {}}
    torch.manual_seed(0)
    with float32_is("tf32" if found["precision"] == "tf32" else "ieee"):
        for name, graph in (("engine", True), ("engine, eager", False)):
            step, replay = engine_step(task, graph)
            found["tokens_per_second"][name] = rate(step, task, args.warm, args.steps)
            if graph:
                found["cuda_graph"] = replay.reason or f"{len(replay.graphs)} shapes recorded"
        found["tokens_per_second"]["bare loop"] = rate(bare_step(task), task, args.warm, args.steps)
    with float32_is("ieee"):
        trained = load_translator(args.run, device) if args.run else None  # with a vocabulary of its own
        model, pieces = (trained.model, trained.pieces) if trained else (task.build().eval(), task.pieces)
        found["search"], middle = search_times(task, model, pieces, args.sentences)
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        with profile(activities=kinds) as seen:
            translate_pieces(model, middle, device, task.options.beam, task.options.length_penalty)
    key = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    table = seen.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    args.out.with_suffix(".txt").write_text(
        f"Beam search with beam {task.options.beam} on {len(middle)} sentences of {args.recipe}, "
        f"{environment(device).get('device', device.type)}\n\n{table}\n")
    print(json.dumps({key: found[key] for key in ("tokens_per_second", "search", "filling")}, indent=1))
    print(f"wrote {args.out} and {args.out.with_suffix('.txt')}")


if __name__ == "__main__":
    main()
