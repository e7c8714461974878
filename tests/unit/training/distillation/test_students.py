"""Layers that are taken out of a model, and the settings that say so."""

from __future__ import annotations

import pytest
import torch

from bertkit.batch import pack
from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError, InputError
from bertkit.model.keep_layers import keep_layers, shape_with, spread_layers
from bertkit.model.models import BertForSequenceClassification, BertModel
from bertkit.training.distillation.distill_settings import Student, load_recipe, recipe_names
from bertkit.training.distillation.students import attend_to_like, shape_of, small_shape, take_embeddings
from training_helpers import TINY

BATCH = pack([[1, 5, 2], [1, 7, 8, 9, 2]])


def test_six_of_twelve_are_those_of_distilbert():
    assert spread_layers(6, 12) == (0, 2, 4, 7, 9, 11)
    assert spread_layers(1, 12) == (0,)
    assert spread_layers(12, 12) == tuple(range(12))
    with pytest.raises(InputError, match="13 of 12 layers"):
        spread_layers(13, 12)


def test_kept_layers_compute_what_they_did_in_their_order():
    torch.manual_seed(0)
    model = BertForSequenceClassification(TINY.replace(num_hidden_layers=4)).eval()
    small = keep_layers(model, [0, 3])
    assert small.config.num_hidden_layers == small.bert.config.num_hidden_layers == 2
    with torch.inference_mode():
        x = model.bert.embeddings(BATCH)
        for number in (0, 3):
            x, _ = model.bert.encoder.layer[number](x, BATCH.layout)
        found = small.bert.forward_packed(BATCH).last_hidden_state
        assert torch.equal(found, x)
        whole = model.bert.forward_packed(BATCH).last_hidden_state
    assert not torch.equal(found, whole)  # and it is another model
    own = {p.data_ptr() for p in model.parameters()}
    assert not own & {p.data_ptr() for p in small.parameters()}


@pytest.mark.parametrize("layers", [[], [0, 0], [4], [-1]])
def test_layers_that_are_not_there_are_refused(layers):
    with pytest.raises(InputError, match="different numbers from 0 to 3"):
        shape_with(TINY.replace(num_hidden_layers=4), layers)


def test_families_whose_layers_have_places():
    albert = BertConfig(model_type="albert", num_hidden_groups=1)
    with pytest.raises(InputError, match="share their weights"):
        shape_with(albert, [0, 1])
    modern = BertConfig(model_type="modernbert", num_hidden_layers=6)
    if modern.layer_kinds[1] != modern.layer_kinds[0]:
        with pytest.raises(InputError, match="do not fit their new places"):
            shape_with(modern, [1, 2])


def test_a_small_shape_keeps_the_vocabulary():
    shape = small_shape(BertConfig(vocab_size=77), Student(shape="2x128"))
    assert (shape.vocab_size, shape.num_hidden_layers, shape.hidden_size) == (77, 2, 128)
    assert (shape.num_attention_heads, shape.intermediate_size) == (2, 512)
    tinybert = small_shape(BertConfig(), Student(shape="4x312", heads=12, feed_forward=1200))
    assert (tinybert.num_attention_heads, tinybert.intermediate_size) == (12, 1200)
    with pytest.raises(ConfigError, match="does not divide into 5 heads"):
        small_shape(BertConfig(), Student(shape="4x312", heads=5))


def test_students_are_written_in_three_ways():
    assert Student.parse("3").layers == 3
    assert Student.parse("0,2,5").layers == (0, 2, 5)
    assert Student.parse("2x128").shape == "2x128"
    assert Student.parse("./2x128").model == "./2x128"
    with pytest.raises(ConfigError, match="exactly one of them, got layers and model"):
        Student(layers=3, model="x").check()


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_of_the_package(name):
    recipe = load_recipe(name)
    assert recipe.summary
    assert recipe.changed() == recipe
    assert recipe.changed(student="3").begins_with().layers == 3
    assert (recipe.student is None) == (name in ("tinybert-task", "bertkit-tiny-en"))  # the second stage of something


def test_settings_replace_those_of_the_recipe(tmp_path):
    recipe = load_recipe("task").changed(["temperature=4", "epochs=7", "metric_for_best=macro_f1"], "2x128")
    assert recipe.distillation.temperature == 4.0
    assert (recipe.training.epochs, recipe.training.metric_for_best) == (7, "macro_f1")
    assert recipe.begins_with().shape == "2x128"
    with pytest.raises(ConfigError, match=r"temprature.*did you mean 'temperature'"):
        recipe.changed(["temprature=4"])
    with pytest.raises(ConfigError, match="soft_weight = 2"):
        recipe.changed(["soft_weight=2"])
    file = tmp_path / "own.toml"
    file.write_text('[distillation]\nmethod = "nothing"\n')
    with pytest.raises(ConfigError, match=r"method = 'nothing': give one of 'task'"):
        load_recipe(file)
    file.write_text('[distillation]\nmethod = "task"\n')
    with pytest.raises(ConfigError, match="give --student 3"):
        load_recipe(file).begins_with()


