"""The pipeline of a kind of task that has none of its own: answers as ``bertkit predict`` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.inference_engine import rows_of, tokens_of
from bertkit.engine.rows import QUESTIONS
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.pipeline_base import Encoding, Pipeline
from bertkit.inference.pipeline_inputs import Shaped, request_of
from bertkit.inference.runs import how_to_read
from bertkit.ragged import Floats
from bertkit.tasks.answering import Predicted
from bertkit.tasks.examples import Row
from bertkit.tasks.workflow import AnyWorkflow


class TaskPipeline(Pipeline):
    """Examples of a kind of task, by the names in its ``fields``: ``pipeline(KIND, model=RUN)``."""

    task = "task"
    unit = "examples"
    workflow: AnyWorkflow
    settings: ReadingSettings | None = None

    def read_folder(self, folder: Path) -> None:
        super().read_folder(folder)
        found = how_to_read(folder)
        if found is None:
            raise CheckpointError(f"{folder} is no run folder, which would say how examples are read")
        self.workflow, self.settings = found

    def __call__(self, inputs: Any, *, progress: bool | None = None) -> Shaped[Row]:
        """Answer an example, as a text or a dictionary, or a collection or an iterable of those.

        An answer is a row of ``bertkit predict``; texts that are too long are cut as in training.
        """
        if self.settings is None:
            raise InputError("a model object does not say how examples are read; give the run folder as model=")
        workflow, settings = self.workflow, self.settings

        def example_of(item: Any, where: str) -> Any:
            return workflow.example_of({"text": item} if isinstance(item, str) else item, where)

        def encode(examples: list[Any], first: int) -> Encoding[Floats, Row]:
            rows = workflow.encode(examples, self.tokenizer, settings, labelled=False)

            def answers(values: list[Floats]) -> list[Row]:
                found = (np.concatenate if workflow.of_tokens else np.stack)(values)
                outputs = workflow.arrange(rows, found, self.config)
                return workflow.decode(Predicted(examples, rows, outputs, self.decision), self.config)

            return workflow.sequences(rows), answers

        def weight(example: Any) -> int:
            return sum(map(len, workflow.texts_of(example)))

        request = request_of(inputs, example_of, "example", one=isinstance(inputs, str | Mapping))
        answer = partial(self._answer, request, encode, workflow.wanted)
        return answer(tokens_of if workflow.of_tokens else rows_of, weight, progress=progress, size=QUESTIONS)
