"""Put records of the benchmarks into the documentation: a plot, and tables between markers.

    python benchmarks/show.py results/bench/h200.json results/bench/loss-cpu.json results/bench/loss-cpu-smoothed.json \
        --ours results/bench/h200-ours-2026-11-19.json
    python benchmarks/show.py --matrix results/bench/h200-matrix-2026-11-19.json
    python benchmarks/show.py --images results/bench/cifar-h200.json --attacks results/bench/attacks-h200.json
    python benchmarks/show.py --translation results/bench/translation.json
    python benchmarks/show.py --cpu-matrix results/bench/cpu-matrix.json

Run it in the root of the repository. It writes docs/performance.md and docs/images/bench.svg.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

PAGE = Path("docs/performance.md")
PLOT = Path("docs/images/bench.svg")
ALLOWED = 1.03  # as encouraging.commands.bench_records
CALLS = {  # the calls of the matrix in the words of the page
    "plain": "labels", "ignored": "labels, some ignored", "sum": '`reduction="sum"`', "none": '`reduction="none"`',
    "weighted": "class weights", "smoothed": "label smoothing", "smoothed and weighted": "smoothing and class weights",
    "match_norm": "`match_norm=True`", "soft": "soft targets", "soft and smoothed": "soft targets, smoothed",
    "soft in float32": "soft targets in float32", "soft, none": 'soft targets, `reduction="none"`',
    "own": "a curve of your own", "mse": "squared error with its mirror", "mse without bonus": "squared error",
    "mse, soft": "squared error, soft targets", "mse, sigmoid": "squared error, sigmoid link",
    "sigmoid": "sigmoid link", "sigmoid, alpha": "sigmoid link, `alpha`",
    "sigmoid, class indices": "sigmoid link, class indices", "sigmoid, floats": "sigmoid link, probabilities",
    "sigmoid, none": 'sigmoid link, `reduction="none"`', "sigmoid, positives weighted": "sigmoid link, `pos_weight`"}
COLOURS = {"ours": "#0072B2", "torch": "#999999", "torch.compile": "#666666", "Liger": "#E69F00",
           "published": "#D55E00"}


def colour(name: str) -> str:
    return next((shade for start, shade in reversed(COLOURS.items()) if name.startswith(start)), "#000000")


def done(case: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, result) for name, result in case["results"].items() if "milliseconds" in result]


def draw(cases: list[dict[str, Any]]) -> None:
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "encouraging", "font.size": 9})
    figure, axes = plt.subplots(3, 3, figsize=(13, 9), constrained_layout=True)
    for axis, case in zip(axes.flat, cases, strict=False):
        bars = sorted(done(case), key=lambda item: -item[1]["milliseconds"])
        times = [result["milliseconds"] for _, result in bars]
        drawn = axis.barh([name for name, _ in bars], times, color=[colour(name) for name, _ in bars])
        axis.bar_label(drawn, labels=[f" {time:.3g}" for time in times], fontsize=8)
        axis.axvline(case["floor_milliseconds"], color="black", linewidth=1, linestyle="--")
        axis.set_title(case["shape"], fontsize=9)
        axis.set_xlabel("milliseconds (dashed: the floor)")
        if not case["width"]:  # from a copy's price to a hundred times that
            axis.set_xscale("log")
            axis.set_xlim(case["floor_milliseconds"] / 2, 3 * max(times))
        else:
            axis.set_xlim(0, 1.2 * max(times))
        axis.spines[["top", "right"]].set_visible(False)
    for axis in list(axes.flat)[len(cases):]:
        axis.remove()
    figure.savefig(PLOT, metadata={"Date": None})


def table(cases: list[dict[str, Any]]) -> str:
    lines = ["| case | loss | ms | of the floor | extra MiB | host ms |", "| --- | --- | --- | --- | --- | --- |"]
    for case in cases:
        for name, result in sorted(done(case), key=lambda item: item[1]["milliseconds"]):
            lines.append(f"| {case['shape']} | {name} | {result['milliseconds']:.3f} | "
                         f"{result['share_of_floor']:.0%} | {result['extra_mib']:.0f} | "
                         f"{result['host_milliseconds']:.2f} |")
        for name, result in case["results"].items():
            if "failed" in result:
                lines.append(f"| {case['shape']} | {name} | failed: {result['failed'][:60]} | | | |")
    return "\n".join(lines)


def with_newer(record: dict[str, Any], source: Path) -> str:
    """Put our times on logits of a newer record into an older one of all contenders, and say so. Not those of output
    layers: matrix products depend on how warm a GPU is, and so on what ran in turn with them."""
    newer = json.loads(source.read_text())
    if newer["device"] != record["device"]:
        raise SystemExit(f"{source} is of {newer['device']}, the other record of {record['device']}.")
    own = {case["shape"]: case["results"] for case in newer["cases"]}
    for case in record["cases"]:
        if not case["width"]:
            case["results"] |= {name: result for name, result in own.get(case["shape"], {}).items()
                                if name.startswith("ours")}
    return f"; *ours* on logits of {newer['encouraging']}, {newer['date']}: `{source}`"


def cpu_table(source: Path) -> str:
    record = json.loads(source.read_text())
    machine = f"torch {record['torch']}, {record['threads']} threads, {record['capability']}, {record['date']}"
    with_smoothing = ", both smoothed" if record.get("label_smoothing") else ""
    limited = any(case["limit"] for case in record["cases"])
    heads = ["rows x classes", f"EL / CE{with_smoothing}, time", *["limit of the check"] * limited, "peak MiB, CE",
             "peak MiB, EL"]
    lines = [f"{machine}: `{source}`.", "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for case in record["cases"]:
        theirs, ours = (case[f"{name}_peak_bytes"] / 2**20 for name in ("cross_entropy", "encouraging"))
        cells = [f"{case['rows']} x {case['classes']}", f"{case['ratio']:.2f}", *[str(case["limit"] or "")] * limited,
                 f"{theirs:.3g}", f"{ours:.3g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cpu_matrix(source: Path) -> str:
    """Every kind of call beside the same formula: one table per shape, one column per curve and way."""
    record = json.loads(source.read_text())
    cases = record["cases"]
    parts = []
    for how, words in (("eager", "eager mode beside eager mode"), ("compiled", "compiled beside compiled")):
        ratios = [case[how]["ratio"] for case in cases]
        parts.append(f"{words}: median {statistics.median(ratios):.2f}, slowest {max(ratios):.2f}, "
                     f"{sum(ratio > ALLOWED for ratio in ratios)} of {len(ratios)} above {ALLOWED}")
    lines = [textwrap.fill(f"torch {record['torch']}, {record['threads']} thread, {record['capability']}, "
                           f"{record['date']}: `{source}`. {'; '.join(parts)}.", 120)]
    curves = list(dict.fromkeys(case_curve(case) for case in cases if case["call"] == "plain"))
    for shape in dict.fromkeys((case["rows"], case["classes"]) for case in cases):
        there = {(case["call"], case_curve(case)): case for case in cases if (case["rows"], case["classes"]) == shape}
        lines += ["", " | ".join([f"| {shape[0]} x {shape[1]}", *(f"{curve}, {how}" for curve in curves
                                                                   for how in ("eager", "compiled"))]) + " |",
                  "| --- " * (1 + 2 * len(curves)) + "|"]
        for call in dict.fromkeys(name for name, _ in there):
            row = [there.get((call, curve)) for curve in curves]
            if not any(row):  # a call with a curve of its own
                row[0] = next(case for (name, _), case in there.items() if name == call)
            cells = [f"{case[how]['ratio']:.2f}" if case else "" for case in row for how in ("eager", "compiled")]
            lines.append(" | ".join([f"| {CALLS.get(call, call)}", *cells]) + " |")
    return "\n".join(lines)


def case_curve(case: dict[str, Any]) -> str:
    return f"{case['curve']}({', '.join(f'{number:g}' for number in case['numbers'])})"


def matrix_summary(source: Path, shown: int = 12) -> str:
    """``encouraging bench --matrix``: worst, median, how many are slower than torch, all by argument, the slowest."""
    record = json.loads(source.read_text())
    cases = [case for case in record["cases"] if "ratio" in case]
    slower = [case for case in cases if case["ratio"] > ALLOWED]
    versions = ", ".join(f"{name} {record[name]}" for name in ("torch", "triton", "encouraging"))
    above = (f"Of {len(cases)} calls that we chose, {len(slower)} {'takes' if len(slower) == 1 else 'take'}" if slower
             else f"None of {len(cases)} calls that we chose takes")
    words = (f"{above} more than {ALLOWED} of the time of the same formula in torch, eager or compiled, whichever is "
             f"faster. The median takes **{record['median_ratio']:.2f}** of it, the slowest "
             f"**{record['worst_ratio']:.2f}**. Measured forward and backward on one {record['device']} ({versions}, "
             f"{record['date']}: `{source}`): device time from 1 MiB of logits on, wall time below.")
    lines = [textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False), "", *by_argument(cases), "",
             "The slowest calls, in milliseconds:", "",
             "| ratio | call | ours | torch | torch.compile | measured |", "| --- | --- | --- | --- | --- | --- |"]
    for case in cases[:shown]:
        times = (f"{case['milliseconds'][name]:.3f}" if name in case["milliseconds"] else "failed"
                 for name in ("ours", "torch", "torch.compile"))
        lines.append(f"| {case['ratio']:.2f} | {case['case']} | {' | '.join(times)} | {case['measured']} |")
    return "\n".join(lines)


def by_argument(cases: list[dict[str, Any]]) -> list[str]:
    """What users ask for, how many calls of it there are, and how they compare with torch's best."""
    ratios: dict[str, list[float]] = {}
    for case in cases:
        ratios.setdefault("own" if case["curve"] == "own" else case["call"], []).append(case["ratio"])
    order = [*CALLS, *(name for name in ratios if name not in CALLS)]
    lines = ["| what | calls | median | slowest |", "| --- | --- | --- | --- |"]
    for name in (name for name in order if name in ratios):
        own = ratios[name]
        lines.append(f"| {CALLS.get(name, name)} | {len(own)} | {statistics.median(own):.2f} | {max(own):.2f} |")
    return lines


