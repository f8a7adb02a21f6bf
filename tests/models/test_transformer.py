"""The Transformer and its beam search, against torch's own layers and against a search without batches and caches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encouraging.errors import ArgumentError, RecipeError
from encouraging.models.beam import END, PAD, START, beam_search, longest
from encouraging.models.transformer import Transformer, sinusoids
from encouraging.models.translation_named import build_translation_model

SIZE = 24
LENGTHS = (9, 5, 1, 7, 2, 8, 3)


def model_of(**options) -> Transformer:
    """Weights that are large enough for translations to differ; in float64, where what is equal looks equal."""
    torch.manual_seed(1)
    model = Transformer(SIZE, SIZE, **{"layers": 2, "width": 16, "heads": 2, "hidden": 32, "share": "all", **options})
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(2)
    return model.double().eval()


def sentences(extra: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    rows = torch.full((len(LENGTHS), max(LENGTHS) + extra), PAD)
    for row, length in enumerate(LENGTHS):
        rows[row, : length - 1] = torch.randint(3, SIZE, (length - 1,), generator=draw)
        rows[row, length - 1] = END
    return rows


def logits(model, source, inputs):
    return F.linear(*model(source, inputs))


def torch_twin(model: Transformer) -> nn.Transformer:
    """torch's own Transformer with the same weights."""
    twin = nn.Transformer(16, 2, 2, 2, 32, 0.0, batch_first=True, norm_first=False, dtype=torch.float64)
    twin.encoder.norm = twin.decoder.norm = None

    def copy(attention, ours) -> None:
        attention.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        attention.in_proj_bias.copy_(torch.cat([ours.query.bias, 0 * ours.query.bias, ours.value.bias]))
        attention.out_proj.load_state_dict(ours.out.state_dict())

    with torch.no_grad():
        for theirs, ours in zip([*twin.encoder.layers, *twin.decoder.layers], [*model.encoder, *model.decoder],
                                strict=True):
            copy(theirs.self_attn, ours.attention)
            if ours.cross is not None:
                copy(theirs.multihead_attn, ours.cross)
            for number, norm in enumerate(ours.norms, 1):
                getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
            theirs.linear1.load_state_dict(ours.inner.state_dict())
            theirs.linear2.load_state_dict(ours.outer.state_dict())
    return twin.eval()


def test_it_is_the_transformer_that_torch_has():
    model = model_of()
    for param in model.parameters():
        nn.init.normal_(param, std=0.3)
    source, inputs = sentences(), torch.randint(3, SIZE, (len(LENGTHS), 6))
    embedding, sines = model.target_embedding, sinusoids(20, 16).double()
    ours, _ = model(source, inputs)
    theirs = torch_twin(model)(embedding(source) * 4 + sines[: source.shape[1]], embedding(inputs) * 4 + sines[:6],
                               tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64),
                               src_key_padding_mask=source == PAD, memory_key_padding_mask=source == PAD)
    torch.testing.assert_close(ours, theirs)


def test_a_padded_position_changes_nothing():
    model, inputs = model_of(), torch.randint(3, SIZE, (len(LENGTHS), 6))
    expected = logits(model, sentences(), inputs)
    torch.testing.assert_close(logits(model, sentences(extra=4), inputs), expected)
    longer = F.pad(inputs, (0, 3), value=PAD)
    torch.testing.assert_close(logits(model, sentences(), longer)[:, :6], expected)


def test_a_position_sees_no_later_one():
    model, inputs = model_of(), torch.randint(3, SIZE, (len(LENGTHS), 6))
    changed = inputs.clone()
    changed[:, 3:] = torch.randint(3, SIZE, (len(LENGTHS), 3))
    before, after = (logits(model, sentences(), words) for words in (inputs, changed))
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_the_cache_changes_nothing():
    """Piece by piece the logits are those of the whole sequence."""
    model, inputs = model_of(), torch.randint(3, SIZE, (len(LENGTHS), 7))
    whole = logits(model, sentences(), inputs)
    state = model.begin(sentences())
    for step in range(7):
        said, state = model.advance(inputs[:, step], state)
        torch.testing.assert_close(said, whole[:, step])


