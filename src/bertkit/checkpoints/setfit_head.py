"""The logistic regression that SetFit keeps as ``model_head.pkl``, read without running what a pickle can run.

A pickle is a program. This reader makes numbers, texts, arrays of them, and objects that are only a dictionary, of the
few classes that such a file names; any other name in it is refused before it is imported.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bertkit.errors import CheckpointError

HEAD = "model_head.pkl"
#: Classes that are read as a dictionary of their fields; the first is the head, the others hold several.
_REGRESSION = "LogisticRegression"
_SEVERAL = ("OneVsRestClassifier", "MultiOutputClassifier")
_FIELDS_ONLY = (_REGRESSION, *_SEVERAL, "LabelBinarizer")


@dataclass(frozen=True, slots=True)
class FittedHead:
    """A linear head: logits are ``vectors @ weights.T + bias``.

    weights: float64 ``(C, D)``. bias: ``(C,)``. classes: labels of the outputs ``(C,)``. several: labels do not exclude
    each other. one_vs_rest: probabilities are sigmoids scaled to a sum of 1, not a softmax.
    """

    weights: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    classes: npt.NDArray[np.generic]
    several: bool
    one_vs_rest: bool


class _Fields:
    """An object of a known class as the dictionary of its fields."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class _Regression(_Fields): ...


class _Several(_Fields): ...


class _Array(_Fields):
    """What joblib writes before the bytes of an array, which follow in the file; ``values``: the array."""

    file: _Exact
    shape: tuple[int, ...]
    order: str
    dtype: np.dtype[Any]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.dtype.hasobject:
            raise pickle.UnpicklingError("an array of objects")
        if state.get("numpy_array_alignment_bytes") is not None:
            self.file.read(self.file.read(1)[0])
        size = math.prod(int(n) for n in self.shape) * self.dtype.itemsize
        found = np.frombuffer(self.file.read(size), self.dtype)
        self.values = found.reshape(self.shape[::-1]).T if self.order == "F" else found.reshape(self.shape)


class _Exact:
    """A file of which a reader takes no byte before it needs it: between two of its steps arrays are read."""

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.readline = file.read, file.readline


class _Reader(pickle.Unpickler):
    def __init__(self, file: _Exact) -> None:
        super().__init__(file)
        self.array = type("_ArrayOfFile", (_Array,), {"file": file})

    def find_class(self, module: str, name: str) -> Any:
        if module == "numpy" and name in ("dtype", "ndarray"):
            return getattr(np, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "scalar":
            return lambda dtype, data: np.frombuffer(data, dtype)[0]
        if module.startswith("joblib.") and name == "NumpyArrayWrapper":
            return self.array
        if module.startswith("sklearn.") and name in _FIELDS_ONLY:
            return _Regression if name == _REGRESSION else _Several if name in _SEVERAL else _Fields
        raise pickle.UnpicklingError(f"{module}.{name}")


def read_head(path: Path) -> FittedHead:
    """Read a head; a CheckpointError for anything else than logistic regressions, of which nothing was run."""
    try:
        with path.open("rb") as file:
            found = _Reader(_Exact(file)).load()
        if isinstance(found, _Regression):
            return _single(found)
        if isinstance(found, _Several):
            return _multi(vars(found)["estimators_"])
        raise pickle.UnpicklingError(f"a {type(found).__name__}")
    except (  # MemoryError, OverflowError: a length that no file has
        pickle.UnpicklingError, KeyError, AttributeError, TypeError, ValueError, IndexError, EOFError, MemoryError,
        OverflowError,
    ) as error:  # fmt: skip
        raise CheckpointError(
            f"{path} is not a logistic regression of scikit-learn, the head that SetFit has by default ({error}); "
            "nothing in it was run. Train the head again: SetFitModel.from_pretrained(ENCODER) and Trainer"
        ) from None


def _single(head: _Regression) -> FittedHead:
    values = vars(head)
    weights, bias, classes = (values[name].values for name in ("coef_", "intercept_", "classes_"))
    if len(weights) == 1:  # one row of weights, for the second of two classes
        weights, bias = np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    apart = len(classes) > 2 and (values.get("solver") == "liblinear" or values.get("multi_class") == "ovr")
    return _checked(FittedHead(weights, bias, classes, False, apart))


def _multi(heads: list[_Regression]) -> FittedHead:
    weights, bias = (np.concatenate([vars(head)[name].values for head in heads]) for name in ("coef_", "intercept_"))
    return _checked(FittedHead(weights, bias, np.arange(len(heads)), True, False))


def _checked(head: FittedHead) -> FittedHead:
    shapes = (head.weights.shape[:1], head.bias.shape, head.classes.shape)
    if head.weights.ndim != 2 or len(set(shapes)) > 1 or not np.isfinite(head.weights).all():
        raise ValueError(f"weights {head.weights.shape}, bias {head.bias.shape}, classes {head.classes.shape}")
    return head
