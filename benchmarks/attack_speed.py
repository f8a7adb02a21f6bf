"""How long attacks take: PGD with 40 steps on 10000 images at the paper's seven epsilons, and a float32 evaluation.

    python benchmarks/attack_speed.py --out results/bench/attacks-h200.json
    python benchmarks/attack_speed.py --device cpu --images 20 --steps 2 --model attack_cnn --rounds 1   # does it run?

The attack network has the weights of its initialisation and random images whose labels are its own answers, so that
every image is attacked: a trained network takes no longer. *attack* is what ``encouraging attack`` does, by losses.
*evaluate* is a forward pass over all images, as after every epoch of a training. Both are in float32 without TF32, with
the images and the weights in either order of their dimensions (``contiguous`` or ``channels_last``), and with cuDNN
choosing its algorithms by trial or by rule. Networks larger than the attack network are attacked on a hundredth of the
images. With the defaults it takes about a minute on an H200, if attacks run at 13 TFLOP/s.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from encouraging.attacks import LINF_EPSILONS, Attack, accuracy_over_eps
from encouraging.engine.precision import float32_is
from encouraging.models.named import build_named

SIDES = {"attack_cnn": (1, 28), "lsoftmax_cnn": (1, 28)}  # channels and pixels; 3 and 32 of all others
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def network(name: str, layout: torch.memory_format, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    channels, _ = SIDES.get(name, (3, 32))
    return build_named(name, 10, channels, None, {}, None).eval().to(device).to(memory_format=layout)


def examples(model: nn.Module, name: str, count: int, layout: torch.memory_format,
             device: torch.device) -> tuple[Tensor, Tensor]:
    """Random images, and what the model says of them."""
    channels, side = SIDES.get(name, (3, 32))
    x = torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0)).to(device)
    x = x.contiguous(memory_format=layout)
    with torch.no_grad():
        return x, torch.cat([model(part).argmax(1) for part in x.split(1000)])


def seconds(call: Callable[[], object], warm: Callable[[], object], rounds: int, device: torch.device) -> float:
    """The median of the rounds; ``warm`` comes before them, in which a GPU makes and chooses its kernels."""
    times = []
    for one in (warm, *(call,) * rounds):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        one()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def evaluate(model: nn.Module, x: Tensor, batch: int) -> None:
    with torch.no_grad():
        for part in x.split(batch):
            model(part)


def attack(model: nn.Module, x: Tensor, y: Tensor, steps: int, batch: int, loss: str) -> dict[str, Any]:
    chosen = Attack("pgd", steps=steps, loss=loss)
    return accuracy_over_eps(model, x, y, [chosen], LINF_EPSILONS, batch_size=batch).table()


def cases(args: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    for name, layout, trial in product(args.model or ["attack_cnn", "resnet18"], FORMATS, (False, True)):
        if trial and device.type != "cuda":
            continue
        torch.backends.cudnn.benchmark = trial
        model = network(name, FORMATS[layout], device)
        x, y = examples(model, name, args.images, FORMATS[layout], device)
        how = {"model": name, "layout": layout, "algorithms": "by trial" if trial else "by rule"}
        run = partial(evaluate, model, x, 2000)
        yield {**how, "images": len(x), "what": "evaluate", "seconds": seconds(run, run, max(args.rounds, 3), device)}
        small = name == "attack_cnn"
        if not small:  # on all images it would take minutes
            x, y = x[: max(1, args.images // 100)], y[: max(1, args.images // 100)]
        for loss in ("ce", "dlr") if small and layout == "contiguous" else ("ce",):
            run = partial(attack, model, x, y, args.steps, args.batch, loss)
            warm = partial(attack, model, x[: args.batch], y[: args.batch], 2, args.batch, loss)
            yield {**how, "images": len(x), "what": f"attack {loss}", "steps": args.steps, "epsilons":
                   len(LINF_EPSILONS), "batch": args.batch, "seconds": seconds(run, warm, args.rounds, device)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="default: %(default)s")
    parser.add_argument("--model", action="append", help="may be repeated (default: attack_cnn and resnet18)")
    parser.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="of PGD (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1000, help="images attacked at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="that count (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.exit(1, "needs a CUDA device\n")
    measured = []
    with float32_is("ieee"):
        for case in cases(args, device):
            print(f"{case['what']:12} {case['model']} on {case['images']} images, {case['layout']}, "
                  f"{case['algorithms']}: {case['seconds']:.3f} s", flush=True)
            measured.append({**case, "seconds": round(case["seconds"], 4)})
            if args.out is not None:  # after every case: what was measured is kept when the time is over
                facts = {"device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
                         "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "cases": measured}
                args.out.parent.mkdir(parents=True, exist_ok=True)
                args.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
