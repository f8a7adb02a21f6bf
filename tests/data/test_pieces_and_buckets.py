"""Byte pairs come back as text; batches hold every pair once, in few shapes, within the budget."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encouraging.data import Clock, TokenBatches, best_lengths, learn_pieces, pieces_from_json
from encouraging.data.buckets import LENGTHS
from encouraging.data.pieces import END, PAD, SPECIAL, START, UNKNOWN
from encouraging.engine.graph import MOST
from encouraging.errors import ArgumentError, DataError
from translation_toys import TEN

CPU = torch.device("cpu")
GERMAN, ENGLISH = zip(*TEN, strict=True)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("size", [60, 120, 400])
def test_sentences_come_back_from_their_pieces(joint, size):
    pieces = learn_pieces(GERMAN, ENGLISH, size, joint)
    assert pieces.joint == joint
    assert pieces.size("source") <= size
    for side, lines in (("source", GERMAN), ("target", ENGLISH)):
        numbers = pieces.encode(lines, side)
        assert pieces.decode(numbers, side) == list(lines)
        assert len(SPECIAL) <= min(map(min, numbers))
        assert max(map(max, numbers)) < pieces.size(side)
        assert pieces.decode([[START, *numbers[0], END, PAD]], side) == [lines[0]]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("word", SPECIAL)
def test_the_name_of_a_special_piece_in_a_sentence_is_text(joint, word):
    """Else a sentence with "</s>" would end there, and one with "<pad>" would have a hole."""
    lines = [f"{word} one <b>two</b>", f"three{word} / four"]
    pieces = learn_pieces(lines, lines, 90, joint)
    for known in (pieces, pieces_from_json(pieces.to_json())):
        encoded = known.encode(lines, "target")
        assert not {PAD, START, END, UNKNOWN} & {number for numbers in encoded for number in numbers}
        assert known.decode(encoded, "target") == lines


def test_a_side_of_its_own_has_only_its_own_pieces():
    pieces = learn_pieces(GERMAN, ENGLISH, 400, joint=False)
    used = {number for numbers in pieces.encode(ENGLISH, "target") for number in numbers}
    assert used == set(range(len(SPECIAL), pieces.size("target")))
    assert UNKNOWN in pieces.encode(["ß"], "target")[0]
    assert learn_pieces(GERMAN, ENGLISH, 400).encode(["ß漢"], "target")[0].count(UNKNOWN) == 1


def test_the_same_sentences_give_the_same_pieces_in_every_process():
    code = ("from translation_toys import TEN; from encouraging.data import learn_pieces; import sys; "
            "sys.stdout.buffer.write(learn_pieces(*zip(*TEN), 200, False).to_json())")
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={
        "PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7", "TOKENIZERS_PARALLELISM": "false"}).stdout
    assert other == learn_pieces(GERMAN, ENGLISH, 200, False).to_json()


def test_a_vocabulary_without_room_for_every_character_is_refused():
    alphabet = {letter for line in (*GERMAN, *ENGLISH) for letter in line.replace(" ", "▁")} | {"▁"}
    least = len(alphabet) + len(SPECIAL)
    assert learn_pieces(GERMAN, ENGLISH, least).size("source") == least
    for size in (2, least - 1):
        with pytest.raises(DataError, match=rf"a vocabulary of {size} pieces .* need at least {least}, one for each"):
            learn_pieces(GERMAN, ENGLISH, size)


def test_a_vocabulary_is_written_and_read_again():
    pieces = learn_pieces(GERMAN, ENGLISH, 200, joint=False)
    again = pieces_from_json(pieces.to_json())
    assert again.encode(GERMAN, "source") == pieces.encode(GERMAN, "source")
    assert again.size("target") == pieces.size("target")
    for content in (b"{", b'{"schema": 2}', b'{"schema": 1, "kept": null, "tokenizer": {}}'):
        with pytest.raises(DataError, match="the vocabulary cannot be read"):
            pieces_from_json(content)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 5))
def test_no_other_lengths_pad_less(lengths, number):
    def padding(chosen):
        return sum(min(one for one in chosen if one >= length) for length in lengths)

    found = best_lengths(lengths, number)
    assert found == sorted(set(found))
    assert len(found) <= number
    assert found[-1] == max(lengths)
    values = sorted(set(lengths))
    every = [chosen for size in range(1, number + 1) for chosen in combinations(values, min(size, len(values)))
             if chosen[-1] == max(values)]
    assert padding(found) == min(map(padding, every))


sentences = st.lists(st.tuples(st.lists(st.integers(4, 9), max_size=9), st.lists(st.integers(4, 9), max_size=9)),
                     min_size=1, max_size=30)


@settings(deadline=None)
@given(sentences, st.integers(10, 60), st.integers(1, 4), st.integers(1, 3))
def test_every_pair_comes_once_per_epoch_in_few_shapes_on_any_number_of_ranks(pairs, budget, lengths, world):
    source, target = zip(*pairs, strict=True)
    batches = TokenBatches(source, target, budget, 3, CPU, lengths=lengths)
    orders = []
    for epoch in (1, 2):
        clock = Clock(1, epoch, 0)
        shares = [list(batches.batches(clock, 0, rank, world)) for rank in range(world)]
        assert all(len(share) == batches.length(clock) for share in shares)
        seen = []
        for parts in zip(*shares, strict=True):
            assert len({tuple(part[0].shape) for part in parts}) == 1
            assert all(part[0].shape[0] * world < budget + world * part[0].shape[1] for part in parts)
            for one, other in parts:
                assert other.shape == (one.shape[0], one.shape[1] + 1)
                for first, second in zip(one.tolist(), other.tolist(), strict=True):
                    if any(second):
                        ours, theirs = ([number for number in row if number != PAD] for row in (first, second))
                        assert (ours[-1], theirs[0], theirs[-1]) == (END, START, END)
                        seen.append((ours[:-1], theirs[1:-1]))
                    else:  # an empty pair: something to look at, nothing to learn
                        assert first == [END] + [PAD] * (len(first) - 1)
        assert sorted(seen) == sorted((list(a), list(b)) for a, b in pairs)
        assert len({tuple(part[0].shape) for share in shares for part in share}) <= lengths
        orders.append(seen)
        rest = list(batches.batches(clock, 1, 0, world))
        for ours, theirs in zip(rest, shares[0][1:], strict=True):
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])
    assert 0 < batches.filling <= 1


def test_all_shapes_of_a_run_can_be_recorded():
    assert LENGTHS <= MOST


def test_orders_follow_from_seed_and_epoch():
    source = [[4 + at % 5] * (1 + at % 4) for at in range(40)]

    def order(seed, epoch, shuffle=True):
        batches = TokenBatches(source, source, 40, seed, CPU, shuffle=shuffle, lengths=2)
        return torch.cat([batch[0].flatten() for batch in batches.batches(Clock(1, epoch, 0), 0, 0, 1)]).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    assert order(0, 1, False) == order(5, 2, False)


def test_a_sentence_longer_than_the_budget_is_refused():
    with pytest.raises(ArgumentError, match=r"the longest sentence has 6 pieces\. Raise train.batch_size"):
        TokenBatches([[4] * 5], [[4]], 5, 0, CPU)
    with pytest.raises(ArgumentError, match="there are no sentences"):
        TokenBatches([], [], 5, 0, CPU)
