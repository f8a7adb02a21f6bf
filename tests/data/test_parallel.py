"""Text in two languages: the layouts of Multi30k and IWSLT, files and functions of one's own, and what is refused."""

from __future__ import annotations

import gzip
import tarfile

import pytest

from encouraging.data import Corpus, Pairs, TextOptions, dataset, read_corpus
from encouraging.data.fetch import _unpack
from encouraging.data.parallel import lines_of, prepared, segments_of, talk_lines
from encouraging.errors import DataError
from translation_toys import TEN, write_iwslt, write_multi30k

GERMAN, ENGLISH = zip(*TEN, strict=True)


def test_iwslt14_has_its_sentences_without_tags_every_23rd_for_validation(tmp_path):
    corpus = read_corpus("iwslt14-de-en", write_iwslt(tmp_path, pairs=50))
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (48, 2, 5 * 3)
    assert corpus.validation.source == [f"{GERMAN[22 % 10]} 22", f"{GERMAN[45 % 10]} 45"]
    assert corpus.train.source[:3] == [f"{GERMAN[at]} {at}" for at in range(3)]  # titles and descriptions are sentences
    assert not any("<" in line for part in (corpus.train, corpus.validation, corpus.test) for line in part.source)
    assert [line.rsplit(" ", 1)[1] for line in corpus.test.target[::3]] == [
        "TED.dev2010's", "TEDX.dev2012's", "TED.tst2010's", "TED.tst2011's", "TED.tst2012's"]
    assert corpus.test.target[0] == f"{ENGLISH[0]} & TED.dev2010's"


def test_iwslt17_validates_on_earlier_sets_and_tests_on_the_last(tmp_path):
    corpus = read_corpus("iwslt17-fr-en", write_iwslt(tmp_path, 17, "fr"))
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (50, 6 * 3, 3)
    assert all(line.endswith("TED.tst2015's") for line in corpus.test.source)


def test_the_archive_of_iwslt_is_unpacked_to_where_it_is_read(tmp_path, monkeypatch):
    """The archive has de-en/; the data directory has iwslt14/de-en/."""
    write_iwslt(tmp_path / "there")
    with tarfile.open(tmp_path / "de-en.tgz", "w:gz") as archive:
        archive.add(tmp_path / "there" / "iwslt14" / "de-en", "de-en")
    monkeypatch.setattr("encouraging.data.fetch._fetch", lambda *words: tmp_path / "de-en.tgz")
    _unpack(dataset("iwslt14-de-en"), tmp_path / "here")
    assert read_corpus("iwslt14-de-en", tmp_path / "here") == read_corpus("iwslt14-de-en", tmp_path / "there")


@pytest.mark.parametrize("name", ["de", "fr"])
def test_multi30k_is_checked_against_its_digests_and_unzipped_files_are_read(tmp_path, name):
    root = write_multi30k(tmp_path, name)
    with pytest.raises(DataError, match="expected MD5"):
        read_corpus(f"multi30k-{name}-en", root)
    for path in list((root / "multi30k").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert read_corpus(f"multi30k-{name}-en", root).train == Pairs(list(GERMAN), list(ENGLISH))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"(?s)multi30k/val\.en\.gz.*--download"):
        read_corpus("multi30k-de-en", tmp_path)
    write_iwslt(tmp_path)
    (tmp_path / "iwslt14/de-en/IWSLT14.TED.tst2012.de-en.en.xml").unlink()
    with pytest.raises(DataError, match=r"IWSLT14\.TED\.tst2012\.de-en\.en\.xml"):
        read_corpus("iwslt14-de-en", tmp_path)


