"""Fine-tune a model on SST-2 with transformers' Trainer, bf16 and rows of similar length together: a whole command.

python benchmarks/gpu_trainer.py MODEL DATA EPOCHS SEED DEVICE: beside ``bertkit finetune`` in gpu_all.py. Writes the
accuracy on dev as a line of JSON.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import transformers


def main() -> None:
    folder, data, device = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[5]
    epochs, seed = int(sys.argv[3]), int(sys.argv[4])
    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = transformers.TrainingArguments(
            output_dir=scratch, num_train_epochs=epochs, per_device_train_batch_size=32,
            per_device_eval_batch_size=128, learning_rate=1e-4, weight_decay=0.01, adam_epsilon=1e-6, warmup_steps=0.1,
            seed=seed, bf16=device == "cuda", use_cpu=device == "cpu", train_sampling_strategy="group_by_length",
            eval_strategy="epoch", save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=rows_of(data / "train.tsv", tokenizer),
            eval_dataset=rows_of(data / "dev.tsv", tokenizer),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda out: {"accuracy": float((np.argmax(out.predictions, -1) == out.label_ids).mean())},
        )
        trainer.train()
    scores = [row["eval_accuracy"] for row in trainer.state.log_history if "eval_accuracy" in row]
    print(json.dumps({"accuracy": scores[-1]}))


def rows_of(file: Path, tokenizer: transformers.PreTrainedTokenizerBase) -> list[dict[str, object]]:
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    ids = tokenizer([row["sentence"] for row in rows], truncation=True, max_length=128)["input_ids"]
    return [{"input_ids": own, "labels": int(row["label"])} for own, row in zip(ids, rows, strict=True)]


if __name__ == "__main__":
    main()
