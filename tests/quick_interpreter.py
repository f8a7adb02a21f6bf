"""Triton's interpreter without the work that it repeats at every call of a function inside a kernel.

A launch replaces the functions of ``triton.language`` by interpreted ones and puts the originals back at its end. The
interpreter also replaces them before each call of a function within the kernel, where they are replaced already: it
looks through all names of the language to find nothing to do, for a third of the time of our kernels' tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def once_per_launch(interpreter: Any) -> None:
    """Replace the language once per launch. Of no effect for a Triton whose interpreter has no such scope."""
    if not hasattr(interpreter, "_LangPatchScope"):
        return
    languages = (interpreter.tl, interpreter.tl.core)
    replace: Callable[[Any], Any] = interpreter._patch_lang
    seen_by: dict[Any, frozenset[int]] = {}
    replaced: set[int] = set()  # what the launch under way has replaced: which functions see one of the two modules

    def patch_lang(fn: Any) -> Any:
        if fn not in seen_by:
            seen_by[fn] = frozenset(id(value) for value in fn.__globals__.values()
                                    if any(value is language for language in languages))
        if seen_by[fn] and seen_by[fn] <= replaced:
            return interpreter._LangPatchScope()
        launch, scope = not replaced, replace(fn)
        replaced.update(seen_by[fn])
        if launch:
            restore = scope.restore

            def restored() -> None:
                replaced.clear()
                restore()

            scope.restore = restored
        return scope

    interpreter._patch_lang = patch_lang
