"""Run a command while the trainings on this machine are suspended: its times are then those of a quiet GPU.

    setsid benchmarks/cifar_gpu.sh quick DATA OUT &
    python benchmarks/quiet_gpu.py grid_gpu.py -- benchmarks/kernels_gpu.sh KERNELS 300

Where a process has the first word in its command line, it and all others of its session are stopped. They continue when
the command has ended, however it ended. Their GPU memory stays taken, and the seconds in the records of these trainings
include the time for which they were suspended. Needs Linux's ``/proc``.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", help="part of the command line of one of the processes to suspend")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run meanwhile, after --")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("expected a command after --")
    suspended = processes_with(args.word)
    if not suspended:
        print(f"quiet_gpu.py: no process of another session has {args.word!r}: nothing was suspended", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is below continues them
    send(suspended, signal.SIGSTOP)
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        send(suspended, signal.SIGCONT)


if __name__ == "__main__":
    raise SystemExit(main())
