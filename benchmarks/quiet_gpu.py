"""Run a command while the trainings on this machine are suspended: its times are then those of a quiet GPU.

    setsid benchmarks/cifar_gpu.sh quick DATA OUT &
    python benchmarks/quiet_gpu.py grid_gpu.py -- benchmarks/kernels_gpu.sh KERNELS 300
    python benchmarks/quiet_gpu.py grid_gpu.py --from measuring --until measured -- benchmarks/kernels_gpu.sh KERNELS

Where a process has the first word in its command line, it and all others of its session are stopped. They continue when
the command has ended, however it ended. Their GPU memory stays taken, and the seconds in the records of these trainings
include the time for which they were suspended. Needs Linux's ``/proc``.

With ``--from TEXT`` they are stopped only when the command prints a line that contains this text, and with ``--until
TEXT`` they continue from the first later line that contains that one; both as often as such lines come. The command
prints into a pipe then, which is passed on as it comes.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

GRACE = 10  # seconds in which a command that is told to end may do so


def sessions() -> dict[int, list[tuple[int, str]]]:
    """Process and command line of everything that runs, by session."""
    found: dict[int, list[tuple[int, str]]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
            session = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[3])
        except OSError:  # it has ended
            continue
        found.setdefault(session, []).append((int(folder.name), command))
    return found


def processes_with(word: str) -> list[int]:
    """All processes of sessions in which one has this word in its command line, apart from this program's session."""
    return [process for session, members in sessions().items() if session != os.getsid(0)
            and any(word in command for _, command in members) for process, _ in members]


def send(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


class Trainings:
    """What is suspended and continues."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.suspended: list[int] = []

    def suspend(self) -> None:
        if self.suspended:
            return
        self.suspended = processes_with(self.word)
        if not self.suspended:
            print(f"quiet_gpu.py: no process of another session has {self.word!r}: nothing was suspended",
                  file=sys.stderr, flush=True)
        send(self.suspended, signal.SIGSTOP)

    def resume(self) -> None:
        send(self.suspended, signal.SIGCONT)
        self.suspended = []


def pass_on(command: subprocess.Popen[bytes], trainings: Trainings, start: str | None, end: str | None) -> None:
    """Print what the command prints until it has ended. Its lines suspend the trainings and let them continue."""
    assert command.stdout is not None
    pipe, last_line = command.stdout.fileno(), b""
    while True:
        if not select.select([pipe], [], [], 0.5)[0]:
            if command.poll() is not None:  # something that it has started holds the pipe
                return
            continue
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return
        *lines, last_line = (last_line + piece).split(b"\n")
        for line in lines:
            if trainings.suspended and end is not None and end.encode() in line:
                trainings.resume()
            elif start is not None and start.encode() in line:
                trainings.suspend()
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def stop(command: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, and what it has started in its process group."""
    if command.poll() is not None:
        return
    os.killpg(command.pid, signal.SIGTERM)
    try:
        command.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(command.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="%(prog)s WORD [--from TEXT] [--until TEXT] -- COMMAND")
    parser.add_argument("word", help="part of the command line of one of the processes to suspend")
    parser.add_argument("--from", dest="start", metavar="TEXT", help="suspend them at a line with this text")
    parser.add_argument("--until", dest="end", metavar="TEXT", help="let them continue at a later line with this text")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else 1
    args, command = parser.parse_args(words[:split]), words[split:]
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        parser.error("expected a command after --")
    marked = args.start is not None or args.end is not None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is below continues them
    trainings, process = Trainings(args.word), None
    try:
        if args.start is None:
            trainings.suspend()
        # A Python program would keep the lines for a pipe until there are many.
        process = subprocess.Popen(command, stdout=subprocess.PIPE if marked else None, process_group=0,
                                   env={**os.environ, "PYTHONUNBUFFERED": "1"} if marked else None)
        if marked:
            pass_on(process, trainings, args.start, args.end)
        return process.wait()
    finally:
        trainings.resume()
        if process is not None:
            stop(process)


if __name__ == "__main__":
    raise SystemExit(main())
