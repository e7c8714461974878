"""Recipes: all that ship load, the published numbers are in them, and what is wrong in a file is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit.cli import main
from bertkit.config.presets import count_parameters
from bertkit.errors import ConfigError
from bertkit.training.pretraining.objectives import network_class, with_objective
from bertkit.training.pretraining.pretrain_settings import FOLDER, PretrainConfig, load_recipe, recipe_names
from everyday import some

NAMES = (
    "bart-tiny", "bert-base-original", "bert-large-original", "bertkit-tiny-en", "cramming-style", "mini",
    "mosaicbert-style", "small", "t5-tiny", "tiny",
)  # fmt: skip


def test_what_ships() -> None:
    assert recipe_names() == NAMES
    assert (Path(__file__).parents[4] / "recipes").resolve() == FOLDER


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_whole_and_says_where_it_is_from(name) -> None:
    recipe = load_recipe(name)
    text = (FOLDER / f"{name}.toml").read_text()
    assert "# Source: " in text
    assert "# Cost: " in text
    assert len(recipe.summary) > 40
    assert recipe.training.max_seq_length <= recipe.model.max_input_length
    assert network_class(recipe.model, with_objective(recipe.training, recipe.model))


@pytest.mark.slow
@pytest.mark.parametrize("name", some((name for name in NAMES if name.endswith(("tiny", "mini", "tiny-en"))), ["tiny"]))
def test_the_size_that_is_told_is_that_of_the_model(name) -> None:
    recipe = load_recipe(name)
    made = network_class(recipe.model, with_objective(recipe.training, recipe.model))(recipe.model)
    counted = made if name in ("bart-tiny", "t5-tiny") else made.bert
    assert count_parameters(recipe.model) == sum(p.numel() for p in counted.parameters())


def test_published_numbers() -> None:
    """From appendix A.2 of Devlin et al. 2019, and the published settings of MosaicBERT and of Cramming."""
    for name, parameters in (("bert-base-original", 109_482_240), ("bert-large-original", 335_141_888)):
        recipe = load_recipe(name)
        assert count_parameters(recipe.model) == parameters
        assert recipe.model.hidden_dropout_prob == recipe.model.attention_probs_dropout_prob == 0.1
        settings = recipe.training
        assert (settings.batch_size, settings.learning_rate, settings.optimizer) == (256, 1e-4, "adam-weight-decay")
        assert round(settings.warmup * settings.num_steps) == 10_000
        assert [(*phase[:2], phase[3]) for phase in settings.phases] == [(128, 20, 900_000), (512, 77, 100_000)]
    mosaic = load_recipe("mosaicbert-style").training
    assert (mosaic.masked_lm_prob, mosaic.dev_masked_lm_prob, mosaic.objective) == (0.3, 0.15, "mlm")
    assert mosaic.batch_size * mosaic.num_steps == 286_720_000
    assert mosaic.learning_rate * mosaic.weight_decay == pytest.approx(1e-5)
    cramming = load_recipe("cramming-style")
    assert cramming.training.max_seconds == 24 * 3600
    assert cramming.model.hidden_dropout_prob == cramming.model.attention_probs_dropout_prob == 0


GOOD = '# A test.\n[model]\npreset = "bert-tiny"\n[training]\nmax_steps = 3\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "max_stepz = 4\n", r"r\.toml, \[training\]: unknown field 'max_stepz' \(did you mean 'max_steps'"),
        (GOOD.replace("preset", "hidden_siz = 3\npreset"), r"r\.toml, \[model\]: unknown field 'hidden_siz' \(did"),
        (GOOD.replace("bert-tiny", "bert-tinny"), r"\[model\]: no preset 'bert-tinny' \(did you mean 'bert-tiny'"),
        (GOOD.replace("[training]", "[trainin]"), r"unknown key 'trainin' \(did you mean 'training'"),
        (GOOD.replace("= 3", "= 0"), r"\[training\]: max_steps = 0"),
        (GOOD.replace("= 3", '= "many"'), r"\[training\]: max_steps = 'many'"),
        (GOOD + "short_seq_length = 129\n", r"\[training\]: short_seq_length=129"),
        (GOOD.replace('preset = "bert-tiny"', ""), r"\[model\] is missing or empty"),
        (GOOD.replace('"bert-tiny"', "7"), "preset = 7"),
        (GOOD + "x =\n", r"r\.toml cannot be read as TOML.*line 6"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, told) -> None:
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    assert load_recipe(path).training == PretrainConfig(max_steps=3)  # control: without the fault it loads
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_recipe(path)


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(ConfigError, match=r"no recipe 'minni' \(did you mean 'mini'\?\).*cramming-style"):
        load_recipe("minni")


@pytest.mark.slow
def test_the_tiny_recipe_trains_and_options_win_over_it(stores, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    command = ["pretrain", str(stores[0].path), "--recipe", "tiny", "--max-steps", "2", "--batch-size", "8", "-q"]
    assert main([*command, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    kept = json.loads((out / "metrics.json").read_text())["settings"]
    expected = {"max_steps": 2, "batch_size": 8, "precision": "fp32"}
    assert kept == load_recipe("tiny").training.replace(**expected).model_dump()
    assert json.loads((out / "model" / "config.json").read_text())["vocab_size"] == 18
    assert main([*command, "--out", str(tmp_path / "x"), "--preset", "bert-tiny", "--model", "y"]) == 2
    assert "not both" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "x"), "--max-time", "soon"]) == 2
    assert "20m" in capsys.readouterr().err


def test_a_time_limit_replaces_the_steps_of_a_recipe_and_the_other_way_round() -> None:
    from bertkit.cli.pretrain import _settings

    tiny, mini = load_recipe("tiny").training, load_recipe("mini").training
    by_time = _settings(tiny, PretrainConfig(), "20m")
    assert (by_time.max_steps, by_time.max_seconds, by_time.learning_rate) == (None, 1200, tiny.learning_rate)
    by_steps = _settings(mini, PretrainConfig(max_steps=7), None)
    assert (by_steps.max_steps, by_steps.max_seconds) == (7, None)
    both = _settings(mini, PretrainConfig(max_steps=7), "1h")
    assert (both.max_steps, both.max_seconds) == (7, 3600)


def test_the_original_recipes_can_have_a_time_budget_as_they_say() -> None:
    from bertkit.cli.pretrain import _settings

    base = load_recipe("bert-base-original").training
    with pytest.raises(ConfigError, match="counts steps"):
        _settings(base, PretrainConfig(), "8h")
    settings = _settings(base, PretrainConfig(schedule="linear"), "8h")
    assert [phase[:2] for phase in settings.phases] == [(128, 20), (512, 77)]
    assert settings.max_seconds == 8 * 3600


def test_help_shows_one_way_to_limit_the_time(capsys) -> None:
    """The setting of recipes is an option too, for a script that has seconds; both at once are refused."""
    assert main(["pretrain", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--max-time" in shown
    assert "not counting evaluations" in shown
    assert "--max-seconds" not in shown
    command = ["pretrain", "nowhere", "--preset", "bert-tiny", "--out", "x", "--max-seconds", "60"]
    assert main([*command, "--max-time", "1m"]) == 2
    assert "not both" in capsys.readouterr().err
    assert main(command) == 3
    assert "nowhere" in capsys.readouterr().err
    assert main([*command[:-1], "0"]) == 2
    assert "greater than 0" in capsys.readouterr().err


def test_help_lists_the_recipes(capsys) -> None:
    assert main(["pretrain", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(name in shown for name in NAMES)
