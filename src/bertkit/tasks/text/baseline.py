"""A baseline in seconds: TF-IDF and a linear model. The difference to it is what BERT adds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError, counted
from bertkit.tasks.examples import Example, Row
from bertkit.tasks.text.task import TextTask, score

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

#: Fixed, so that nothing is tuned on dev; chosen on rows held out of train files (docs/decisions/0030).
INVERSE_PENALTY = 3.0
RIDGE_PENALTY = 3.0
#: Most weights of a logistic regression, or probabilities of its rows, if it has more than so many labels.
MOST_WEIGHTS, FEW_LABELS = 10_000_000, 100
#: Rows that are compared with all centroids at once.
ROWS_AT_ONCE = 256


def tfidf_baseline(train: Sequence[Example], dev: Sequence[Example], task: TextTask) -> Row:
    """Fit on train, score on dev. The same input gives the same numbers.

    Features of one text: TF-IDF of words and pairs of neighbouring words, with logarithmic counts. Of a pair of
    texts: the same for both together, for what they share and for what only one has, and a few numbers on how much
    they overlap. The model is logistic regression, or ridge regression for scores; where it would have more than
    :data:`MOST_WEIGHTS` weights for many labels, the label whose texts have the nearest mean.

    Args:
        train: labelled rows of at least two labels.
        dev: labelled rows.
        task: gives the metrics.

    Returns:
        ``model`` (in words), ``metrics``, ``train_rows``, ``dev_rows``, ``features`` (columns), ``seconds``.

    Raises:
        DataError: rows without labels, or one label only.
    """
    started = time.perf_counter()
    right = _labels(dev, "dev")
    if task.multi_label:
        right = task.label_array(right.tolist())
    predicted, features = tfidf_predictions(train, dev, task)
    linear = "ridge regression" if task.is_regression else "logistic regression"
    linear = "nearest mean of the texts of a label" if _is_large(task, len(train), features) else linear
    return {
        "model": f"TF-IDF of words and word pairs{', overlap of the two texts' if task.is_pair else ''}; {linear}",
        "metrics": score(task, predicted, right),
        "train_rows": len(train),
        "dev_rows": len(dev),
        "features": features,
        "seconds": time.perf_counter() - started,
    }


def tfidf_predictions(
    train: Sequence[Example], rows: Sequence[Example], task: TextTask
) -> tuple[npt.NDArray[np.number], int]:
    """What the model of :func:`tfidf_baseline` predicts for some rows, labelled or not, and its number of features."""
    right = _labels(train, "train")
    if task.multi_label:
        right = task.label_array(right.tolist())
    elif len(np.unique(right)) < 2:
        raise DataError("the baseline needs two labels or more in train")
    if task.is_pair:
        x_train, x_rows = pair_features(train, rows)
    else:
        vectorizer = tfidf_vectorizer()
        x_train = vectorizer.fit_transform([row.text for row in train])
        x_rows = vectorizer.transform([row.text for row in rows])
    return _fit_and_predict(task, x_train, right, x_rows), int(x_train.shape[1])


def _fit_and_predict(
    task: TextTask, x_train: csr_matrix, right: npt.NDArray[np.number], x_dev: csr_matrix
) -> npt.NDArray[np.number]:
    from sklearn.linear_model import LogisticRegression, Ridge

    if task.is_regression:
        predicted = Ridge(alpha=RIDGE_PENALTY, solver="sparse_cg", tol=1e-6).fit(x_train, right).predict(x_dev)
        return np.clip(predicted, *task.score_range) if task.score_range else np.asarray(predicted)
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    if _is_large(task, *x_train.shape):
        return _nearest_centroids(x_train, right, x_dev)
    if not task.multi_label:
        return np.asarray(model.fit(x_train, right).predict(x_dev))
    several = np.zeros((x_dev.shape[0], right.shape[1]), dtype=np.int64)
    for label, column in enumerate(right.T):  # one that all training rows have, or none, is always given, or never
        constant = len(np.unique(column)) < 2
        several[:, label] = int(column[0]) if constant else model.fit(x_train, column).predict(x_dev)
    return several


def _is_large(task: TextTask, num_rows: int, num_features: int) -> bool:
    """Whether logistic regression would have to hold too many weights, or probabilities, for a baseline of seconds."""
    many = task.kind == "classification" and task.num_labels > FEW_LABELS
    return many and task.num_labels * max(num_rows, num_features) > MOST_WEIGHTS


def _nearest_centroids(x_train: csr_matrix, right: npt.NDArray[np.number], x_dev: csr_matrix) -> npt.NDArray[np.number]:
    """The label whose mean of training rows has the largest cosine with a row (Rocchio)."""
    from scipy import sparse
    from sklearn.preprocessing import normalize

    labels, codes = np.unique(right, return_inverse=True)
    rows = np.arange(len(codes))
    members = sparse.csr_matrix((np.ones(len(codes), np.float32), (codes, rows)), shape=(len(labels), len(codes)))
    centroids = normalize(members @ x_train).T.tocsr()
    parts = [x_dev[start : start + ROWS_AT_ONCE] @ centroids for start in range(0, x_dev.shape[0], ROWS_AT_ONCE)]
    found: npt.NDArray[np.number] = labels[np.concatenate([part.toarray().argmax(axis=1) for part in parts])]
    return found


def tfidf_vectorizer() -> TfidfVectorizer:
    """TF-IDF of words and pairs of neighbouring words, with logarithmic counts; not fitted yet."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # One-letter words and punctuation are kept: "I", "!" and ":(" say much about sentiment.
    return TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, min_df=1, token_pattern=r"(?u)\w+|[^\w\s]", dtype=np.float32
    )


