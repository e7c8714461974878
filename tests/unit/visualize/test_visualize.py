"""Pictures: what is drawn, that nothing global changes, that they can be read at 800 pixels."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import errors
from bertkit.errors import InputError, MissingExtraError
from bertkit.metrics.calibration import confidences
from bertkit.visualize import evaluation_pictures as visualize
from bertkit.visualize.figures import save_figure, smooth
from bertkit.visualize.training_pictures import Curve, compare_curves, loss_curve


def log(num_steps: int = 300, num_epochs: int = 3) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    records: list[dict[str, Any]] = []
    for step in range(1, num_steps + 1):
        loss = 1.1 * math.exp(-step / 120) + 0.25 + 0.15 * generator.normal()
        records.append({"step": step, "loss": max(0.01, float(loss)), "lr": 1e-4})
        if step % (num_steps // num_epochs) == 0:
            epoch = step * num_epochs // num_steps
            records.append(
                {
                    "event": "epoch",
                    "step": step,
                    "dev_loss": 0.7 - 0.1 * epoch,
                    "dev_accuracy": [0.7, 0.82, 0.8][epoch - 1],
                }
            )
    return records


@pytest.mark.parametrize("reverse", [False, True])
def test_the_axis_of_several_runs_has_room_for_all(reverse: bool) -> None:
    """A short run far above a long one, in either order; a spike of one step is cut off all the same."""
    low = np.random.default_rng(0).uniform(0.9, 1.1, 300)
    low[17] = 50.0
    runs = {
        "long and low": {"loss": Curve(range(1, 301), low.tolist())},
        "long and high": {"loss": Curve(range(1, 301), (3 + low.clip(0, 2)).tolist())},
        "short": {"loss": Curve([1, 2], [7.0, 6.5])},
    }
    figure = compare_curves(dict(reversed(runs.items())) if reverse else runs)
    (axes,) = figure.axes
    bottom, top = axes.get_ylim()
    assert bottom < low.min() < 1
    assert 7.0 < top < 8.0
    alone = compare_curves({"long and low": runs["long and low"]}).axes[0].get_ylim()
    assert alone[1] < 5, "the control: the picture of one run is smaller"


def size_of(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_loss_curve_draws_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = loss_curve(log(), metric="accuracy")
    path = save_figure(figure, tmp_path / "loss.png")
    assert size_of(path) == (800, 500)
    left, right = figure.axes
    raw, curve, dev = left.lines
    assert raw.get_xdata().tolist() == list(range(1, 301))
    assert len(curve.get_ydata()) == 300
    assert list(dev.get_ydata()) == pytest.approx([0.6, 0.5, 0.4])
    assert list(right.lines[0].get_ydata()) == [0.7, 0.82, 0.8]
    assert [text.get_text() for text in right.texts] == ["best 0.820"]
    assert left.get_xlabel() == "optimizer step"
    low, high = right.get_ylim()
    assert low < 0.7 < 0.82 < high


@pytest.mark.parametrize("records", [log(1, 1), log(2, 1), [r for r in log(30) if "event" not in r]])
def test_short_logs_can_be_drawn(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    assert size_of(save_figure(loss_curve(records, metric="accuracy"), tmp_path / "loss.png")) == (800, 500)


def test_a_log_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training step"):
        loss_curve([])


@pytest.mark.parametrize("length", [1, 2, 7, 99, 1000])
def test_the_smooth_curve_is_a_mean_of_neighbours(length: int) -> None:
    values = np.random.default_rng(0).normal(size=length)
    found = smooth(values)
    half = max(1, length // 40)
    for place in range(length):
        assert found[place] == pytest.approx(values[max(0, place - half) : place + half + 1].mean(), abs=1e-12)


def test_confusion_shows_counts_and_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = [[50, 10, 0], [5, 1200, 3], [0, 0, 0]]
    figure = visualize.confusion(matrix, ["negative", "neutral", "positive"])
    path = save_figure(figure, tmp_path / "c.png")
    assert min(size_of(path)) >= 500
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.images[0].get_array()[0], [50 / 60, 10 / 60, 0])
    texts = [text.get_text() for text in axes.texts]
    assert texts[0] == "50\n83 %"
    assert "1,200\n99 %" in texts
    assert [label.get_text() for label in axes.get_yticklabels()] == ["negative", "neutral", "positive"]


def test_names_beside_a_matrix_are_inside_the_picture(tmp_path: Path) -> None:
    figure = visualize.confusion(np.eye(4, dtype=int), ["computers", "food", "sport", "weather"])
    save_figure(figure, tmp_path / "c.png")
    assert figure.axes[0].yaxis.label.get_window_extent().x0 >= 0


def test_many_and_long_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [f"a rather long label number {number}" for number in range(40)]
    figure = visualize.confusion(np.eye(40, dtype=int), labels)
    assert len(figure.axes[0].texts) == 0
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert max(map(len, names)) <= 25
    assert len(set(names)) == 40


def test_labels_are_no_mathematics(tmp_path: Path) -> None:
    save_figure(visualize.confusion(np.eye(2, dtype=int), ["$a_$", "$10-$20"]), tmp_path / "c.png")
    scores = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}
    save_figure(visualize.scores_by_type({"$b^$": scores}), tmp_path / "types.png")


def test_a_matrix_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"shape \(2, 2\), got \(3, 3\)"):
        visualize.confusion(np.eye(3), ["a", "b"])


def test_confusion_of_rows_counts_as_scikit_learn_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    gold, predicted = generator.choice(list("abc"), (2, 60))
    seen: list[Any] = []
    monkeypatch.setattr(visualize, "confusion", lambda matrix, labels: seen.append(matrix))
    rows = [{"gold": g, "predicted": p} for g, p in zip(gold, predicted, strict=True)]
    visualize.confusion_of_rows(rows, list("abc"))
    assert (seen[0] == sklearn.confusion_matrix(gold, predicted, labels=list("abc"))).all()


def test_of_many_labels_the_frequent_ones_are_drawn_and_the_others_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [f"l{number}" for number in range(300)]
    gold = [label for number, label in enumerate(labels) for _ in range(1 + (number % 5 == 0))]
    said = gold[1:] + gold[:1]
    seen: list[Any] = []
    monkeypatch.setattr(visualize, "confusion", lambda matrix, shown: seen.append((matrix, shown)))
    rows = [{"gold": g, "predicted": p} for g, p in zip(gold, said, strict=True)]
    visualize.confusion_of_rows(rows, labels)
    matrix, shown = seen[0]
    assert shown == [*labels[::5], "240 others"]
    place = {label: index for index, label in enumerate(labels[::5])}
    wanted = np.zeros((61, 61), int)
    for one, other in zip(gold, said, strict=True):
        wanted[place.get(one, 60), place.get(other, 60)] += 1
    assert (matrix == wanted).all()


@pytest.mark.parametrize("several", [False, True])
def test_reliability_needs_the_likeliest_labels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    generator = np.random.default_rng(0)
    names, shares = list("abcd"), generator.dirichlet(np.ones(4), 50)
    right = generator.integers(0, 4, 50)
    seen: list[Any] = []
    bins = visualize.calibration_bins
    monkeypatch.setattr(visualize, "calibration_bins", lambda *given: seen.append(given) or bins(*given))
    gold = [[names[n]] if several else names[n] for n in right]
    rows = [
        {"gold": g, "probabilities": dict(zip(names, row, strict=True))}
        for g, row in zip(gold, shares.tolist(), strict=True)
    ]
    visualize.reliability_of_rows(rows)
    wanted = confidences(shares, np.eye(4, dtype=int)[right] if several else right)
    for found, expected in zip(seen[0], wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_regression_picture(tmp_path: Path) -> None:
    rows = [{"gold": x, "predicted": x + 0.1} for x in (0.0, 2.5, 5.0)]
    assert size_of(save_figure(visualize.regression(rows), tmp_path / "r.png")) == (600, 600)


def test_no_global_state(tmp_path: Path) -> None:
    code = (
        "import sys; from bertkit.visualize import evaluation_pictures, figures; "
        "figure = evaluation_pictures.confusion([[1, 0], [0, 1]], ['a', 'b']); "
        f"figures.save_figure(figure, {str(tmp_path / 'c.png')!r}); "
        "print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")

    monkeypatch.setattr(errors, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'bertkit\[plots\]'"):
        visualize.confusion([[1]], ["a"])