def test_a_folder_of_plain_or_zipped_files_is_read_and_refused_in_words(tmp_path):
    for part, ending in (("train", ""), ("valid", ".gz"), ("test", "")):
        for language, lines in (("de", GERMAN), ("en", ENGLISH)):
            text = "\n".join(lines).encode()  # without a line feed at the end
            (tmp_path / f"{part}.{language}{ending}").write_bytes(gzip.compress(text) if ending else text)
    corpus = read_corpus(f"folder:{tmp_path}", languages=("de", "en"))
    assert corpus == read_corpus(f"folder:{tmp_path}", languages=("de", "en"))
    assert (corpus.train.source, corpus.validation.target) == (list(GERMAN), list(ENGLISH))
    with pytest.raises(DataError, match=r"has no train sentences in 'fr': expected one of train.fr, train.fr.gz"):
        read_corpus(f"folder:{tmp_path}", languages=("fr", "en"))
    other = tmp_path / "other"
    other.mkdir()
    for part in ("train", "val", "test"):
        (other / f"{part}.de").write_text("eins\nzwei\n")
        (other / f"{part}.en").write_text("one\n")
    with pytest.raises(DataError, match=r"2 sentences, and its translation has 1: the files do not belong together"):
        read_corpus(f"folder:{other}", languages=("de", "en"))


def test_only_line_feeds_end_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("a\u2028b\x0bc\r\n\x85d\n".encode())
    assert lines_of(path) == ["a\u2028b\x0bc\r", "\x85d"]


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "x").write_bytes("\ufeffein\nMann\n".encode())
    assert lines_of(tmp_path / "x") == ["ein", "Mann"]


def test_text_is_lower_cased_and_long_pairs_left_out_of_training_alone(tmp_path):
    options = TextOptions(lowercase=True, longest=6, ratio=1.5)
    corpus = read_corpus("translation_toys:ten_pairs", options=options)
    words = [(len(german.split()), len(english.split())) for german, english in TEN]
    kept = [at for at, (one, two) in enumerate(words) if max(one, two) <= 6 and max(one, two) <= 1.5 * min(one, two)]
    assert 0 < len(kept) < 10
    assert corpus.train.source == [GERMAN[at].lower() for at in kept]
    assert corpus.test.target == [line.lower() for line in ENGLISH]


def test_empty_training_sentences_are_left_out_and_a_part_without_sentences_is_refused():
    pairs = Pairs(["a", " ", "c"], ["x", "y", ""])
    corpus = Corpus(pairs, pairs, pairs)
    assert prepared(corpus, TextOptions()).train == Pairs(["a"], ["x"])
    assert len(prepared(corpus, TextOptions()).test) == 3
    with pytest.raises(DataError, match="none of 3 training pairs is left with longest = None and ratio = 1"):
        prepared(Corpus(Pairs(["a b", "", "c"], ["x", "y", "z y"]), pairs, pairs), TextOptions(ratio=1))
    with pytest.raises(DataError, match="the test part has no sentences"):
        Corpus(pairs, pairs, Pairs())
    with pytest.raises(DataError, match="3 sentences and 2 translations"):
        Pairs(["a", "b", "c"], ["x", "y"])


@pytest.mark.parametrize(("returned", "words"), [
    (3, "expected encouraging.data.Corpus"), ({"train": ([], [])}, "expected encouraging.data.Corpus"),
    (dict.fromkeys(("train", "validation", "test"), (["a"],)), "has no sentences|1 sentences and 0"),
    (dict.fromkeys(("train", "validation", "test"), 5), "expected two lists of sentences per part"),
])
def test_what_a_function_of_ones_own_may_return(monkeypatch, returned, words):
    monkeypatch.setattr("translation_toys.ten_pairs", lambda: returned)
    with pytest.raises(DataError, match=words):
        read_corpus("translation_toys:ten_pairs")
    corpus = {part: (list(GERMAN), list(ENGLISH)) for part in ("train", "validation", "test")}
    monkeypatch.setattr("translation_toys.ten_pairs", lambda: corpus)
    assert read_corpus("translation_toys:ten_pairs").train.source == list(GERMAN)


def test_data_of_another_kind_is_refused():
    with pytest.raises(DataError, match="mnist holds no sentences"):
        read_corpus("mnist")


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="expected text in UTF-8, gzipped"):
        lines_of(tmp_path / "a.gz")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="expected text in UTF-8"):
        lines_of(tmp_path / "b")
    (tmp_path / "c.xml").write_text('<doc>\n<seg id="1">open\n</doc>\n')
    with pytest.raises(DataError, match="expected lines such as <seg id"):
        segments_of(tmp_path / "c.xml")
    (tmp_path / "d").write_text("<url>x</url>\n<doc id=1>\nA <b>\n<title>T</title>\n</doc>\n")
    assert talk_lines(tmp_path / "d") == ["A <b>", "T"]