def pair_features(train: Sequence[Example], dev: Sequence[Example]) -> tuple[csr_matrix, csr_matrix]:
    """Sparse matrices of pairs of texts, one row a pair: both together, what they share, what only one has, overlap."""
    vectorizer = tfidf_vectorizer()
    vectorizer.fit([text for row in train for text in (row.text, row.text_pair or "")])
    return _pair_matrix(vectorizer, train), _pair_matrix(vectorizer, dev)


def _pair_matrix(vectorizer: TfidfVectorizer, rows: Sequence[Example]) -> csr_matrix:
    from scipy import sparse

    first = vectorizer.transform([row.text for row in rows])
    second = vectorizer.transform([row.text_pair or "" for row in rows])
    shared = first.multiply(second).tocsr()
    numbers = sparse.csr_matrix(_overlap(rows, np.asarray(shared.sum(axis=1)).ravel()))
    return sparse.hstack([first + second, abs(first - second), shared, numbers], format="csr", dtype=np.float32)


def _overlap(rows: Sequence[Example], cosine: npt.NDArray[np.number]) -> npt.NDArray[np.float32]:
    """``(rows, 6)``: TF-IDF cosine, Jaccard, containment both ways, ratio of lengths, same numbers in both."""
    found = np.zeros((len(rows), 6), dtype=np.float32)
    found[:, 0] = cosine
    for row, example in enumerate(rows):
        first, second = (set(text.casefold().split()) for text in (example.text, example.text_pair or ""))
        common = len(first & second)
        digits = [{word for word in words if any(c.isdigit() for c in word)} for words in (first, second)]
        found[row, 1:] = (
            common / max(len(first | second), 1),
            common / max(len(first), 1),
            common / max(len(second), 1),
            min(len(first), len(second)) / max(len(first), len(second), 1),
            float(digits[0] == digits[1]),
        )
    return found


def _labels(rows: Sequence[Example], name: str) -> npt.NDArray[np.number]:
    labels = [row.label for row in rows]
    if not labels or any(label is None for label in labels):
        raise DataError(f"the baseline needs labelled {name} rows: {counted(len(rows), 'row')}, some without a label")
    if isinstance(labels[0], tuple):
        several = np.empty(len(labels), dtype=object)
        several[:] = labels
        return several
    return np.array(labels)