def image_rates(source: Path) -> str:
    """Images per second of ``cifar_throughput.py``: bare network, engine, input alone, and tests in float32."""
    record = json.loads(source.read_text())
    heads = ["images per second", "bare network", "in the engine", "input alone", "engine / bare", "input / bare"]
    if tested := any("evaluation" in case["images_per_second"] for case in record["cases"]):
        heads.append("tests, in float32")
    lines = [f"{record['device']}, torch {record['torch']}, {record['date']}: `{source}`.", "",
             f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for case in record["cases"]:
        rates = case["images_per_second"]
        bare = max(rate for name, rate in rates.items() if name.startswith("bare"))
        how = case["precision"] + (", compiled" if case.get("compiled") else "")
        cells = [f"{case['model']} at {case['size']} pixels, batch {case['batch']}, {how}", f"{bare:.0f}",
                 f"{rates['engine']:.0f}", f"{rates['input']:.0f}", f"{rates['engine'] / bare:.2f}",
                 f"{rates['input'] / bare:.2f}"]
        if tested:
            cells.append(f"{rates['evaluation']:.0f}" if "evaluation" in rates else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def attack_times(source: Path) -> str:
    """Seconds of ``attack_speed.py``: attacks and evaluations in float32."""
    record = json.loads(source.read_text())
    lines = [f"{record['device']}, torch {record['torch']}, {record['date']}: `{source}`.", "",
             "| what | network | images | layout | cuDNN's algorithms | seconds |",
             "| --- | --- | --- | --- | --- | --- |"]
    for case in record["cases"]:
        what = (f"PGD by {case['what'].removeprefix('attack ')}, {case['steps']} steps at {case['epsilons']} epsilons"
                if "steps" in case else "a forward pass over all images")
        lines.append(f"| {what} | {case['model']} | {case['images']} | {case['layout'].replace('_', ' ')} | "
                     f"{case['algorithms']} | {case['seconds']:.2f} |")
    return "\n".join(lines)


def translation_rates(source: Path) -> str:
    """Tokens per second of ``translation_speed.py``, and how long its beam search takes."""
    record = json.loads(source.read_text())
    machine, search, rates = record["environment"], record["search"], record["tokens_per_second"]
    what = f"`{record['recipe']}` in {record['precision']}"
    lines = [f"{machine['device']}, torch {machine['torch']}, {what}: `{source}`.", "",
             "| target tokens per second | | beside the bare loop |", "| --- | --- | --- |"]
    lines += [f"| {name} | {rate:.0f} | {rate / rates['bare loop']:.2f} |" for name, rate in rates.items()]
    words = (f"{search['sentences']} sentences with beam {search['beam']} take {search['seconds']:.1f} s; "
             f"`{source.with_suffix('.txt')}` shows where the time goes.")
    return "\n".join([*lines, "", words])


def put(name: str, text: str) -> None:
    """Replace what stands between a pair of markers."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = PAGE.read_text()
    PAGE.write_text(f"{page[: page.index(begin)]}{begin}\n\n{text}\n\n{page[page.index(end):]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix", type=Path, help="a record of `encouraging bench --matrix --out FILE`")
    parser.add_argument("--ours", type=Path, help="a newer record of `encouraging bench --only ours --out FILE` on the "
                        "same GPU, whose times replace those of ours in the first record")
    parser.add_argument("--images", type=Path, help="a record of `python benchmarks/cifar_throughput.py --out FILE`")
    parser.add_argument("--attacks", type=Path, help="a record of `python benchmarks/attack_speed.py --out FILE`")
    parser.add_argument("--translation", type=Path,
                        help="a record of `python benchmarks/translation_speed.py --out FILE`")
    parser.add_argument("--cpu-matrix", type=Path,
                        help="a record of `python benchmarks/matrix_cpu.py --out FILE`")
    parser.add_argument("gpu", type=Path, nargs="?", help="a record of `encouraging bench --out FILE` on a GPU")
    parser.add_argument("cpu", type=Path, nargs="?", help="a record of `python benchmarks/loss_cpu.py --out FILE`")
    parser.add_argument("smoothed", type=Path, nargs="?", help="the same with --smoothing 0.1")
    if len(sys.argv) == 1:
        parser.print_help()
        return
    asked = parser.parse_args()
    if asked.matrix:
        put("matrix", matrix_summary(asked.matrix))
    if asked.images:
        put("images", image_rates(asked.images))
    if asked.attacks:
        put("attacks", attack_times(asked.attacks))
    if asked.translation:
        put("translation", translation_rates(asked.translation))
    if asked.cpu_matrix:
        put("cpu matrix", cpu_matrix(asked.cpu_matrix))
    if asked.gpu is None:
        return
    if asked.smoothed is None:
        parser.error("expected three records: of the GPU, of the CPU, and of the CPU with smoothing")
    source = asked.gpu
    record = json.loads(source.read_text())
    newer = "" if asked.ours is None else with_newer(record, asked.ours)
    losses = [case for case in record["cases"] if not case["width"]]
    layers = [case for case in record["cases"] if case["width"]]
    draw(losses + layers)
    versions = ", ".join(f"{name} {record[name]}" for name in ("torch", "triton", "liger_kernel", "encouraging")
                         if name in record)
    text = "\n\n".join([
        textwrap.fill(
            f"{record['device']}, {versions}, {record['date']}: `{source}`{newer}. Milliseconds are the GPU's for "
            "forward and backward through autograd; *host* is what Python and torch spend on queueing that work, which "
            "overlaps with it in training.", 120, break_long_words=False, break_on_hyphens=False),
        "![Forward and backward of every contender, in milliseconds](images/bench.svg)",
        "### Losses on logits", table(losses), "### Output layer and loss together", table(layers)])
    put("bench", text)
    put("cpu", cpu_table(asked.cpu))
    put("cpu smoothed", cpu_table(asked.smoothed))


if __name__ == "__main__":
    main()
