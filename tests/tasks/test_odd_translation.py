"""Text, options and searches that cannot be: refused in words; and beam search beside all sentences there are."""

from __future__ import annotations

import gzip
import itertools
import math
import re
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

import encouraging.data.pieces as pieces_module
from encouraging.commands.translate import translate_lines
from encouraging.data import Corpus, Pairs, learn_pieces, pieces_from_json
from encouraging.data.parallel import lines_of
from encouraging.data.pieces import END, START
from encouraging.engine.distributed import World
from encouraging.errors import ArgumentError, DataError, RecipeError, RunError
from encouraging.models.beam import beam_search
from encouraging.models.transformer import Transformer
from encouraging.recipes import read_recipe
from encouraging.recipes.translator import load_translator
from encouraging.tasks.translation_scores import bleu
from translation_toys import RECIPE, TEN, train_on

SIZE = 6
SOURCE = torch.tensor([[3, 4, 5, 2, 0], [5, 2, 0, 0, 0], [4, 4, 4, 4, 2]])
LIMIT = torch.tensor([5, 3, 4])


def network(seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(SIZE, SIZE, layers=1, width=8, heads=2, hidden=16, share="all", dropout=0.0).eval()
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(1.5)
    return model


@torch.no_grad()
def all_sentences(model: Transformer, row: int) -> list[tuple[float, int]]:
    """The log-probability and the length of every translation within the limit."""
    found = []
    for words in range(int(LIMIT[row])):
        for said in itertools.product(range(3, SIZE), repeat=words):
            whole = torch.tensor([[START, *said, END]])
            chances = F.linear(*model(SOURCE[row : row + 1], whole[:, :-1])).log_softmax(-1)[0]
            found.append((float(chances.gather(1, whole[0, 1:, None]).sum()), words + 1))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_beam_wider_than_all_sentences_finds_the_best_of_them_and_none_finds_a_better_one(seed):
    model = network(seed)
    for row in range(len(SOURCE)):
        sentences = all_sentences(model, row)
        for penalty in (0.0, 0.5, 1.0, 2.0):
            best = max(score / length**penalty for score, length in sentences)
            assert float(beam_search(model, SOURCE, 200, penalty, LIMIT).scores[row]) == pytest.approx(best, abs=1e-5)
            for beam in (1, 2, SIZE + 1):
                assert float(beam_search(model, SOURCE, beam, penalty, LIMIT).scores[row]) <= best + 1e-5


@pytest.mark.parametrize("penalty", [-1.0, math.nan, math.inf])
def test_a_length_penalty_that_orders_nothing_is_refused(penalty):
    with pytest.raises(ArgumentError, match=r"length_penalty=.*: expected a number from 0 on"):
        beam_search(network(0), SOURCE, 2, penalty)


@pytest.mark.parametrize(("source", "beam", "words"), [
    (SOURCE[:0], 2, "one sentence at least"), (SOURCE[0], 2, "expected (sentences, positions)"),
    (SOURCE, 2.0, "beam=2.0"), (SOURCE, True, "beam=True")])
def test_what_cannot_be_searched_is_refused_in_words(source, beam, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        beam_search(network(0), source, beam)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "numbers.toml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize(("override", "words"), [
    ("model_options.layers=two", "layers = 'two'"), ("model_options.width=16.0", "width = 16.0"),
    ("model_options.heads=true", "heads = True"), ("model_options.hidden=[]", "expected sizes that are whole numbers"),
    ("model_options.dropout=abc", "dropout = 'abc'"), ("model_options.dropout=nan", "dropout = nan"),
    ("model_options.width=18", None), ("model_options.heads=3", "an even width that the heads divide"),
    ("model_options.share=some", "expected 'none', 'output' or 'all'"),
    ("arms.ce_ls.logit_scale=3", "logit_scale: translation has"), ("options.length_penalty=inf", "finite"),
])
def test_sizes_of_the_network_are_checked_when_the_recipe_is_read(recipe, override, words):
    if words is None:
        read_recipe(recipe, [override])
        return
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, [override])


