"""What the models of running text write, on a page."""

from __future__ import annotations

from encouraging.report.arms import Arm
from encouraging.report.sections import written


def test_control_characters_are_not_put_on_a_page():
    """A model of pieces can write any byte, and a page with a byte 0 is no valid HTML."""
    text = {"prompt": "To be\n", "written": "or\tnot\x00\nto\x1b be\x0c é 中"}
    (table,) = written.section([Arm("el", "blue", "", {}, [{"text": {"sentences": text}}])]).tables
    assert table.caption.startswith("What follows “To be / ”")
    assert [cell.main for cell in table.rows[0]] == ["el", "or not� / to� be  é 中"]