@torch.no_grad()
def plain_search(model, row: torch.Tensor, beam: int, penalty: float, limit: int) -> tuple[float, list[int]]:
    """Beam search on one sentence, without padding, batches or caches."""
    row = row[row != PAD][None]
    hypotheses, finished = [(0.0, [START])], []
    for step in range(1, limit + 1):
        following = []
        for score, words in hypotheses:
            chances = logits(model, row, torch.tensor([words]))[0, -1].log_softmax(-1).tolist()
            following += [(score + chances[word], [*words, word]) for word in range(SIZE)
                          if word not in (PAD, START) and (step < limit or word == END)]
        following = sorted(following, key=lambda one: -one[0])[: 2 * beam]
        finished += [(score / step**penalty, words) for score, words in following[:beam] if words[-1] == END]
        hypotheses = [one for one in following if one[1][-1] != END][:beam]
        if len(finished) >= beam or not hypotheses:
            break
    score, words = max(finished)
    return score, words[1:-1]


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("share", ["all", "none"])
def test_beam_search_finds_what_a_search_without_batches_and_caches_finds(beam, penalty, share):
    model = model_of(share=share)
    source = sentences(extra=2)
    found = beam_search(model, source, beam, penalty)
    lengths = set()
    for row, words, score, limit in zip(source, found.lists(), found.scores, longest(source), strict=True):
        expected, plain = plain_search(model, row, beam, penalty, int(limit))
        assert words == plain
        assert float(score) == pytest.approx(expected, abs=1e-4)
        lengths.add(len(words))
    assert len(lengths) > 2 or penalty == 0


def test_a_beam_of_one_is_greedy_search():
    model, source = model_of(), sentences()
    found = beam_search(model, source, 1).lists()
    for row, words in zip(source, found, strict=True):
        said, limit = [START], int(longest(row[None]))
        while said[-1] != END and len(said) < limit:
            chances = logits(model, row[row != PAD][None], torch.tensor([said]))[0, -1]
            chances[[PAD, START]] = -math.inf
            said.append(int(chances.argmax()))
        assert words == [word for word in said[1:] if word != END]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_translates_as_each_sentence_does_alone(beam):
    model, source = model_of(), sentences()
    whole = beam_search(model, source, beam)
    for row, words, score in zip(source, whole.lists(), whole.scores, strict=True):
        alone = beam_search(model, row[row != PAD][None], beam)
        assert alone.lists() == [words]
        torch.testing.assert_close(alone.scores[0], score)
    order = torch.randperm(len(source))
    assert beam_search(model, source[order], beam).lists() == [whole.lists()[at] for at in order]


def test_a_wider_beam_finds_no_less_probable_translations_on_average_and_limits_hold():
    model, source = model_of(), sentences()
    limit = torch.tensor([1, 2, 3, 4, 5, 6, 7])
    for beam in (1, 3):
        found = beam_search(model, source, beam, limit=limit)
        assert all(len(words) < most for words, most in zip(found.lists(), limit.tolist(), strict=True))
    narrow, wide = (beam_search(model, source, beam, 0.0).scores.mean() for beam in (1, 8))
    assert wide >= narrow
    with pytest.raises(ArgumentError, match="beam=0: expected a whole number, 1 or more"):
        beam_search(model, source, 0)


def test_no_sentence_is_too_long(monkeypatch):
    model, inputs = model_of(), torch.randint(3, SIZE, (len(LENGTHS), 6))
    expected = logits(model, sentences(), inputs)
    monkeypatch.setattr("encouraging.models.transformer.POSITIONS", 4)
    short = model_of()
    assert len(short.get_buffer("sines")) == 4
    torch.testing.assert_close(logits(short, sentences(), inputs), expected)
    assert beam_search(short, sentences(), 2).lists() == beam_search(model, sentences(), 2).lists()


