"""The words of the verdicts: their order, their colour, and what each means to someone who has not read the paper."""

from __future__ import annotations

from typing import NamedTuple

NOT_MEASURED = "not measured"
OWN_NOT_MEASURED = ("Differences are taken seed by seed, and no seed has a number of both sides, so there is nothing "
                    "to say. Run both with the same seeds.")  # of a reader's own numbers, which no command here runs


class Verdict(NamedTuple):
    """A verdict: its word, its tone, which is a colour of the page, and two sentences that explain it."""

    word: str
    tone: str
    means: str

    @property
    def key(self) -> str:
        """Its name in addresses and classes."""
        return self.word.replace(" ", "-")


_ALL = (
    Verdict("reproduced", "good",
            "The paper says that one way of training does better than another, and our runs agree: every difference "
            "that is plausible after these runs is on the paper’s side of zero. This is about which one is better; by "
            "how much may differ from the paper."),
    Verdict("holds", "good",
            "The answer to this question is yes: every difference that is plausible after these runs is on the claimed "
            "side of zero. This is about which one is better, not about by how much."),
    Verdict("no difference", "same",
            "Both ways of training do equally well, as far as it matters: even the largest difference that is "
            "plausible after these runs is less than half of the one that was looked for. This needs enough runs, so "
            "it is more than not having found anything."),
    Verdict("contradicted", "bad",
            "The paper says that one way of training does better than another, and in our runs it does worse: every "
            "difference that is plausible after these runs is on the other side of zero. Settings of ours that differ "
            "from the paper’s are listed in the recipe’s section and may be the reason."),
    Verdict("fails", "bad",
            "The answer to this question is no: every difference that is plausible after these runs is on the other "
            "side of zero. The side that was expected to be better is worse here."),
    Verdict("undecided", "open",
            "These runs cannot tell: differences on both sides of zero are plausible, or there are fewer than three "
            "runs of each kind. That does not mean that both are equally good; more runs with other random seeds "
            "would narrow it down."),
    Verdict(NOT_MEASURED, "none",
            "Nobody has run this comparison yet, or only one side of it, so there is nothing to say. The command "
            "beside it runs it."),
)
VERDICTS = {verdict.word: verdict for verdict in _ALL}


def verdict_of(word: str) -> Verdict:
    """The verdict of that word; one that is not known here is shown without a colour.

    >>> verdict_of("undecided").tone, verdict_of("withdrawn").tone
    ('open', 'none')
    """
    return VERDICTS.get(word, Verdict(word, "none", f"These runs were judged with the word “{word}”. What it means is "
                                                    "known to the version that wrote it."))


def counted(words: list[str]) -> list[tuple[Verdict, int]]:
    """How often each verdict was given, in the order of the table.

    >>> [(verdict.word, n) for verdict, n in counted(["undecided", "reproduced", "undecided"])]
    [('reproduced', 1), ('undecided', 2)]
    """
    present = [*(word for word in VERDICTS if word in words), *dict.fromkeys(word for word in words
                                                                             if word not in VERDICTS)]
    return [(verdict_of(word), words.count(word)) for word in present]
