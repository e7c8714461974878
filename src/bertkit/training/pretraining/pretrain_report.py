"""Reports of a pre-training run: log, loss curve with the unigram line, TensorBoard, messages."""

from __future__ import annotations

import statistics
import time
from collections import deque

from bertkit.system.console import say
from bertkit.training.trainer.loop_options import Record
from bertkit.training.trainer.run_folder import LOG, RunFolder, RunLog, read_log
from bertkit.training.trainer.trackers import TENSORBOARD, Board
from bertkit.visualize.figures import save_figure
from bertkit.visualize.training_pictures import pretrain_curve

CURVE = "loss.png"
#: Minimum seconds between two drawings of the curve.
CURVE_EVERY_S = 30.0
#: Number of last steps that the speed is computed from.
_TIMED_STEPS = 200
#: Maximum steps, and maximum evaluations, in a curve; of a longer run it has every second, fourth ... one.
CURVE_POINTS = 8192


class Points:
    """A bounded number of records, evenly spaced from the first one on."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._stride = 1
        self._count = 0

    def add(self, record: Record) -> None:
        """Add the next record."""
        if self._count % self._stride == 0:
            if len(self.records) == CURVE_POINTS:
                del self.records[1::2]
                self._stride *= 2
            if self._count % self._stride == 0:
                self.records.append(record)
        self._count += 1


class Report:
    """Everything that is written during a run. ``log.jsonl`` is the source; the rest is derived from it.

    A log that cannot be written ends the run; a curve or TensorBoard files that cannot do not, after a message.
    """

    def __init__(self, run: RunFolder, floor: float, *, curve: bool, tensorboard: bool) -> None:
        self.folder, self.floor, self.curve = run.path, floor, curve
        self.log = RunLog(run.path / LOG, run.how_to_resume)
        self._steps, self._evaluations = Points(), Points()
        self._timed: deque[Record] = deque(maxlen=_TIMED_STEPS)
        self._drawn_at = time.monotonic()
        self._board = Board(run.path / TENSORBOARD) if tensorboard else None

    def begin(self, step: int, evaluated_step: int) -> None:
        """Drop what will be repeated: steps after ``step``, evaluations after ``evaluated_step``."""
        self.log.drop_after(step, evaluated_step)
        if self._board is not None:
            self._board.begin(())
        for record in read_log(self.folder / LOG) if (self.folder / LOG).exists() else ():
            self._take(record)

    def __call__(self, record: Record) -> None:
        """Report one record of the training loop."""
        self.log(record)
        self._take(record)
        if record.get("event") == "epoch":
            scores = [
                f"{name.removeprefix('dev_').replace('_', ' ')} {value:.3f}"
                for name, value in record.items()
                if name.startswith("dev_") and value is not None
            ]
            if scores:
                say(f"step {record['step']:,}: held-out {', '.join(scores)} (unigram entropy {self.floor:.3f})")
            if time.monotonic() - self._drawn_at >= CURVE_EVERY_S:
                self.draw()

    def close(self) -> None:
        """Close the files, and draw the curve once more."""
        self.log.close()
        if self._board is not None:
            self._board.close()
        self.draw()

    def draw(self) -> None:
        """Draw ``loss.png``."""
        if not self.curve or not self._steps.records:
            return
        try:
            records = [*self._steps.records, self._timed[-1], *self._evaluations.records]
            save_figure(pretrain_curve(records, unigram_entropy=self.floor), self.folder / CURVE)
        except Exception as error:  # of matplotlib, fonts or the disk: a picture is not worth a run
            say(f"no {CURVE}: {error}")
            self.curve = False
        self._drawn_at = time.monotonic()

    def speed(self) -> dict[str, float]:
        """Medians of ``tokens_per_s`` and ``peak_share`` over the last steps."""
        found = {}
        for name in ("tokens_per_s", "peak_share"):
            values = [record[name] for record in self._timed if name in record]
            if values:
                found[name] = float(statistics.median(values))
        return found

    def _take(self, record: Record) -> None:
        if record.get("event") == "epoch":
            self._evaluations.add(record)
        else:
            self._steps.add(record)
            self._timed.append(record)
        if self._board is not None:
            self._board.write(record)
