"""What the losses cost inside other libraries, on one CPU core.

* transformers: a training step of a small Llama with its own loss and with a curve, CPU seconds and peak memory;
* JAX: loss and gradient, compiled, beside optax's cross-entropy of the same targets.

Usage: python benchmarks/integrations.py --out results/bench/integrations-cpu.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from encouraging import curves
from encouraging.engine.environment import environment
from encouraging.integrations import jax as for_jax
from encouraging.integrations.transformers import with_curve

EL = curves.encouraging(log_end=0.75)
STEPS: dict[str, dict[str, Any] | None] = {
    "the model's own": None, "with_curve": {}, "fused": {"fused": True},
    "fused, 64 MiB": {"fused": True, "chunk_bytes": 64 << 20}}
SHAPES = ((64, 1000), (256, 10), (1024, 32000))


def llama(name: str, rows: int, tokens: int, width: int, vocabulary: int) -> Callable[[], None]:
    """A training step, forward and backward."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=width, intermediate_size=4 * width, num_hidden_layers=2,
                                         num_attention_heads=4, vocab_size=vocabulary)).train()
    arguments = STEPS[name]
    if arguments is not None:
        with_curve(model, EL, **arguments)
    ids = torch.randint(vocabulary, (rows, tokens))

    def step() -> None:
        model.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()

    return step


def high() -> int:
    """The most memory that this process has had, in bytes."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def peak(name: str, *sizes: int) -> int:
    """Bytes beyond a model that was made, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--peak", name, *map(str, sizes)], capture_output=True, text=True,
                          check=True)
    return int(done.stdout.split()[-1])


def interleaved(steps: dict[str, Callable[[], None]], rounds: int,
                clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of every step, in turn, after one that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = clock()
            step()
            seconds[name].append(clock() - start)
    return seconds


def compiled(loss: Callable[[jax.Array], jax.Array], logits: jax.Array) -> Callable[[], None]:
    step = jax.jit(jax.value_and_grad(lambda z: loss(z).mean()))
    return lambda: jax.block_until_ready(step(logits)) and None


def ratios(rows: int, classes: int, rounds: int) -> dict[str, float]:
    """The best time of each loss over that of optax's cross-entropy of the same targets."""
    random = np.random.default_rng(0)
    z = jnp.asarray(3 * random.normal(size=(rows, classes)), jnp.float32)
    y = jnp.asarray(random.integers(0, classes, rows), jnp.int32)
    q = jax.nn.softmax(jnp.asarray(random.normal(size=(rows, classes)), jnp.float32))
    smooth = {"label_smoothing": 0.1}
    found = {}
    for kind, theirs, target, how in (
            ("labels", lambda z: optax.softmax_cross_entropy_with_integer_labels(z, y), y, {}),
            ("probabilities", lambda z: optax.softmax_cross_entropy(z, q), q, {}),
            ("smoothed", lambda z: optax.softmax_cross_entropy(
                z, optax.smooth_labels(jax.nn.one_hot(y, classes), 0.1)), y, smooth)):
        steps = {"optax": compiled(theirs, z)}
        for name, curve in (("ce", curves.cross_entropy()), ("el", EL), ("focal", curves.focal(2.0))):
            steps[name] = compiled(lambda z, c=curve, t=target, how=how: for_jax.curve_loss(z, t, c, **how), z)
        best = {name: min(all_of) for name, all_of in interleaved(steps, rounds, time.perf_counter).items()}
        found |= {f"{kind}, {name}": round(best[name] / best["optax"], 3) for name in steps if name != "optax"}
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peak", nargs=5, metavar=("STEP", "ROWS", "TOKENS", "WIDTH", "VOCABULARY"),
                         help="print the bytes of one step alone")
    options.add_argument("--sizes", type=int, nargs=4, default=[4, 512, 256, 32000],
                         metavar=("ROWS", "TOKENS", "WIDTH", "VOCABULARY"), help="of the Llama (default: %(default)s)")
    options.add_argument("--rounds", type=int, default=6, help="steps of the Llama, each (default: %(default)s)")
    options.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        step = llama(args.peak[0], *map(int, args.peak[1:]))
        before = high()
        step()
        print(high() - before)
        return
    seconds = interleaved({name: llama(name, *args.sizes) for name in STEPS}, args.rounds, time.process_time)
    record = {
        "date": datetime.date.today().isoformat(), **environment(torch.device("cpu")), "threads": 1,
        "versions": {name: version(name) for name in ("transformers", "jax", "optax")},
        "llama": {"sizes": args.sizes, "rounds": args.rounds, "steps": {
            name: {"cpu_seconds": round(statistics.median(all_of), 3), "peak_bytes": peak(name, *args.sizes)}
            for name, all_of in seconds.items()}},
        "jax": {f"{rows} x {classes}": ratios(rows, classes, max(args.rounds, args.rounds * 20_000 // (rows + classes)))
                for rows, classes in SHAPES if rows * classes <= args.sizes[0] * args.sizes[1] * args.sizes[3]},
    }
    text = json.dumps(record, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
