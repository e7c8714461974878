"""Students of a fine-tuned MiniLM-L6: three of its layers, and new models of 2 x 128, with and without the teacher.

    python benchmarks/distillation.py --data ../shared/data --work distilled \
        --out benchmarks/results/distillation.md

Every cell is a task, a student and a seed. Its student is trained by recipe ``task`` on what the teacher says of the
training texts and on their labels, and once more on the labels alone, with the same settings; both keep the epoch that
is best on dev. The teacher of a task is fine-tuned once. Reported: dev scores beside the teacher's, size, operations
and milliseconds a text, minutes of training.

- ``sst2``, ``tweets``, ``mrpc``: three seeds. ``qnli``: one; QNLI has no training file here, so the first half of its
  dev file is trained on and the second scored.
- ``ner``: names in WNUT-17, one seed; what the teacher says of every word.
- ``augment``: MRPC, with variants of each training text, which the teacher labels (nearest words by the
  teacher's vectors); beside ``mrpc`` it shows what they add.

With ``--rows`` fewer rows are labelled, for the teacher as for the students, and with ``--unlabelled`` there are other
texts, whose labels are not read, that the teacher teaches beside them; the student without a teacher has no use for
those. For ``sst2`` and ``tweets`` they are other training texts, for ``mrpc`` and ``qnli`` pairs of other sets
(:data:`PAIRS`) of which neither text is scored; for ``qnli`` first of all SQuAD's questions (v1.1 dev), each with the
five sentences of its paragraph that share most words with it, except questions that are scored and paragraphs of which
a sentence is scored.

``benchmarks/results/distillation.jsonl`` has a line for each finished cell, and every run in a cell goes on where it
was stopped; ``--parts``, ``--students`` and ``--seeds`` choose cells. Students of three layers begin with the
fine-tuned teacher's layers and head, also without the teacher.
"""

from __future__ import annotations

import argparse
import lzma
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beside_trainer import spread
from cells import RESULTS, Cells, machines
from machine import about, block, minilm_folder, publish
from retrieval_data import FILE, Squad
from sentence_training import read_table

if TYPE_CHECKING:
    from bertkit.tasks.examples import Example

