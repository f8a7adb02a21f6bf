"""What was read is kept for the next run of a process, and read again where a file was corrected meanwhile."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from box_toys import drawn, voc_xml, write_coco, write_voc
from encouraging.data import read_corpus, read_graphs
from encouraging.data.coco import read_coco
from encouraging.data.text import read_text
from encouraging.data.voc import read_voc
from encouraging.errors import DataError
from graph_toys import write_tu
from translation_toys import write_iwslt


def test_a_text_that_was_corrected_is_read_again(tmp_path):
    book, name = tmp_path / "book.txt", f"folder:{tmp_path}"
    book.write_text("the old words " * 9)
    old = read_text(name)
    assert read_text(name) is old  # kept for the next run
    book.write_text("the corrected words " * 9)
    assert read_text(name).train.startswith("the corrected words")
    assert read_text(name, test=0.2) != read_text(name)


def test_also_where_a_tool_has_set_size_and_time_back(tmp_path):
    book, name = tmp_path / "book.txt", f"folder:{tmp_path}"
    book.write_text("the old words " * 9)
    before = book.stat()
    assert read_text(name).train.startswith("the old words")
    (tmp_path / "new").write_text("the new words " * 9)
    (tmp_path / "new").replace(book)
    os.utime(book, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_text(name).train.startswith("the new words")


def test_a_text_that_is_gone_is_an_error_and_not_the_old_words(tmp_path):
    (tmp_path / "book.txt").write_text("the old words " * 9)
    read_text(f"folder:{tmp_path}")
    (tmp_path / "book.txt").unlink()
    with pytest.raises(DataError, match="no text file"):
        read_text(f"folder:{tmp_path}")


def test_graphs_that_were_corrected_are_read_again(tmp_path):
    name = f"folder:{write_tu(tmp_path)}"
    old = read_graphs(name)
    assert read_graphs(name) is old
    (kinds,) = tmp_path.glob("**/*_node_labels.txt")
    kinds.unlink()
    assert read_graphs(name).x.tolist() == [[1.0]] * 5


def test_boxes_of_coco_that_were_corrected_are_read_again(tmp_path):
    old = read_coco(write_coco(tmp_path))
    assert read_coco(tmp_path) is old
    path = tmp_path / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["bbox"][2] += 1
    path.write_text(json.dumps(content))
    changed = read_coco(tmp_path).parts["train"].images[0].boxes - old.parts["train"].images[0].boxes
    assert changed.sum() == 1


def test_boxes_of_voc_that_were_corrected_are_read_again(tmp_path):
    old = read_voc(write_voc(tmp_path, {"train": 2, "test": 1}))
    assert read_voc(tmp_path) is old
    pixels, _, _ = drawn(0)
    (tmp_path / "Annotations" / "image000.xml").write_text(
        voc_xml(pixels.shape[1], pixels.shape[0], [("red", (1, 2, 3, 4))]))
    assert read_voc(tmp_path).parts["train"].images[0].boxes.tolist() == [[1, 2, 3, 4]]
    (tmp_path / "JPEGImages" / "image001.jpg").rename(tmp_path / "JPEGImages" / "image001.png")
    assert read_voc(tmp_path).parts["train"].images[1].path.suffix == ".png"


def test_sentences_that_were_corrected_are_read_again(tmp_path):
    for part in ("train", "val", "test"):
        for language in ("de", "en"):
            (tmp_path / f"{part}.{language}").write_text(f"{part} {language}\n")
    arguments = {"name": f"folder:{tmp_path}", "languages": ("de", "en")}
    old = read_corpus(**arguments)
    assert read_corpus(**arguments) is old
    (tmp_path / "train.de").write_text("corrected\n")
    assert read_corpus(**arguments).train.source == ["corrected"]


def test_published_sentences_that_were_replaced_are_read_again(tmp_path):
    root = write_iwslt(tmp_path, pairs=50)
    old = read_corpus("iwslt14-de-en", root)
    assert read_corpus("iwslt14-de-en", root) is old
    shutil.rmtree(root / "iwslt14")
    write_iwslt(tmp_path, pairs=60)
    assert len(read_corpus("iwslt14-de-en", root).train) > len(old.train)
