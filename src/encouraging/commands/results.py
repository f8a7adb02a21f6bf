"""``encouraging results``: the page of results, from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine.outputs import check_output, make_folder, write_output
from ..errors import ArgumentError
from ..report.markdown_forms import check_markers
from ..report.results import page_of, read_results, updated_page


def write_results(records: Path, out: Path, update: Sequence[Path] = ()) -> list[Path]:
    """Write the Markdown page of the recipes that have records below a folder, and update the marked blocks of other
    pages; returns the paths of what was written."""
    check_output(out, [records])
    texts = {path: _page_with_markers(path, records) for path in update}  # refused before the records are read
    results = read_results(records)
    pages = {out: page_of(results, links=(out.parent / "verdicts.md").is_file()).encode()}
    written = {out.resolve(): pages[out]}

    def add(path: Path, content: bytes) -> None:
        if written.setdefault(path.resolve(), content) != content:
            raise ArgumentError(f"{path}: this command would write it twice, with different content. Give the page of "
                                "results and the pages of --update names of their own; two pages in one folder cannot "
                                "have different figures of one recipe.")
        pages[path] = content

    for path, text in texts.items():
        page, pictures = updated_page(text, results, str(path))
        add(path, page.encode())
        for name, svg in pictures.items():
            check_output(path.parent / name, [records], make_parents=True)
            add(path.parent / name, svg)
    for path, content in pages.items():
        make_folder(path.parent)
        write_output(path, content)
    return list(pages)


def _page_with_markers(path: Path, records: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"--update {path}: expected a Markdown page with markers ({error}).") from error
    check_output(path, [records])
    check_markers(text, str(path))
    return text
