"""What all methods of distillation share: the folder of a run, what it must agree with, its student and its report."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bertkit.errors import ConfigError
from bertkit.inference.protocol import short_name
from bertkit.system.console import aligned
from bertkit.system.json_files import printable
from bertkit.system.untrusted_files import Json
from bertkit.training.distillation.distill_settings import DistillRecipe, load_recipe
from bertkit.training.distillation.students import start_of
from bertkit.training.trainer.run_folder import CHECKPOINTS, RunFolder

#: In the folder: what the student began with where it was made of the teacher, what teachers said, and the student.
STUDENT, OUTPUTS, MODEL = "student", "teacher", "model"
#: In the folder: the stage of states and the run with the teachers (method task), and the run on running text.
STATES, WITH, RUN = "states", "with", "run"
#: What training writes. Until then the settings bind nobody, and the student is made again.
TRAINED = (CHECKPOINTS, MODEL, STATES, WITH, RUN)


class Result(Protocol):
    """An outcome in plain values."""

    def to_dict(self) -> dict[str, Json]: ...


ResultT = TypeVar("ResultT", bound=Result)


class DistillFolder(RunFolder):
    """The folder of a distillation, which always continues what is there."""

    settings_file, states, how_to_resume = "distill.json", "**/checkpoints", "Run the same command to continue"

    def check(self, settings: Mapping[str, Any], *, resume: bool = True, free: Collection[str] = ()) -> None:
        """As :meth:`RunFolder.check`; results are no settings. Removes a student that was not trained yet."""
        super().check(settings, resume=resume, free={*free, "result"})
        student = self.path / STUDENT
        if student.exists() and not self._has_steps():
            shutil.rmtree(student)

    def _has_steps(self) -> bool:
        return any((self.path / name).exists() for name in TRAINED)


@dataclass(frozen=True, slots=True)
class DistillRun:
    """A distillation in its claimed folder. A resumed run must agree with the facts, which ``distill.json`` has."""

    folder: DistillFolder
    recipe: DistillRecipe
    teacher: str | Path
    device: str
    facts: dict[str, Json]

    @property
    def path(self) -> Path:
        """Of the folder."""
        return self.folder.path

    def begin(self) -> None:
        """Write the settings, once nothing can refuse them."""
        self.folder.begin(self.facts)

    def start(self, model_class: str, new_class: str = "BertModel") -> Path:
        """What the student begins with; the classes are those of :func:`start_of`."""
        student, folder = self.recipe.begins_with(), self.path / STUDENT
        seed = self.recipe.training.seed
        return start_of(student, self.teacher, folder, model_class=model_class, new_class=new_class, seed=seed)

    def finished(self, result: ResultT) -> ResultT:
        """Write a result beside the settings."""
        self.folder.begin({**self.facts, "result": result.to_dict()})
        return result


def recipe_of(recipe: DistillRecipe | str | Path, *methods: str) -> DistillRecipe:
    """A recipe, or that of a name or file; ConfigError unless it is of one of these methods."""
    given = recipe if isinstance(recipe, DistillRecipe) else load_recipe(recipe)
    if given.method not in methods:
        raise ConfigError(f"recipe {given.name} is of method {given.method}, not of method {' or '.join(methods)}")
    return given


@contextmanager
def distilling(
    out: str | Path, recipe: DistillRecipe, teacher: str | Path, device: str, facts: Mapping[str, Json]
) -> Iterator[DistillRun]:
    """Claim a folder for a run with these facts beside the recipe, new or continued."""
    folder = DistillFolder(out)
    run = DistillRun(folder, recipe, teacher, device, {"recipe": recipe.name, **recipe.to_dict(), **facts})
    with folder.claimed():
        folder.check(run.facts)
        yield run


def teacher_facts(teacher: str | Path, sha256: str) -> dict[str, Json]:
    """Who a teacher is, for the facts."""
    return {"name": short_name(teacher), "sha256": sha256}


def rendered(headline: str, tables: Sequence[Sequence[tuple[str, ...]]], lines: Sequence[str], student: Path) -> str:
    """A result for people."""
    shown = [line for rows in tables for line in aligned(rows)]
    return "\n".join([headline, *(f"  {line}" for line in (*shown, *lines, printable(student)))])
