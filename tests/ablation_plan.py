"""A corpus, tagged sentences and a plan that runs in seconds."""

from __future__ import annotations

import random
from pathlib import Path

PLAN = """
# Both directions against one, in seconds.
[plan]
title = "Directions"
claim = "Both directions are better."
source = "Devlin et al. 2019, table 5"
limits = "Nothing can be said at this size."
base = "both"
seeds = 2
[corpus]
train = ["train.txt"]
dev = ["dev.txt"]
vocab_size = 120
[model]
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 64
[training]
objective = "mlm"
max_steps = 4
batch_size = 4
max_seq_length = 16
precision = "fp32"
eval_every_steps = 2
dev_examples = 16
[arms.both]
title = "both directions"
paper = { "MNLI-m" = 83.9 }
[arms.left]
title = "left-to-right"
model = { attention_direction = "left-to-right" }
training = { objective = "next-word" }
paper = { "MNLI-m" = 82.1 }
[arms.right]
title = "right-to-left"
model = { attention_direction = "right-to-left" }
training = { objective = "previous-word" }
[arms.joined]
title = "two one-way models"
of = ["left", "right"]
features = { layers = [-1] }
[measures.words]
kind = "words"
title = "hidden words"
examples = 32
[measures.tags]
kind = "task"
title = "names"
task = "ner"
data = "ner"
settings = { epochs = 1, precision = "fp32" }
[measures.order]
kind = "task"
title = "order of sentences"
data = "sentence-order"
settings = { epochs = 1, pooling = "mean", precision = "fp32", max_train_rows = 40 }
arms = ["both", "left"]
"""


def write_data(folder: Path) -> Path:
    """The files that the plan reads."""
    draw = random.Random(0)
    words = "anna paul rome oslo saw met the old new house of in and with river boat small".split()
    for name, count in (("train", 60), ("dev", 25)):
        documents = [
            "\n".join(" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(4)) for _ in range(count)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n")
    (folder / "ner").mkdir()
    tags = {"anna": "B-PER", "paul": "B-PER", "rome": "B-LOC", "oslo": "B-LOC"}
    for name, count in (("train", 30), ("dev", 20)):
        sentences = [[f"{w}\t{tags.get(w, 'O')}" for w in draw.choices(words, k=7)] for _ in range(count)]
        (folder / "ner" / f"{name}.conll").write_text("\n\n".join("\n".join(rows) for rows in sentences) + "\n")
    return folder
