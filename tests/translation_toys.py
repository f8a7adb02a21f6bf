"""Small texts for tests: ten sentences to learn by heart, a language of numbers, files of IWSLT and Multi30k."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

from encouraging.data import Corpus, Pairs
from encouraging.engine import RunDir, RunSpec, execute
from encouraging.engine.distributed import World
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task

TEN = (
    ("Ein Mann schläft.", "A man is sleeping."),
    ("Eine Frau liest ein Buch.", "A woman is reading a book."),
    ("Zwei Hunde laufen über die Wiese.", "Two dogs run across the meadow."),
    ("Das Kind isst einen Apfel.", "The child eats an apple."),
    ("Drei Leute warten auf den Bus.", "Three people are waiting for the bus."),
    ("Ein Mädchen springt ins Wasser.", "A girl jumps into the water."),
    ("Der alte Mann sitzt auf einer Bank im Park.", "The old man sits on a bench in the park."),
    ("Eine Katze schaut aus dem Fenster.", "A cat looks out of the window."),
    ("Jungen spielen Fußball.", "Boys play football."),
    ("Sie lacht!", "She laughs!"),
)
WORDS = ("null", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

RECIPE = f"""
about = "Numbers in words."
task = "translation"
data = "{__file__}:numbers"
model = "transformer"
model_options = {{ layers = 1, width = 16, heads = 2, hidden = 32, dropout = 0.1, share = "all" }}
options = {{ vocabulary = 64, validated = 8, sentences = 5, beam = 3 }}
seeds = 3
threads = 1
train = {{ epochs = 4, batch_size = 64, optimizer = "adamw", betas = [0.9, 0.98], lr = 0.02, schedule = "inverse_sqrt", warmup_steps = 8, weight_decay = 1e-4, conclude_on = "average", average_last = 3, monitor = "val_loss", better = "lower", probe_every = 2 }}
arms.ce_ls = {{ curve = "cross_entropy", label_smoothing = 0.1 }}
arms.el_ls = {{ curve = "encouraging", log_end = 0.5, label_smoothing = 0.1 }}
arms.el_1 = {{ curve = "encouraging", log_end = 1.0, match_norm = true }}

[[claims]]
metric = "bleu"
arm = "el_ls"
beats = "ce_ls"

[[claims]]
metric = "gradient_norm_ratio.ce"
arm = "el_ls"
over = 0.9

[[claims]]
metric = "gradient_norm_ratio.ce"
arm = "ce_ls"
under = 1.5
"""  # noqa: E501


def ten_pairs() -> Corpus:
    """The same ten pairs to learn from and to be asked about."""
    pairs = Pairs(*zip(*TEN, strict=True))
    return Corpus(pairs, pairs, pairs)


def numbers(train: int = 40) -> Corpus:
    """Digits, and the words for them in the opposite order."""
    draw = random.Random(3)
    lines = ["".join(draw.choice("0123456789") for _ in range(draw.randint(1, 7))) for _ in range(train + 20)]
    said = [" ".join(WORDS[int(digit)] for digit in reversed(line)) for line in lines]
    spaced = [" ".join(line) for line in lines]
    cuts = (slice(train), slice(train, train + 10), slice(train + 10, None))
    return Corpus(*(Pairs(spaced[cut], said[cut]) for cut in cuts))


def write_multi30k(folder: Path, language: str = "de") -> Path:
    """The layout of Multi30k with other sentences."""
    (folder / "multi30k").mkdir(parents=True)
    for part in ("train", "val", "test_2016_flickr"):
        for column, ending in enumerate((language, "en")):
            text = "".join(f"{pair[column]}\n" for pair in TEN).encode()
            (folder / "multi30k" / f"{part}.{ending}.gz").write_bytes(gzip.compress(text))
    return folder


def write_iwslt(folder: Path, year: int = 14, source: str = "de", pairs: int = 50) -> Path:
    """The layout of IWSLT's archives: training files with tags, test sets in XML."""
    inside, name = folder / f"iwslt{year}" / f"{source}-en", f"{source}-en"
    inside.mkdir(parents=True)
    sets = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012", "TED.tst2013", "TED.tst2014",
            "TED.tst2015"]
    for column, language in enumerate((source, "en")):
        lines = [f"{TEN[at % 10][column]} {at}" for at in range(pairs)]
        tagged = ["<url>http://x</url>", "<keywords>talks</keywords>", "<talkid>1</talkid>",
                  f"<title>{lines[0]}</title>", f"<description>{lines[1]}</description>", *lines[2:]]
        (inside / f"train.tags.{name}.{language}").write_text("\n".join(tagged) + "\n")
        for number, one in enumerate(sets):
            segments = "\n".join(f'<seg id="{at + 1}"> {TEN[(at + number) % 10][column]} &amp; {one}’s </seg>'
                                 for at in range(3))
            (inside / f"IWSLT{year}.{one}.{name}.{language}.xml").write_text(
                f'<?xml version="1.0"?>\n<mteval>\n<doc docid="1">\n{segments}\n</doc>\n</mteval>\n')
    return folder


def train_on(world: World, recipe: Path, folder: Path, *overrides: str) -> dict[str, Any]:
    """One arm and seed, on as many ranks as there are."""
    read = read_recipe(recipe, overrides)
    spec = read.task_spec("el_ls")
    return execute(RunSpec(lambda: build_task("translation", spec), spec.stages, RunDir(folder),
                           read.config("el_ls", 0), 0, spec.device, world, about=read.about_runs("el_ls")))
