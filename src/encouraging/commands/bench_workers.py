"""Processes that compile beside each other and measure one after the other."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, TypeVar

_Item = TypeVar("_Item", bound=Hashable)
_Result = TypeVar("_Result")


class Workers:
    """Pools of one process each, so that an item comes back to the process that has prepared it. With one worker, that
    is this process, unless ``apart``."""

    def __init__(self, count: int, *, apart: bool = False) -> None:
        self._pools = [_new_pool() for _ in range(count)] if count > 1 or apart else []
        self._pool_of: dict[Any, ProcessPoolExecutor] = {}
        self._errors: dict[Any, BaseException] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for pool in self._pools:
            pool.shutdown(wait=error is None, cancel_futures=True)

    def prepare(self, function: Callable[[_Item], object], items: Sequence[_Item], *,
                again_after: tuple[type[BaseException], ...] = (), report_every: int = 0) -> None:
        """Call the function with all items, in parallel. Errors are raised later, by :meth:`result`. With one worker
        that is this process, nothing is done ahead.

        A process in which an item has failed is replaced, because its GPU may be lost to it; what it had prepared is
        prepared again.

        Args:
            function: what to call, importable by name.
            items: its arguments.
            again_after: errors that harm no process, such as too little memory. Such an item has a second turn at the
                end, alone.
            report_every: print a line after so many items.
        """
        if not self._pools:
            return
        print(f"compiling {len(items)} cases in {len(self._pools)} processes ...", flush=True)
        start, ended = time.monotonic(), 0
        waiting, alone = deque(items), set[_Item]()
        busy: dict[Future[object], tuple[_Item, ProcessPoolExecutor]] = {}

        def give_next(pool: ProcessPoolExecutor) -> None:
            if waiting:
                item = waiting.popleft()
                self._pool_of[item] = pool
                try:
                    busy[pool.submit(function, item)] = item, pool
                except BrokenProcessPool as error:  # the process has ended after its last item
                    self._errors[item] = error

        for pool in self._pools:
            give_next(pool)
        while busy:  # a pool that is done takes the next item: some take ten times as long as others
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            for future in done:
                item, pool = busy.pop(future)
                error = future.exception()
                ended += 1
                if isinstance(error, again_after):
                    alone.add(item)
                elif error is not None:
                    self._errors[item] = error
                    pool, lost = self._replace(pool)
                    waiting.extend(lost)
                    ended -= len(lost)
                if report_every and ended % report_every == 0:
                    print(f"prepared {ended} of {len(items)} in {time.monotonic() - start:.0f} s", flush=True)
                give_next(pool)
        for item in alone:
            try:
                self._pool_of[item].submit(function, item).result()
            except Exception as error:  # :meth:`result` raises it
                self._errors[item] = error

    def _replace(self, pool: ProcessPoolExecutor) -> tuple[ProcessPoolExecutor, list[Any]]:
        """A new process in the place of one, and the items that had been prepared in it."""
        pool.shutdown(wait=False)
        new = self._pools[self._pools.index(pool)] = _new_pool()
        lost = [item for item, its_pool in self._pool_of.items() if its_pool is pool and item not in self._errors]
        for item in lost:
            del self._pool_of[item]
        return new, lost

    def result(self, function: Callable[..., _Result], item: Any, *arguments: Any) -> _Result:
        """The result for an item, from the process that has prepared it."""
        if item in self._errors:
            raise self._errors[item]
        if item not in self._pool_of:
            return function(item, *arguments)
        return self._pool_of[item].submit(function, item, *arguments).result()


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this process with its parent: after a signal it would otherwise wait for items for ever, with its GPU memory.
    """
    parent = multiprocessing.parent_process()

    def end() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()
