"""The benchmark runs anywhere and writes down what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from encouraging import curve_loss
from encouraging.cli import app
from encouraging.commands import bench
from encouraging.commands.bench_contenders import EL, published
from encouraging.errors import ArgumentError
from forked import run_python


def test_a_small_run_writes_every_contender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "bench.json"
    shapes = [bench.Shape(8, 5, torch.float32), bench.Shape(8, 5, torch.float32, width=3)]
    record = bench.run(shapes, out, device="cpu", seconds=0.0)
    assert json.loads(out.read_text()) == json.loads(json.dumps(record))
    loss, layer = record["cases"]
    assert {"ours, EL", "ours, CE", "ours, EL smoothed", "torch CE", "torch CE smoothed",
            "published EL"} <= set(loss["results"])
    assert {"ours, EL", "torch linear + CE"} <= set(layer["results"])
    for case in record["cases"]:
        for name, result in case["results"].items():
            assert "failed" not in result, f"{name}: {result}"
            assert result["milliseconds"] > 0
            assert result["share_of_floor"] == pytest.approx(case["floor_milliseconds"] / result["milliseconds"])
    assert "No GPU is measured here" in capsys.readouterr().out


def test_the_published_loss_is_ours_where_it_is_accurate() -> None:
    logits, target = torch.randn(64, 10), torch.randint(10, (64,))
    ours = curve_loss(logits, target, EL)
    torch.testing.assert_close(published(logits, target), ours, rtol=1e-5, atol=1e-5)


def test_shapes_of_ones_own_are_measured_in_the_type_measured_for(tmp_path: Path) -> None:
    out = tmp_path / "own.json"
    result = CliRunner().invoke(app, ["bench", "--device", "cpu", "--seconds", "0", "--dtype", "bfloat16", "--out",
                                      str(out), "--shape", "8x5", "--shape", "6x3x4", "--shape", "8x5"])
    assert result.exit_code == 0, result.output
    cases = json.loads(out.read_text())["cases"]
    sizes = [(case["rows"], case["width"], case["classes"], case["dtype"]) for case in cases]
    assert sizes == [(8, None, 5, "torch.bfloat16"), (6, 3, 4, "torch.bfloat16")]


def test_a_type_alone_changes_the_usual_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[bench.Shape] = []
    monkeypatch.setattr(bench, "run", lambda shapes, *_: measured.extend(shapes))
    bench.run_arguments((), "float64", None, "cpu", 0.0)
    assert measured == [shape._replace(dtype=torch.float64) for shape in bench.CPU_SHAPES]
    measured.clear()
    bench.run_arguments(("8x5",), None, None, "cpu", 0.0)
    assert measured == [bench.Shape(8, 5, torch.float32)]


@pytest.mark.parametrize(("words", "message"), [
    (["--device", "tpu"], "--device tpu: expected cpu, cuda or auto"),
    (["--device", "meta"], "--device meta: expected cpu, cuda or auto"),
    (["--shape", "4096"], "--shape 4096: expected ROWSxCLASSES such as 4096x50257"),
    (["--shape", "0x10"], "expected ROWSxCLASSES"),
    (["--shape", "2x3x4x5"], "expected ROWSxCLASSES"),
    (["--dtype", "int8"], "--dtype int8: expected float32, bfloat16, float16, float64"),
    (["--out", "."], "this is a folder"),
    pytest.param(["--device", "cuda"], "torch sees no GPU here",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")),
])
def test_a_wrong_word_is_answered_in_one_line_before_anything_is_measured(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.output.count("\n") == 1
    assert message in result.output


def test_a_shape_that_does_not_fit_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"--shape 2 x 10+ float32: "):
        bench.run([bench.Shape(2, 10**15, torch.float32)], device="cpu", seconds=0.0)


def test_versions_come_from_the_installation_where_a_package_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", types.ModuleType("liger_kernel"))
    monkeypatch.setattr(bench.metadata, "version", {"liger_kernel": "0.9.1"}.__getitem__)
    assert bench._machine("cpu")["liger_kernel"] == "0.9.1"

    def absent(name: str) -> str:
        raise bench.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(bench.metadata, "version", absent)
    assert bench._machine("cpu")["liger_kernel"] == "installed"


def test_every_script_explains_itself_without_triton_and_without_a_gpu() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    code = ("import runpy, sys\nsys.modules['triton'] = None\n"
            "for path in sys.argv[1:]:\n"
            "    sys.argv = [path] if path.endswith('show.py') else [path, '--help']\n"
            "    try:\n        runpy.run_path(path, run_name='__main__')\n"
            "    except SystemExit as end:\n        assert not end.code, path\n")
    scripts = sorted(map(str, folder.glob("*.py")))
    done = subprocess.run([sys.executable, "-c", code, *scripts], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(scripts) > 0


def test_the_engine_is_measured_beside_a_bare_loop_also_on_a_part_of_the_images(tmp_path: Path) -> None:
    """Both loops see the same batches: a part that one of them does not know of would be an index out of bounds."""
    script = tmp_path / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'benchmarks')!r})\n"
                      "import engine_overhead\n"
                      "print(engine_overhead.ratio('digits', 'digits_mlp', 16, None, 64, 2))\n")
    printed = run_python(script).stdout
    assert 0 < float(printed) < float("inf")  # how much it is says nothing on a busy machine
