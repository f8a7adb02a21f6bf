"""The command line, in process and as a real command."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from encouraging import curves
from encouraging.cli import app, main
from encouraging.commands.curves import parse_curve
from encouraging.errors import CurveError

run = CliRunner().invoke


def svg_text(path: Path) -> str:
    return " ".join("".join(node.itertext()).strip() for node in ET.parse(path).iter() if node.tag.endswith("}text"))


def test_version_and_help_as_a_real_command() -> None:
    command = Path(sys.executable).parent / "encouraging"
    call = [command] if command.exists() else [sys.executable, "-c", "from encouraging.cli import main; main()"]
    done = subprocess.run([*call, "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert re.fullmatch(r"encouraging \d+\.\d+\S*\n", done.stdout)
    done = subprocess.run([*call, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "curves" in done.stdout
    assert "bench" in done.stdout


def test_version_every_help_and_a_comparison_of_records_answer_without_importing_torch() -> None:
    commands = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert {"run", "list", "bench", "diagnose", "report"} <= set(commands)
    code = ("import sys\nfrom typer.testing import CliRunner\nfrom encouraging.cli import app\n"
            f"record = {str(Path(__file__).parents[1] / 'results' / 'bench' / 'h200.json')!r}\n"
            "for words in [['--version'], ['--help'], ['bench', '--compare', record, record],\n"
            f"              *([name, '--help'] for name in {commands})]:\n"
            "    done = CliRunner().invoke(app, words)\n"
            "    assert done.exit_code == 0 and done.output, words\n"
            "print(*{'torch', 'numpy', 'matplotlib', 'scipy', 'sklearn', 'triton'} & set(sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == ""


def test_the_paper_s_figures_have_their_labels(tmp_path: Path) -> None:
    result = run(app, ["curves", "--out", str(tmp_path / "curves.svg")])
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "curves.svg") in result.output.replace("\n", "")
    text = svg_text(tmp_path / "curves.svg")
    for label in ("cross-entropy", "bonus", "LE = 0.5", "LE = 0.75", "LE = 1", "aggressive", "focal", "halted focal",
                  "pull", "gap", "probability p of the label"):
        assert label in text, label


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        assert run(app, ["curves", "--out", str(tmp_path / name)]).exit_code == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_chosen_curves_are_drawn_by_name(tmp_path: Path) -> None:
    out = tmp_path / "mine.svg"
    result = run(app, ["curves", "--out", str(out), "--curve", "conservative:log_end=0.5",
                       "--curve", "halted_focal:gamma=1,halt=0.6", "--curve", "cross_entropy"])
    assert result.exit_code == 0, result.output
    text = svg_text(out)
    assert "conservative(log_end=0.5)" in text
    assert "halted_focal(gamma=1.0, halt=0.6)" in text
    assert "aggressive" not in text


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_other_formats_by_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    out = tmp_path / f"curves{suffix}"
    assert run(app, ["curves", "--out", str(out), "--curve", "focal"]).exit_code == 0
    assert out.read_bytes().startswith(magic)


@pytest.mark.parametrize(("arguments", "says"), [
    (["--curve", "foccal"], "Did you mean 'focal'?"),
    (["--curve", "focal:gama=2"], "Did you mean 'gamma'?"),
    (["--curve", "focal:gamma"], "expected PARAM=VALUE"),
    (["--curve", "encouraging:0.5"], "PARAM=VALUE after the colon, such as encouraging:log_end=...; got '0.5'"),
    (["--curve", "focal:gamma=two"], "gamma must be a number, got 'two'"),
    (["--curve", "focal:gamma=1,gamma=2"], "gamma is given twice"),
    (["--curve", "conservative:log_end=1.5"], "expected 0 <= log_end < 1"),
    (["--out", "curves.gif"], ".svg, .png or .pdf"),
    (["--out", "no/such/folder/curves.svg"], "there is no folder"),
])
def test_a_wrong_argument_gets_exit_code_2_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       arguments: list[str], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(app, ["curves", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_curves_are_parsed_with_their_parameters() -> None:
    assert parse_curve("encouraging:log_end=1") == curves.normal()
    assert parse_curve(" aggressive : start = 0.5 , eps = 0 ") == curves.aggressive(0.5, 0.0)
    assert parse_curve("square:bonus=true") == curves.square(bonus=True)
    with pytest.raises(CurveError):
        parse_curve("")


@pytest.mark.parametrize(("code", "ignored"), [(130, True), (1, False)])
def test_when_it_was_interrupted_one_more_ctrl_c_at_the_end_is_ignored(monkeypatch, code, ignored):
    """Python would answer it with a traceback of whatever it puts away then."""
    def end() -> None:
        raise SystemExit(code)

    monkeypatch.setattr("encouraging.cli._app.app", end)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin by ignoring it
    try:
        with pytest.raises(SystemExit):
            main()
        assert (signal.getsignal(signal.SIGINT) == signal.SIG_IGN) == ignored
    finally:
        signal.signal(signal.SIGINT, before)