def test_every_damaged_byte_of_a_zipped_file_is_refused_in_words_or_read_right(tmp_path):
    text = b"one line and another\n" * 30
    whole, path = gzip.compress(text, mtime=0), tmp_path / "train.de.gz"
    for place in range(len(whole)):
        for bit in (1, 64):
            damaged = bytearray(whole)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            try:
                assert lines_of(path) == text.decode().splitlines()
            except DataError as error:
                assert "expected text in UTF-8, gzipped" in str(error)  # noqa: PT017


@pytest.mark.parametrize(("given", "words"), [
    ("abc", "sentences are one string"), (["a", None], "of the type NoneType"), ([b"x"], "of the type bytes")])
def test_sentences_are_lists_of_strings(given, words):
    with pytest.raises(DataError, match=words):
        Pairs(given, given)


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_a_part_whose_translations_are_all_empty_measures_nothing(part):
    parts = dict.fromkeys(("train", "validation", "test"), Pairs(["ein", ""], ["a", ""]))
    Corpus(**parts)
    with pytest.raises(DataError, match=f"the 2 translations of the {part} part are empty"):
        Corpus(**parts | {part: Pairs(["ein", "zwei"], ["", " "])})


@pytest.mark.parametrize("size", [10**12, 2**70])
def test_a_vocabulary_larger_than_any_text_allows_is_all_there_is(size):
    pieces_module._learn.cache_clear()
    lines = [line for pair in TEN for line in pair]
    enough = sum(map(len, lines))
    assert learn_pieces(lines, lines, size).to_json() == learn_pieces(lines, lines, enough).to_json()


@pytest.fixture(scope="module")
def run(recipe):
    train_on(World(), recipe, recipe.parent / "run", "train.epochs=1")
    return recipe.parent / "run"


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_stream_is_named(run, closed):
    done = subprocess.run(["sh", "-c", f'echo 1 | "$0" -m encouraging translate "$1" --device cpu {closed}',
                           sys.executable, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("encouraging: standard input or output is closed")


def test_a_damaged_vocabulary_is_named(run):
    path = run / "files" / "pieces.json"
    content = path.read_bytes()
    assert pieces_from_json(content).joint
    path.write_text("{}")
    try:
        with pytest.raises(RunError, match=r"pieces\.json: the vocabulary cannot be read"):
            load_translator(run, torch.device("cpu"))
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(("lines", "at_once", "words"), [("1 2", 2, "expected several sentences"),
                                                         (["1 2"], 2.0, "at_once=2.0")])
def test_what_is_no_list_of_sentences_is_not_translated(run, lines, at_once, words):
    translator = load_translator(run, torch.device("cpu"))
    with pytest.raises(ArgumentError, match=words):
        next(translator.translate(lines, at_once=at_once))


def test_a_search_that_cannot_be_is_refused_by_the_command_too(run):
    with open("/dev/null") as nothing, pytest.raises(ArgumentError, match="beam=0"):
        translate_lines(run, beam=0, lines=nothing)


@pytest.mark.parametrize("error", [RuntimeError("\nJapanese requires\n\n  pip install x\n"), ImportError("y")])
def test_a_tokeniser_that_lacks_its_packages_is_refused_in_words(monkeypatch, error):
    from sacrebleu.metrics import BLEU

    def refuse(*args, **how):
        raise error

    monkeypatch.setattr(BLEU, "__init__", refuse)
    with pytest.raises(RecipeError, match=r"tokenize = 'ja-mecab': sacrebleu cannot use it \([^\n]*\)\.$"):
        bleu(["a"], ["a"], "ja-mecab")


@pytest.mark.parametrize("size", [-1, 0, True, 1.5, "many"])
def test_a_vocabulary_has_a_whole_number_of_pieces(size):
    with pytest.raises(ArgumentError, match="expected a whole number of pieces"):
        learn_pieces(["a b"], ["c"], size)


def test_one_sentence_is_no_list_of_sentences():
    with pytest.raises(ArgumentError, match=r"expected a list of sentences, such as \['a b'\]"):
        learn_pieces(["a b"], ["c"], 20).encode("a b", "source")
