"""The losses of distillation against a few lines of other arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, softmax
from scipy.stats import entropy

from bertkit.batch import pack
from bertkit.model.models import BertForSequenceClassification
from bertkit.model.soft_targets import TEACHER, TaughtModel, hard_losses, soft_losses
from bertkit.tasks import Columns, TextTask
from bertkit.tasks.taught_workflow import Lesson, taught_workflow
from bertkit.training.distillation.teachers import combined
from training_helpers import TINY

RANDOM = np.random.default_rng(0)
STUDENT, TEACHER_LOGITS = RANDOM.normal(size=(2, 6, 3)).astype(np.float32) * 3
ONE = TextTask("one", ("a", "b", "c"), ("accuracy",), "accuracy", Columns(("text",)))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
def test_soft_loss_of_one_label_is_the_divergence_of_softened_probabilities(temperature):
    found = soft_losses(*map(torch.tensor, (STUDENT, TEACHER_LOGITS)), "single_label_classification", temperature)
    wanted = entropy(softmax(TEACHER_LOGITS / temperature, 1), softmax(STUDENT / temperature, 1), axis=1)
    np.testing.assert_allclose(found.numpy(), temperature**2 * wanted, rtol=1e-5, atol=3e-5)


def test_gradient_nears_that_of_squared_logits_as_the_temperature_grows():
    """Hinton et al. 2015, equation 4, for logits of mean 0, summed over the rows: (s - t) / C."""
    student = torch.tensor(STUDENT - STUDENT.mean(1, keepdims=True), requires_grad=True)
    teacher = torch.tensor(TEACHER_LOGITS - TEACHER_LOGITS.mean(1, keepdims=True))
    soft_losses(student, teacher, "single_label_classification", 1e3).sum().backward()
    torch.testing.assert_close(student.grad, (student.detach() - teacher) / 3, rtol=0, atol=2e-2)


def test_soft_loss_of_several_labels_and_of_numbers():
    s, t = map(torch.tensor, (STUDENT, TEACHER_LOGITS))
    found = soft_losses(s, t, "multi_label_classification", 2.0)
    p, q = expit(TEACHER_LOGITS / 2.0), expit(STUDENT / 2.0)
    wanted = 4.0 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-6)
    found = soft_losses(s[:, :1], t[:, :1], "regression", 2.0)
    np.testing.assert_allclose(found.numpy(), (STUDENT - TEACHER_LOGITS)[:, 0] ** 2, rtol=1e-6)


def test_hard_loss_leaves_out_what_has_no_label():
    labels = torch.tensor([0, -100, 2, 1, -100, 0])
    losses, has = hard_losses(torch.tensor(STUDENT), labels, "single_label_classification")
    known = [0, 2, 3, 5]
    assert has.nonzero().flatten().tolist() == known
    wanted = -log_softmax(STUDENT, 1)[known, labels[known]]
    np.testing.assert_allclose(losses[known].numpy(), wanted, rtol=1e-5)
    numbers = torch.tensor([0.5, float("nan"), 1.0, 2.0, float("nan"), 3.0])
    losses, has = hard_losses(torch.tensor(STUDENT[:, :1]), numbers, "regression")
    assert has.nonzero().flatten().tolist() == known
    assert losses[1] == losses[4] == 0
    np.testing.assert_allclose(losses[known].numpy(), (STUDENT[known, 0] - numbers[known].numpy()) ** 2, rtol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.7, 1.0])
def test_a_row_without_a_label_is_learned_from_the_teacher_alone(weight):
    torch.manual_seed(0)
    shape = TINY.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    student = BertForSequenceClassification(shape.replace(problem_type="single_label_classification")).eval()
    taught = TaughtModel(student, taught_workflow(ONE, Lesson(2.0, weight)), weight)
    batch = pack([[1, 5, 2], [1, 7, 8, 2], [1, 9, 2]])
    teacher, labels = torch.tensor(TEACHER_LOGITS[:3]), torch.tensor([2, -100, 0])
    logits = student.forward_packed(batch).logits
    targets = batch.with_target("labels", labels).with_target(TEACHER, teacher)
    terms = taught.forward_packed(targets).loss_terms
    counts = taught.num_targets(targets)
    assert counts == dict.fromkeys(terms, 3.0)
    soft = soft_losses(logits, teacher, "single_label_classification", 2.0)
    hard = torch.nn.functional.cross_entropy(logits[[0, 2]], labels[[0, 2]], reduction="none")
    wanted = weight * soft[[0, 2]].sum() + soft[1] + (1 - weight) * hard.sum()
    torch.testing.assert_close(sum(term.total for term in terms.values()), wanted)


def test_ensembles_average_probabilities_or_logits():
    both = [STUDENT, TEACHER_LOGITS]
    np.testing.assert_allclose(
        combined(both, "single_label_classification", "logits", 2.0), np.mean(both, axis=0), rtol=1e-6
    )
    soft = softmax(combined(both, "single_label_classification", "probabilities", 2.0) / 2.0, 1)
    np.testing.assert_allclose(soft, np.mean([softmax(each / 2.0, 1) for each in both], axis=0), rtol=1e-5)
    soft = expit(combined(both, "multi_label_classification", "probabilities", 2.0) / 2.0)
    np.testing.assert_allclose(soft, np.mean([expit(each / 2.0) for each in both], axis=0), rtol=1e-5)
    numbers = [STUDENT[:, :1], TEACHER_LOGITS[:, :1]]
    np.testing.assert_allclose(combined(numbers, "regression", "probabilities", 2.0), np.mean(numbers, axis=0))
    assert not np.allclose(
        combined(both, "single_label_classification", "probabilities", 2.0),
        combined(both, "single_label_classification", "logits", 2.0),
    )
