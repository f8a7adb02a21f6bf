"""``benchmarks/quiet_gpu.py``: other sessions stand still while a command runs, and continue however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "quiet_gpu.py"
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def training(tmp_path: Path):
    """A process with a name of its own, and a child of it that has another one, in a session of their own."""
    program = tmp_path / "some_training.py"
    program.write_text("import subprocess, sys\n"
                       "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
                       "print(child.pid, flush=True)\nchild.wait()\n")
    with subprocess.Popen([sys.executable, program], start_new_session=True, stdout=subprocess.PIPE,
                          text=True) as process:
        child = int(process.stdout.readline())
        yield process.pid, child
        for running in (child, process.pid):
            subprocess.run(["kill", "-KILL", str(running)], check=True)
        process.stdout.close()


LOOK = """
import sys
print(*[open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] for process in sys.argv[1:]])
sys.exit(7)
"""


def test_the_whole_session_stands_still_while_the_command_runs(training) -> None:
    done = subprocess.run([sys.executable, SCRIPT, "some_training.py", "--", sys.executable, "-c", LOOK,
                           *map(str, training)], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.returncode) == (["T", "T"], 7)
    assert "T" not in [state(process) for process in training]


def test_a_signal_lets_them_continue(training) -> None:
    with subprocess.Popen([sys.executable, SCRIPT, "some_training.py", "--", "sleep", "600"]) as quiet:
        deadline = time.monotonic() + 60
        while [state(process) for process in training] != ["T", "T"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        quiet.send_signal(signal.SIGTERM)
        assert quiet.wait(timeout=60) == 143
    assert "T" not in [state(process) for process in training]


SPEAK = """
import sys, time
def look(*words):
    print(*words, *[open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] for process in sys.argv[1:]])
def say(line):
    print(line)
    time.sleep(0.5)  # as a kernel that was queued would take
look("before:")
for line in ("measured by nobody", "now measuring 3 cases"):
    say(line)
look("quiet:")
say("all measured, not measuring any more")
look("between:")
say("measuring again")
look("again:")
print("no end of a line", end="")
sys.exit(7)
"""


def test_lines_of_the_command_suspend_and_continue(training) -> None:
    done = subprocess.run([sys.executable, SCRIPT, "some_training.py", "--from", "measuring", "--until", "measured",
                           "--", sys.executable, "-c", SPEAK, *map(str, training)], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (7, "")
    states = {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split())[0].endswith(":")}
    assert states["quiet:"] == states["again:"] == ["T", "T"]
    assert "T" not in states["before:"] + states["between:"]
    assert done.stdout.startswith("before:")
    assert done.stdout.endswith("no end of a line")
    assert "T" not in [state(process) for process in training]


def test_a_signal_after_the_line_continues_them_and_ends_the_command_and_its_children(training, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"sleep 600 & echo $$ $! > {pids}; echo measuring; wait"
    with subprocess.Popen([sys.executable, SCRIPT, "some_training.py", "--from", "measuring", "--", "bash", "-c",
                           program], stdout=subprocess.PIPE) as quiet:
        deadline = time.monotonic() + 60
        while [state(process) for process in training] != ["T", "T"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        quiet.send_signal(signal.SIGTERM)
        assert quiet.wait(timeout=60) == 143
        assert quiet.stdout.read() == b"measuring\n"
    assert "T" not in [state(process) for process in training]
    for process in pids.read_text().split():
        while Path(f"/proc/{process}").exists() and state(int(process)) != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_output_comes_at_once(training) -> None:
    program = "import time; print('first'); time.sleep(600)"
    with subprocess.Popen([sys.executable, SCRIPT, "some_training.py", "--from", "never", "--", sys.executable, "-c",
                           program], stdout=subprocess.PIPE) as quiet:
        assert quiet.stdout.readline() == b"first\n"
        assert "T" not in [state(process) for process in training]
        quiet.send_signal(signal.SIGTERM)
        assert quiet.wait(timeout=60) == 143


def test_nothing_to_suspend_is_said_and_the_command_runs_all_the_same() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "no_such_training.py", "--", "echo", "ran"], capture_output=True,
                          text=True, check=False)
    assert (done.stdout, done.returncode) == ("ran\n", 0)
    assert "nothing was suspended" in done.stderr
