"""``bertkit distill``: a small model that learns from a large one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli.common_options import COMMON_GROUP, Output
from bertkit.errors import ConfigError
from bertkit.system.console import set_quiet
from bertkit.training.distillation.distill_settings import DistillRecipe, load_recipe, recipe_names


@Parameter(name="*")
@dataclass(frozen=True)
class Taught:
    """What fine-tuned teachers are asked beside the labelled data (recipe task)."""

    texts: Annotated[
        list[Path] | None,
        Parameter(
            negative=(),
            help="Recipe task: more examples, whose labels are not read: files as --data, or, for tasks of texts, a "
            "text a line.",
        ),
    ] = None
    task: Annotated[
        str | None, Parameter(help="Recipe task: the task, such as sst2, if the teacher's run does not name it.")
    ] = None
    dev: Annotated[Path | None, Parameter(help="Recipe distilbert: token store of held-out text.")] = None
    compare: Annotated[bool, Parameter(help="Recipe task: also train the same student without the teacher.")] = True


def distill(
    recipe: Annotated[str, Parameter(help=f"TOML file, or one of: {', '.join(recipe_names())}.")],
    /,
    *,
    teacher: Annotated[
        list[str],
        Parameter(alias="-t", negative=(), help="Model to learn from. With recipe task, several are averaged."),
    ],
    out: Annotated[Path, Parameter(alias="-o", help="Folder to write; new, or of the same command.")],
    data: Annotated[
        Path | None,
        Parameter(
            help="Recipe task: labelled files, default those of the teacher's run. Recipe vectors: texts, one a "
            "line or a column text. Others: a token store of 'bertkit prepare'."
        ),
    ] = None,
    student: Annotated[
        str | None,
        Parameter(
            help="Initial student: 3 (three of the teacher's layers), 0,2,5 (these), 2x128 (new, layers x width), "
            "or a model. Default: as the recipe says."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, Parameter(name="--set", negative=(), help="NAME=VALUE overrides a setting of the recipe.")
    ] = None,
    seed: Annotated[
        int | None, Parameter(group=COMMON_GROUP, help="Seed of new weights, order and dropout; default: the recipe's.")
    ] = None,
    taught: Taught = Taught(),
    output: Output = Output(),
) -> None:
    r"""Train a small model to imitate a large one: nearly as good, a fraction of the cost.

    Recipe task: a student of any fine-tuned run, of any family, that labels texts or
    pairs, tags words, chooses or answers questions. It learns the teacher's
    probabilities, with or without labels, and is compared with the teacher and with
    the same student trained on the labels alone. OUT/with holds the student. Recipe
    tinybert-task first trains attention and hidden states to match the teacher's,
    and augments the texts.

    Recipe vectors: a small sentence encoder that learns the vectors of a large one.
    OUT/model holds it.

    Recipes distilbert, minilmv2 and tinybert-general: a small general model, trained
    on running text as published. OUT/model holds it. Teacher and store need the same
    tokenizer.

    Teacher outputs are computed once and cached in OUT. If interrupted, the same
    command resumes.

    For example:

        bertkit distill task --teacher run --student 3 --out small
        bertkit distill task --teacher run1 --teacher run2 --student 2x128 \
            --texts unlabelled.txt --out tiny --set epochs=10
        bertkit distill vectors --teacher MODEL --data texts.txt --student 3 \
            --out encoder
        bertkit distill distilbert --teacher bert-base-uncased --data store \
            --out own --set max_steps=2000 --set batch_size=64
    """
    from bertkit.system.device import find_device

    set_quiet(output.quiet)
    seeded = [] if seed is None else [f"seed={seed}"]
    chosen = load_recipe(recipe).changed([*(settings or ()), *seeded], student)
    device = str(find_device(output.device))
    output.report(_run(chosen, teacher, data, out, taught, device), folder=str(out))


def _run(recipe: DistillRecipe, teachers: list[str], data: Path | None, out: Path, taught: Taught, device: str) -> Any:
    if recipe.method in ("task", "vectors") and taught.dev is not None:
        raise ConfigError(f"--dev is for recipes on running text; {recipe.name} has its dev rows from --data")
    if recipe.method == "task":
        from bertkit.training.distillation.distill_task import distill_task

        texts, task, compare = taught.texts or (), taught.task, taught.compare
        return distill_task(teachers, data, out, recipe, task=task, texts=texts, compare=compare, device=device)
    teacher = _only(recipe, teachers, taught)
    if recipe.method == "vectors":
        from bertkit.training.distillation.distill_vectors import distill_vectors

        return distill_vectors(teacher, _given(recipe, data, "texts"), out, recipe, device=device)
    from bertkit.data.store.token_store import TokenStore
    from bertkit.training.distillation.distill_corpus import distill_corpus

    store = TokenStore(_given(recipe, data, "a token store of 'bertkit prepare'"))
    dev = None if taught.dev is None else TokenStore(taught.dev)
    return distill_corpus(teacher, store, out, recipe, dev=dev, device=device)


def _only(recipe: DistillRecipe, teachers: list[str], taught: Taught) -> str:
    """The one teacher; options of recipe task are refused."""
    if len(teachers) != 1:
        raise ConfigError(f"recipe {recipe.name} has one teacher, got {len(teachers)}; several are for recipe task")
    for name in ("texts", "task"):
        if getattr(taught, name) is not None:
            raise ConfigError(f"--{name} is for recipe task; leave it out, or use --data")
    if not taught.compare:
        raise ConfigError("--no-compare is for recipe task; others train no student without a teacher. Leave it out")
    return teachers[0]


def _given(recipe: DistillRecipe, data: Path | None, what: str) -> Path:
    if data is None:
        raise ConfigError(f"recipe {recipe.name} needs {what}: give --data")
    return data
