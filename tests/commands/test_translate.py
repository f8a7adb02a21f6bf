"""`encouraging translate` on text as people have it: one translation per line, whatever the lines are."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
import torch

from encouraging.commands.translate import translate_lines
from encouraging.engine.distributed import World
from encouraging.errors import DataError
from encouraging.recipes import translator
from encouraging.recipes.translator import load_translator
from encouraging.tasks.translation import USUAL, search_batches
from translation_toys import RECIPE, train_on


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translate")
    (folder / "numbers.toml").write_text(RECIPE)
    train_on(World(), folder / "numbers.toml", folder / "run", "train.epochs=12")
    return folder / "run"


def translated(run, text: bytes, **options) -> list[str]:
    """As from a pipe, whose text may be decoded in other ways than UTF-8 until it is told."""
    lines, out = io.TextIOWrapper(io.BytesIO(text), "ascii", "surrogateescape"), io.StringIO()
    before, sys.stdin = sys.stdin, lines
    try:
        count = translate_lines(run, out=out, device="cpu", **options)
    finally:
        sys.stdin = before
    said = out.getvalue().split("\n")
    assert len(said) == count + 1
    return said[:-1]


@pytest.mark.parametrize("text", ["1 2 3\r\n4\r\n", "\ufeff1 2 3\n4\n", "1 2 3\n4", "1\r2 3\n4\n", "1\u20282 3\n4\n"])
def test_marks_and_other_line_ends_change_nothing(run, text):
    plain = translated(run, b"1 2 3\n4\n")
    assert all(plain)
    assert translated(run, text.encode()) == plain


def test_there_are_as_many_translations_as_lines(run):
    text = "\n\n1\n\x00\n漢字 🙂\n" + "1 2 3 4 5 6 7 " * 20 + "\n \n7"
    said = translated(run, text.encode())
    assert len(said) == 8
    assert [line == "" for line in said[:3]] == [True, True, False]
    assert said[6] == ""
    assert translated(run, b"") == []


def test_text_that_is_not_utf8_is_refused_in_words(run):
    with pytest.raises(DataError, match=r"line 1 or one soon after it is not text in UTF-8"):
        translated(run, b"1 2\n\xff\xfe\n")


def test_the_order_of_lines_and_the_batches_change_no_translation(run, monkeypatch):
    monkeypatch.setattr(translator, "AHEAD", 2)
    lines = [" ".join(str((at * at + place) % 10) for place in range(at % 7 + 1)) for at in range(40)]
    alone = list(load_translator(run, torch.device("cpu")).translate(lines, at_once=1))
    for at_once in (2, 3, 40):
        assert translated(run, "\n".join(lines).encode(), at_once=at_once) == alone


def test_a_reader_that_has_enough_is_no_error(run):
    with subprocess.Popen([sys.executable, "-m", "encouraging", "translate", str(run), "--batch-size", "1", "--device",
                           "cpu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        process.stdout.close()
        process.stdin.write(b"1 2\n" * 50)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_batches_hold_every_sentence_once_short_ones_first_and_fewer_long_ones():
    lengths = [3, 1, 4 * USUAL, 1, 5, USUAL, 9, 2, 6 * USUAL, 50 * USUAL]
    batches = search_batches([[7] * length for length in lengths], 4)
    ordered = [lengths[number] for batch in batches for number in batch]
    assert ordered == sorted(lengths)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= 4 * USUAL
        assert len(batch) <= 4
    assert search_batches([], 4) == []
