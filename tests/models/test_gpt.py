"""The small GPT: what a position may depend on, its initial values, its parameters and those of transformers' GPT-2."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from encouraging.errors import RecipeError, ShapeError
from encouraging.models.continuation import continued
from encouraging.models.gpt import GPT
from encouraging.models.language_named import build_language_model


def small(**keys):
    torch.manual_seed(0)
    return GPT(11, 8, **{"layers": 2, "width": 16, "heads": 2, **keys})


def test_a_position_depends_on_the_tokens_before_it_alone():
    model, tokens = small().eval(), torch.randint(11, (2, 8))
    features, weight = model(tokens)
    assert features.shape == (2, 8, 16)
    assert weight is model.embedding.weight
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 11
    torch.testing.assert_close(model(changed)[0][:, :5], features[:, :5])
    torch.testing.assert_close(model(tokens[:, :5])[0], features[:, :5])
    assert not torch.allclose(model(changed)[0][:, 5:], features[:, 5:])
    with pytest.raises(ShapeError, match="9 tokens: expected at most 8"):
        model(torch.zeros(1, 9, dtype=torch.long))


def test_initial_values_are_those_of_gpt_2_and_logits_start_near_0():
    torch.manual_seed(0)
    model = GPT(65, 64, layers=8, width=256, heads=4)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert bool((parameter == 1).all()), name
        else:
            residual = name.endswith(("out.weight", "outer.weight"))
            assert float(parameter.detach().std()) == pytest.approx(0.02 / (4 if residual else 1), rel=0.05), name
    features, weight = model(torch.randint(65, (4, 64)))
    assert F.cross_entropy(F.linear(features, weight).flatten(0, 1), torch.randint(65, (256,))).item() == \
        pytest.approx(4.17, abs=0.3)


def test_it_computes_what_gpt_2_of_transformers_computes_without_biases():
    transformers = pytest.importorskip("transformers")
    ours = small().eval()
    theirs = transformers.GPT2Model(transformers.GPT2Config(
        vocab_size=11, n_positions=8, n_embd=16, n_layer=2, n_head=2, activation_function="gelu")).eval()
    state = {name: torch.zeros_like(value) for name, value in theirs.state_dict().items()}
    state |= {"wte.weight": ours.embedding.weight, "wpe.weight": ours.positions.weight, "ln_f.weight": ours.norm.weight}
    for number, block in enumerate(ours.blocks):
        state |= {f"h.{number}.ln_1.weight": block.norms[0].weight, f"h.{number}.ln_2.weight": block.norms[1].weight,
                  f"h.{number}.attn.c_attn.weight": block.attend.weight.T,
                  f"h.{number}.attn.c_proj.weight": block.out.weight.T,
                  f"h.{number}.mlp.c_fc.weight": block.inner.weight.T,
                  f"h.{number}.mlp.c_proj.weight": block.outer.weight.T}
    theirs.load_state_dict(state)
    tokens = torch.randint(11, (3, 8))
    torch.testing.assert_close(ours(tokens)[0], theirs(tokens).last_hidden_state, rtol=1e-4, atol=1e-5)


def test_a_continuation_takes_the_most_probable_tokens_or_draws_from_the_probabilities():
    model, tokens = small().eval(), torch.tensor([1, 2, 3])
    greedy = continued(model, tokens, 8, torch.Generator(), temperature=0)
    seen = tokens
    for _ in range(12):  # longer than the context
        features, weight = model(seen[None, -8:])
        token = int(F.linear(features[0, -1], weight).argmax())
        assert next(greedy) == token
        seen = torch.cat([seen, torch.tensor([token])])
    with torch.no_grad():
        model.embedding.weight.mul_(40)
        features, weight = model(tokens[None])
    expected = F.linear(features[0, -1], weight).softmax(0)
    drawn = [next(continued(model, tokens, 8, torch.Generator().manual_seed(seed))) for seed in range(2000)]
    torch.testing.assert_close(torch.bincount(torch.tensor(drawn), minlength=11) / 2000, expected.detach(), rtol=0,
                               atol=0.04)


def test_the_smallest_temperature_takes_the_most_probable_token_and_the_largest_any():
    model, tokens = small().eval(), torch.tensor([1, 2, 3])
    features, weight = model(tokens[None])
    best = int(F.linear(features[0, -1], weight).argmax())
    for temperature in (0, 5e-324, 1e-9):
        draw = torch.Generator().manual_seed(1)
        assert next(continued(model, tokens, 8, draw, temperature)) == best, temperature
    drawn = {next(continued(model, tokens, 8, torch.Generator().manual_seed(seed), 1e300)) for seed in range(200)}
    assert drawn == set(range(11))


def test_ones_own_network_is_called_with_the_sizes(tmp_path):
    (tmp_path / "own_gpt.py").write_text(
        "from encouraging.models.gpt import GPT\n\ndef net(size, context, layers):\n"
        "    return GPT(size, context, layers=layers, width=8, heads=2)\n\ndef number(size, context):\n    return 3\n")
    model = build_language_model("own_gpt:net", 9, 4, {"layers": 3}, str(tmp_path))
    assert len(model.blocks) == 3
    with pytest.raises(RecipeError, match=r"returned a int: expected an nn.Module"):
        build_language_model("own_gpt:number", 9, 4, {}, str(tmp_path))