def test_settings_of_a_new_shape_can_be_set_by_themselves():
    recipe = load_recipe("task").changed(["mimetic=true", "heads=4"], "2x128")
    assert recipe.begins_with() == Student(shape="2x128", mimetic=True, heads=4)
    again = load_recipe("tinybert-general").changed(["teacher_embeddings=true"]).begins_with()
    assert again == Student(shape="4x312", heads=12, feed_forward=1200, teacher_embeddings=True)
    with pytest.raises(ConfigError, match="mimetic: for a new shape only"):
        load_recipe("task").changed(["mimetic=true"]).begins_with()
    with pytest.raises(ConfigError, match="give --student 3"):
        load_recipe("tinybert-task").changed().begins_with()
    with pytest.raises(ConfigError, match=r"'mimetik=true'.*did you mean 'mimetic'.*of the student: heads"):
        load_recipe("task").changed(["mimetik=true"])
    with pytest.raises(ConfigError, match=r"'shape=2x128'.*write NAME=VALUE"):  # --student says this
        load_recipe("task").changed(["shape=2x128"])


def test_a_mimetic_student_attends_to_the_same_word_in_the_other_text():
    words = torch.randperm(TINY.vocab_size - 3, generator=torch.Generator().manual_seed(0))[:11] + 3
    first, second = words[:6].tolist(), words[6:].tolist()
    second[2] = first[4]  # the one word that both have
    batch = pack([[1, *first, 2, *second, 2]], [[0] * 8 + [1] * 6])
    place, same = 5, 10

    def share(*, mimetic: bool) -> float:
        """Of the attention of a word to the other text, what goes to the same word there; mean over heads."""
        torch.manual_seed(0)
        model = BertModel(TINY.replace(hidden_size=64, num_attention_heads=2, num_hidden_layers=1)).eval()
        if mimetic:
            attend_to_like(model)
        attentions = model.forward_packed(batch, output_attentions=True).attentions
        assert attentions is not None
        given_Ns = attentions[0][0][:, place].detach()
        return float((given_Ns[:, same] / given_Ns[:, 8:13].sum(dim=-1)).mean())

    assert share(mimetic=False) == pytest.approx(1 / 5, abs=0.02)
    assert share(mimetic=True) > 0.5


def test_a_mimetic_start_is_for_attention_as_in_bert():
    for model_type in ("albert", "deberta-v2"):
        model = BertModel(TINY.replace(model_type=model_type))
        with pytest.raises(ConfigError, match=f"mimetic: only for attention as in BERT.*{model_type}"):
            attend_to_like(model)
    for model_type in ("electra", "roberta"):
        attend_to_like(BertModel(TINY.replace(model_type=model_type)))


def test_embeddings_of_a_teacher_keep_their_dot_products_at_another_width(tmp_path):
    torch.manual_seed(0)
    teacher = BertModel(TINY.replace(hidden_size=48, num_attention_heads=4))
    with torch.no_grad():  # words that lie in 16 directions, and so fit
        teacher.embeddings.word_embeddings.weight.copy_(torch.randn(TINY.vocab_size, 16) @ torch.randn(16, 48))
    for width, fits in ((48, True), (16, True), (8, False)):
        student = BertModel(TINY.replace(hidden_size=width, num_attention_heads=4))
        take_embeddings(student, teacher)
        ours, theirs = (model.embeddings.word_embeddings.weight.detach() for model in (student, teacher))
        same = torch.allclose(ours @ ours.T, theirs @ theirs.T, rtol=1e-4, atol=1e-3)
        assert same == fits
        ours, theirs = (model.embeddings.position_embeddings.weight.detach() for model in (student, teacher))
        assert width != 48 or torch.equal(ours, theirs)
    teacher.config.save_pretrained(tmp_path)  # no weights: the shapes alone say it
    with pytest.raises(ConfigError, match="have 64 numbers, the teacher's 48"):
        shape_of(Student(shape="2x64", teacher_embeddings=True), tmp_path)
    assert small_shape(TINY, Student(shape="2x64", initializer_range=0.05)).initializer_range == 0.05
    assert small_shape(TINY, Student(shape="2x64")).initializer_range == TINY.initializer_range
    with pytest.raises(ConfigError, match="teacher_embeddings: for a new shape only"):
        Student(layers=2, teacher_embeddings=True).check()