def test_sharing_decides_which_matrices_are_one():
    counts = {}
    for share in ("none", "output", "all"):
        model = model_of(share=share)
        counts[share] = sum(param.numel() for param in model.parameters())
        assert (model.weight is model.target_embedding.weight) == (share != "none")
        names = [name for name, _ in model.named_parameters()]
        assert sorted(model.state_dict()) == sorted(names), "a shared matrix stands once in checkpoints"
    assert counts["none"] - counts["output"] == counts["output"] - counts["all"] == SIZE * 16


def spreads(model: Transformer) -> dict[str, float]:
    """The standard deviation of every kind of parameter, over all layers, without layer norms."""
    kinds: dict[str, list[torch.Tensor]] = {}
    for name, param in model.named_parameters():
        if "norms" not in name:
            kinds.setdefault(".".join(name.split(".")[-2:]), []).append(param.detach().flatten())
    return {kind: float(torch.cat(parts).std()) for kind, parts in kinds.items()}


@pytest.mark.parametrize("initial", ["xavier", "fairseq"])
def test_every_kind_of_parameter_starts_with_its_deviation(initial):
    width, hidden = 64, 160
    torch.manual_seed(0)
    model = Transformer(500, 500, layers=4, width=width, heads=4, hidden=hidden, initial=initial)

    def linear(inputs: int) -> float:  # nn.Linear's: uniform up to 1 / sqrt(inputs), weights and biases
        return 1 / math.sqrt(3 * inputs)

    def xavier(inputs: int, outputs: int) -> float:
        return math.sqrt(2 / (inputs + outputs))

    theirs = initial == "fairseq"
    expected = {
        "target_embedding.weight": width**-0.5, "source_embedding.weight": width**-0.5, "output.weight": width**-0.5,
        **{f"{name}.weight": xavier(width, 3 * width) for name in ("query", "key", "value")},
        **{f"{name}.bias": linear(width) if theirs else 0 for name in ("query", "value")},
        "out.weight": xavier(width, width), "out.bias": 0,
        "inner.weight": linear(width) if theirs else xavier(width, hidden),
        "outer.weight": linear(hidden) if theirs else xavier(hidden, width),
        "inner.bias": linear(width) if theirs else 0, "outer.bias": linear(hidden) if theirs else 0,
    }
    assert spreads(model) == pytest.approx(expected, rel=0.05)
    assert bool((model.target_embedding.weight[PAD] == 0).all())


def test_without_a_word_initial_values_are_xaviers():
    """As in the recipes that do not name them, whose records were trained so."""
    models = []
    for options in ({}, {"initial": "xavier"}):
        torch.manual_seed(0)
        models.append(Transformer(SIZE, SIZE, layers=1, width=16, heads=2, hidden=32, **options).state_dict())
    assert all(torch.equal(param, models[1][name]) for name, param in models[0].items())


@pytest.mark.parametrize(("options", "words"), [
    ({"width": 15}, "an even width that the heads divide"), ({"share": "some"}, "expected 'none', 'output' or 'all'"),
    ({"heads": 0}, "1 or more"), ({"layers": 0}, "1 or more"), ({"dropout": 1.5}, "dropout = 1.5"),
    ({"initial": "zeros"}, "expected 'xavier' or 'fairseq'"),
])
def test_sizes_that_cannot_be_are_refused(options, words):
    with pytest.raises(RecipeError, match=words):
        model_of(**options)


def test_other_mistakes_are_refused_in_words():
    with pytest.raises(RecipeError, match="expected one vocabulary for both"):
        build_translation_model("transformer", 5, 6, {"share": "all"})
    with pytest.raises(RecipeError, match=r"expected an nn\.Module with begin and advance"):
        build_translation_model("torch.nn:Identity", 5, 6)


def test_it_can_be_compiled_whole():
    model, inputs = model_of(layers=1), torch.randint(3, SIZE, (len(LENGTHS), 6))
    compiled = torch.compile(model, dynamic=False, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(F.linear(*compiled(sentences(), inputs)), logits(model, sentences(), inputs))
