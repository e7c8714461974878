"""What a model costs: models are measured in turns, each example as often as any other."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from bertkit.config.bert_config import BertConfig
from bertkit.training.distillation.model_costs import MEASURED, TURNS, WARM_UP, Measurable, costs_of


@pytest.mark.parametrize("num_examples", [1, 7, MEASURED, 2 * MEASURED])
def test_models_are_measured_in_turns(num_examples: int) -> None:
    calls: list[tuple[str, int]] = []

    def measurable(name: str, width: int) -> Measurable:
        shape = BertConfig(vocab_size=30, hidden_size=width, num_hidden_layers=2, num_attention_heads=2)
        return Measurable(shape, width, [[5]] * num_examples, lambda n: calls.append((name, n)), whole=True)

    found = costs_of({"teacher": measurable("teacher", 64), "student": measurable("student", 32)})
    blocks = [name for name, _ in groupby(name for name, _ in calls)]
    assert blocks == ["teacher", "student"] * min(TURNS, num_examples)
    for name in found:
        counts = Counter(number for each, number in calls if each == name)
        assert set(counts) == set(range(min(num_examples, MEASURED)))
        assert set(counts.values()) <= {1, 2}, "an example that warms up is measured too"
        assert sum(count == 2 for count in counts.values()) <= WARM_UP * TURNS
    assert found["teacher"].megaflops > 2 * found["student"].megaflops