#: Task -> folder below --data, seeds, further settings of the students.
PARTS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "sst2": ("glue/SST-2", 3, ()),
    "tweets": ("tweet_sentiment", 3, ()),
    "mrpc": ("glue/MRPC", 3, ()),
    "qnli": ("glue/QNLI", 1, ()),
    "augment": ("glue/MRPC", 1, ("augment=2",)),
    "ner": ("ner/wnut17", 1, ()),
}
#: Student -> what it begins with, its settings; the rate of new weights is higher.
STUDENTS = {
    "3": ("3", ("learning_rate=1e-4",)),
    "2x128": ("2x128", ("learning_rate=5e-4", "epochs=10")),
    "2x128-mimetic": ("2x128", ("learning_rate=5e-4", "epochs=4", "mimetic=true", "teacher_embeddings=true")),
}
#: Sets of pairs: file below --data, columns of the two texts.
PAIRS = (
    ("glue/MRPC/test.tsv.xz", "#1 String", "#2 String"),
    *((f"glue/STS-B/{name}", "sentence1", "sentence2") for name in ("train.tsv.xz", "dev.tsv", "test.tsv")),
    *((f"glue/RTE/{name}", "sentence1", "sentence2") for name in ("train.tsv.xz", "dev.tsv", "test.tsv.xz")),
    ("glue/QQP/train_slice.tsv.xz", "question1", "question2"),
    ("mnli_dev/dev_matched.tsv.xz", "premise", "hypothesis"),
)
LENGTH = 128
HEADINGS = (
    *("part", "rows, unlabelled", "student", "teacher", "with it", "share", "without", "gain"),
    *("weights (M)", "MFLOP", "ms a text", "minutes"),
)


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    cells = Cells(args.cells, ("part", "student", "seed", "rows", "unlabelled"))
    for part in args.parts:
        for student in args.students:
            for seed in range(min(args.seeds, PARTS[part][1])):
                if (part, student, seed, args.rows, args.unlabelled) not in cells:
                    cells.add(run_cell(args, part, student, seed), args.threads)
    report = {"about": about(args.threads), "cells": list(cells.lines.values())}
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, tweet_sentiment/, ner/ and squad/")
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs; the same one continues")
    parser.add_argument("--cells", type=Path, default=RESULTS / "distillation.jsonl", help="file of finished cells")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--students", nargs="+", choices=list(STUDENTS), default=list(STUDENTS))
    parser.add_argument("--seeds", type=int, default=3, help="at most so many a part")
    parser.add_argument("--rows", type=int, help="labelled training rows; default: all")
    parser.add_argument("--unlabelled", type=int, default=0, help="texts without labels; not of ner")
    parser.add_argument("--settings", nargs="*", default=[], help="NAME=VALUE of recipe task, as epochs=1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="Markdown file for the table")
    return parser.parse_args()


def run_cell(args: argparse.Namespace, part: str, student: str, seed: int) -> dict[str, Any]:
    """A student with its teacher and without, and what both cost."""
    from bertkit.training.distillation.distill_settings import load_recipe
    from bertkit.training.distillation.distill_task import distill_task

    name = "mrpc" if part == "augment" else part
    data = data_of(args, name)
    rows = [] if args.rows is None else [f"max_train_rows={args.rows}"]
    start, own = STUDENTS[student]
    given = [f"max_length={LENGTH}", f"seed={seed}", "baseline=false", "precision=fp32", *own]
    recipe = load_recipe("task").changed([*given, *PARTS[part][2], *rows, *args.settings], start)
    teacher, mark = teacher_of(args, name, data), f"-{args.rows}" if args.rows else ""
    more = unlabelled_texts(args, name, data)
    mark += f"-{args.unlabelled}" if more else ""
    found = distill_task(
        [teacher],
        data,
        args.work / f"{part}-{student}-{seed}{mark}",
        recipe,
        task=name,
        texts=more,
        outputs=args.work / "outputs",
    )
    main_metric, alone = found.taught.main_metric, found.alone
    assert alone is not None
    return {
        "part": part,
        "student": student,
        "seed": seed,
        "rows": args.rows,
        "unlabelled": args.unlabelled,
        "metric": main_metric,
        "teacher": found.teacher[main_metric],
        "taught": found.taught.mean[main_metric],
        "alone": alone.mean[main_metric],
        "seconds": found.taught.seeds[0].seconds,
        "texts": dict(found.texts),
        "costs": {whose: costs.to_dict() for whose, costs in found.costs.items()},
    }


def data_of(args: argparse.Namespace, name: str) -> Path:
    """The files of a task; of QNLI two halves of its dev file."""
    folder: Path = args.data / PARTS[name][0]
    if name != "qnli":
        return folder
    halves: Path = args.work / "qnli-halves"
    if not (halves / "dev.tsv").exists():
        halves.mkdir(exist_ok=True)
        with lzma.open(folder / "dev.tsv.xz", "rt", encoding="utf-8") as file:
            head, *lines = file.readlines()
        middle = len(lines) // 2
        for split, own in (("train", lines[:middle]), ("dev", lines[middle:])):
            (halves / f"{split}.tsv").write_text(head + "".join(own), encoding="utf-8")
    return halves


def unlabelled_texts(args: argparse.Namespace, name: str, data: Path) -> list[Path]:
    """A file of texts without labels: training texts, a line each, or a table of pairs."""
    from bertkit.tasks import TASKS, load_split

    if not args.unlabelled or name == "ner":
        return []
    columns = TASKS[name].columns
    file: Path = args.work / f"unlabelled-{name}-{args.unlabelled}.{'tsv' if columns.text_pair else 'txt'}"
    if not file.exists():
        if columns.text_pair:
            head, scored = [f"{columns.text[0]}\t{columns.text_pair[0]}"], load_split(TASKS[name], data, "dev")
            rows = shuffled(question_pairs(args.data, scored)) if name == "qnli" else []
            rows += shuffled(other_pairs(args.data, scored))
        else:
            train = load_split(TASKS[name], data, "train")
            head, rows = [], shuffled([" ".join(example.text.split()) for example in train])
        file.write_text("".join(f"{row}\n" for row in [*head, *rows[: args.unlabelled]]), encoding="utf-8")
    return [file]


def shuffled(rows: Sequence[str]) -> list[str]:
    """In an order that is always the same."""
    return [rows[number] for number in np.random.default_rng(0).permutation(len(rows))]


def other_pairs(data: Path, scored: Sequence[Example]) -> list[str]:
    """The pairs of :data:`PAIRS` of which neither text is scored."""
    known = {plain(text) for example in scored for text in (example.text, example.text_pair or "")}
    found = []
    for name, *columns in PAIRS:
        for row in read_table(data / name):
            pair = [(row[column] or "").strip() for column in columns]  # None where a row is cut short
            if all(pair) and not any(plain(text) in known for text in pair):
                found.append("\t".join(pair))
    return found


def question_pairs(data: Path, scored: Sequence[Example]) -> list[str]:
    """Questions with sentences of their paragraphs, of which none is scored."""
    from bertkit.tasks.seq2seq.scoring import sentences

    questions = {plain(example.text) for example in scored}
    answers = {plain(example.text_pair or "") for example in scored}
    squad = Squad.read(data / FILE, None)
    found = []
    for question, place in zip(squad.questions, squad.places, strict=True):
        paragraph = squad.paragraphs[place]
        words = plain(paragraph)
        if plain(question) in questions or any(answer in words for answer in answers):
            continue
        asked = set(plain(question).split())
        nearest = sorted(sentences(paragraph), key=lambda each: -len(asked & set(plain(each).split())))
        found += [" ".join(question.split()) + "\t" + " ".join(each.split()) for each in nearest[:5]]
    return found


def plain(text: str) -> str:
    """Its words, to compare texts that were cut and spaced in different ways."""
    return " ".join(re.findall(r"\w+", text.lower()))


def teacher_of(args: argparse.Namespace, name: str, data: Path) -> Path:
    """MiniLM-L6, fine-tuned once for a task."""
    from bertkit.training.finetuning.finetune import finetune
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    out: Path = args.work / f"teacher-{name}{f'-{args.rows}' if args.rows else ''}"
    config = FinetuneConfig(max_length=LENGTH, precision="fp32", max_train_rows=args.rows)
    return finetune(name, data, minilm_folder(), out, config, resume=out.exists()).folder


def render(report: Mapping[str, Any]) -> list[str]:
    """The table: a row for each part and student, over its seeds."""
    lines = [
        "# Students of a fine-tuned MiniLM-L6",
        "",
        *block(report["about"]),
        "",
        *machines(report["cells"]),
        "",
        "Dev scores, mean ± standard deviation over the seeds; share: of the teacher. Gain: with less without the "
        "teacher, of each seed. Time: of the student's training with the teacher, without the teacher's own.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
    ]
    groups: dict[tuple[str, int | None, int, str], list[Mapping[str, Any]]] = {}
    for cell in report["cells"]:
        groups.setdefault((cell["part"], cell["rows"], cell["unlabelled"], cell["student"]), []).append(cell)
    for (part, rows, _, student), cells in groups.items():
        teacher, taught, alone = ([cell[name] for cell in cells] for name in ("teacher", "taught", "alone"))
        gains = [with_it - without for with_it, without in zip(taught, alone, strict=True)]
        share = statistics.fmean(taught) / statistics.fmean(teacher)
        own = [cell["costs"]["student"] for cell in cells]
        weights, work, time = (
            statistics.median(cost[name] for cost in own) for name in ("parameters", "megaflops", "milliseconds")
        )
        cells_of_row = (
            f"{part} ({cells[0]['metric']})",
            f"{rows or 'all'}, {cells[0]['texts']['unlabelled']}",
            student,
            f"{statistics.fmean(teacher):.4f}",
            spread(taught),
            f"{share:.1%}",
            spread(alone),
            ", ".join(f"{gain:+.4f}" for gain in gains),
            f"{weights / 1e6:.2f}",
            f"{work:.0f}",
            f"{time:.2f}",
            f"{max(cell['seconds'] for cell in cells) / 60:.1f}",
        )
        lines.append(f"| {' | '.join(map(str, cells_of_row))} |")
    return lines


if __name__ == "__main__":
    main()
