"""Running text: where it comes from, its tokens, and windows of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encouraging.data import Clock
from encouraging.data.text import Text, read_text, split_text
from encouraging.data.tokens import UNKNOWN, Characters, learn_tokens, tokens_from_json
from encouraging.data.windows import IGNORED, TextWindows, evaluation_windows
from encouraging.errors import ArgumentError, DataError

CPU = torch.device("cpu")


@given(text=st.text(min_size=40), shares=st.tuples(st.floats(0.1, 0.4), st.floats(0.1, 0.4)))
def test_the_parts_of_a_text_are_the_text(text, shares):
    parts = split_text(text, *shares)
    assert parts.train + parts.validation + parts.test == text
    assert len(parts.test) == pytest.approx(shares[1] * len(text), abs=1)
    assert len(parts.validation) == pytest.approx(shares[0] * len(text), abs=1)


@given(train=st.text(), other=st.text())
def test_characters_are_restored_but_for_those_that_the_training_text_lacks(train, other):
    tokens = Characters(train)
    known = set(train) - {UNKNOWN}
    assert tokens.decode(tokens.encode(other).tolist()) == "".join(c if c in known else UNKNOWN for c in other)
    assert tokens.size == len(known) + 1
    again = tokens_from_json(tokens.to_json())
    assert again.encode(other).tolist() == tokens.encode(other).tolist()


@given(other=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_pieces_restore_any_text(other):
    pytest.importorskip("tokenizers")
    tokens = learn_tokens("to be or not to be, that is the question\n" * 3, 270)
    assert tokens.decode(tokens.encode(other).tolist()) == other
    assert 256 < tokens.size <= 270
    assert tokens_from_json(tokens.to_json()).encode(other).tolist() == tokens.encode(other).tolist()


@pytest.mark.parametrize("vocabulary", [0, 255, True, 300.0])
def test_a_vocabulary_that_cannot_be_is_refused(vocabulary):
    with pytest.raises(ArgumentError, match="256 or more"):
        learn_tokens("text", vocabulary)


@given(length=st.integers(2, 80), context=st.integers(1, 20), rows=st.integers(1, 5))
def test_in_an_evaluation_every_token_but_the_first_counts_once_and_has_its_context(length, context, rows):
    tokens = torch.arange(length)
    counted = []
    for inputs, labels in evaluation_windows(tokens, context, rows):
        assert len(inputs) <= rows
        for window, after in zip(inputs, labels, strict=True):
            places = (after != IGNORED).nonzero()[:, 0]
            for place in places.tolist():
                assert int(after[place]) == int(window[place]) + 1
                assert place + 1 >= min(int(after[place]), context // 2, length - 1)
            counted += after[places].tolist()
    assert counted == list(range(1, length))


@given(length=st.integers(2, 200), context=st.integers(1, 20), batch=st.integers(1, 9), world=st.integers(1, 3),
       seed=st.integers(0, 9), shuffle=st.booleans())
def test_an_epoch_has_every_window_once_on_any_number_of_ranks(length, context, batch, world, seed, shuffle):
    tokens = torch.arange(length)
    if length <= context:
        with pytest.raises(DataError, match=r"smaller options.context"):
            TextWindows(tokens, context, batch, seed, CPU)
        return
    source = TextWindows(tokens, context, batch, seed, CPU, shuffle=shuffle)
    clock = Clock(1, 3, 0)
    whole = list(source.batches(clock, 0, 0, 1))
    assert len(whole) == source.length(clock)
    assert {tuple(inputs.shape) for inputs, _ in whole} == {(batch, context)}
    labels = torch.cat([labels.flatten() for _, labels in whole])
    labels = labels[labels != IGNORED].sort().values
    assert len(labels) == (length - 1) // context * context
    assert labels.diff().eq(1).all()
    for inputs, after in whole:
        rows = after[:, 0] != IGNORED
        torch.testing.assert_close(inputs[rows] + 1, after[rows])
    # The ranks share each batch, and a later start gives the same batches.
    for number, (_, after) in enumerate(whole):
        parts = [next(source.batches(clock, number, rank, world))[1] for rank in range(world)]
        assert {len(part) for part in parts} == {-(-batch // world)}
        shared = torch.cat(parts).flatten()
        assert shared[shared != IGNORED].sort().values.tolist() == after[after != IGNORED].sort().values.tolist()


def test_texts_come_from_files_folders_and_functions(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "book.txt").write_bytes(b"\xef\xbb\xbf" + b"0123456789" * 4 + b"\r\n")
    text = read_text("folder:one", folder=str(tmp_path), validation=0.25, test=0.25)
    assert (text.train[:4], text.test[-1]) == ("0123", "\n")
    (tmp_path / "parts").mkdir()
    for name in ("train", "valid", "test"):
        (tmp_path / "parts" / f"{name}.txt").write_text(f"the {name} text")
    assert read_text("folder:parts", folder=str(tmp_path)) == Text("the train text", "the valid text", "the test text")
    (tmp_path / "parts" / "test.txt").unlink()
    with pytest.raises(DataError, match=r"train.txt, valid.txt: expected train.txt, val.txt and test.txt, or a single"):
        read_text("folder:parts", folder=str(tmp_path))
    (tmp_path / "own_text.py").write_text("def text():\n    return 'abcdefghij' * 10\n\n"
                                          "def parts():\n    return dict(train='abc', validation='ab', test='a')\n")
    assert len(read_text("own_text:text", folder=str(tmp_path)).train) == 90
    with pytest.raises(DataError, match="the test part is 'a': expected two characters or more"):
        read_text("own_text:parts", folder=str(tmp_path))
    (tmp_path / "one" / "book.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        read_text("folder:one", folder=str(tmp_path), validation=0.2)
    with pytest.raises(DataError, match="mnist is no running text"):
        read_text("mnist")


def test_half_a_character_is_refused_before_the_training_because_no_file_can_hold_it():
    """As bytes that are no UTF-8 become with errors="surrogateescape"."""
    broken = b"caf\xe9".decode("utf-8", "surrogateescape")
    for part in ("train", "validation", "test"):
        with pytest.raises(DataError, match=rf"the {part} part has '\\udce9' at place 3, which is half of a character"):
            Text(**{"train": "abc", "validation": "abc", "test": "abc", part: broken})


def test_a_folder_and_a_dict_that_are_no_text_are_named_as_they_are(tmp_path):
    (tmp_path / "odd" / "train.txt").mkdir(parents=True)
    with pytest.raises(DataError, match="odd has no text file"):
        read_text("folder:odd", folder=str(tmp_path))
    (tmp_path / "odd_text.py").write_text("def two():\n    return dict(train='abc', test='abc')\n")
    with pytest.raises(DataError, match="returned a dict with train, test: expected a string, or a dict"):
        read_text("odd_text:two", folder=str(tmp_path))
