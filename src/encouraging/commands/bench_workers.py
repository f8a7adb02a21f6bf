"""Processes that compile beside each other and measure one after the other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

_Item = TypeVar("_Item", bound=Hashable)
_Result = TypeVar("_Result")


class Workers:
    """Pools of one process each, so that an item comes back to the process that has prepared it. With one worker, that
    is this process."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, mp_context=context) for _ in range(count)] if count > 1 else []
        self._pool_of: dict[Any, ProcessPoolExecutor] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for pool in self._pools:
            pool.shutdown(wait=error is None, cancel_futures=True)

    def prepare(self, function: Callable[[_Item], object], items: Sequence[_Item]) -> None:
        """Call the function with all items, in parallel. Errors are raised later, by :meth:`result`. With one worker
        nothing is done ahead."""
        if not self._pools:
            return
        print(f"compiling {len(items)} cases in {len(self._pools)} processes ...", flush=True)
        remaining = iter(items)
        busy: dict[Future[object], ProcessPoolExecutor] = {}

        def give_next(pool: ProcessPoolExecutor) -> None:
            for item in remaining:
                self._pool_of[item] = pool
                with suppress(BrokenProcessPool):  # a process that has ended gets no more items; :meth:`result` raises
                    busy[pool.submit(function, item)] = pool
                return

        for pool in self._pools:
            give_next(pool)
        while busy:  # a pool that is done takes the next item: some take ten times as long as others
            done, _ = wait(busy, return_when=FIRST_COMPLETED)
            for future in done:
                future.exception()
                give_next(busy.pop(future))

    def result(self, function: Callable[..., _Result], item: Any, *arguments: Any) -> _Result:
        """The result for an item, from the process that has prepared it."""
        if item not in self._pool_of:
            return function(item, *arguments)
        return self._pool_of[item].submit(function, item, *arguments).result()
