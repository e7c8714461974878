"""Hard negatives that a model finds by itself: texts near to an anchor that are not its positives.

What is too near is most likely a positive that nobody has marked, so a negative may have at most a share of the
positive's cosine (Moreira et al. 2024, NV-Retriever, section 4: "positive-aware mining", "TopK-PercPos").
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.engine.backend import Check
from bertkit.engine.inference_engine import stop_nothing
from bertkit.errors import DataError, counted
from bertkit.metrics.nearest import directions, nearest
from bertkit.model.sentence_model import SentenceModel
from bertkit.ragged import Floats, Ints, Ragged
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import Progress, say
from bertkit.system.interrupts import Interrupts
from bertkit.tasks.embeddings.features import NONE, TextColumns, number_texts
from bertkit.tasks.embeddings.scoring import Queries, column_cosines
from bertkit.tasks.embeddings.task import EmbeddingExample
from bertkit.tasks.embeddings.vectors import VectorEngine
from bertkit.tasks.examples import Row
from bertkit.tasks.run_rows import to_jsonl

#: Texts whose vectors are written together: at most so many are computed again after a kill.
PART = 4096
#: For each negative wanted so many texts are looked at that are no positives: some of them are too near.
LOOKED_AT = 10
#: In the run folder: the vectors so far, by a hash of what they were made of; and what was found, for people.
FOLDER, FOUND = "mining", "mined-negatives.jsonl"


class Negatives(NamedTuple):
    """Numbers of the negatives of R rows and their cosines ``(R, N)``, nearest first; :data:`NONE` and 0 for fewer."""

    numbers: Ints
    cosines: Floats


def mine(
    rows: TextColumns,
    examples: Sequence[EmbeddingExample],
    model: SentenceModel,
    folder: Path,
    *,
    count: int,
    most: float,
) -> TextColumns:
    """The rows with up to ``count`` more negatives each, out of the texts that anchors are compared with.

    A killed call goes on where it was, and a finished one is not repeated, for the same weights, rows and settings.
    ``most`` is the share of the positive's cosine that a negative may have. A listing is left in the run ``folder``.
    """
    of_vectors = _key(model, rows)
    done = folder / FOLDER / f"{of_vectors}-{count}-{most:g}.npy"
    if not done.exists():
        with Interrupts() as signals:
            vectors = _vectors(rows.texts, model, folder / FOLDER / of_vectors, signals)
            found = find_negatives(vectors, rows, count=count, most=most, check=signals.check)
        positives_R = column_cosines(vectors, rows.columns[:, :2])[:, 0]
        write_atomically(folder / FOUND, to_jsonl(_listing(examples, found, positives_R.tolist())))
        write_atomically(done, _as_bytes(np.stack([found.numbers, found.cosines])))
        shutil.rmtree(folder / FOLDER / of_vectors)
    numbers, cosines = np.load(done)
    found = Negatives(numbers.astype(np.int64), cosines.astype(np.float32))
    say(_summary(found, count))
    return replace(rows, columns=np.concatenate([rows.columns, found.numbers], axis=1))


def find_negatives(
    vectors_UD: Floats, rows: TextColumns, *, count: int, most: float, check: Check = stop_nothing
) -> Negatives:
    """The texts nearest to each row's anchor that are no positive of it, nor too near.

    A text is left out if it says the same as the anchor, as any positive or as a negative of the row, or if its cosine
    is above ``most`` times that of the row's positive (of a positive below 0, by as much further below).
    """
    queries, unit_UD, documents = Queries.of(rows.columns), directions(vectors_UD), rows.documents
    taken = [{int(rows.same[anchor])} for anchor in queries.anchors]
    for query, others in zip(queries.of_row.tolist(), rows.columns[:, 1:], strict=True):
        taken[query].update(rows.same[others[others != NONE]].tolist())
    depth = LOOKED_AT * count + max(map(len, taken))
    with Progress(len(queries.anchors), label="searching negatives", unit="texts", check=check) as bar:
        places_QK, cosines_QK = nearest(unit_UD[queries.anchors], unit_UD[documents], depth, bar.advance)
    positives_R = column_cosines(vectors_UD, rows.columns[:, :2])[:, 0]
    limits_R = positives_R - (1 - most) * np.abs(positives_R)
    found = Negatives(np.full((len(rows), count), NONE), np.zeros((len(rows), count), np.float32))
    for row, (query, limit) in enumerate(zip(queries.of_row.tolist(), limits_R.tolist(), strict=True)):
        near = zip(documents[places_QK[query]].tolist(), cosines_QK[query].tolist(), strict=True)
        others = ((number, cosine) for number, cosine in near if rows.same[number] not in taken[query])
        right = {int(rows.same[n]): (n, cosine) for n, cosine in islice(others, LOOKED_AT * count) if cosine <= limit}
        for place, (number, cosine) in enumerate(islice(right.values(), count)):
            found.numbers[row, place], found.cosines[row, place] = number, cosine
    return found


def _vectors(texts: Ragged, model: SentenceModel, folder: Path, signals: Interrupts) -> Floats:
    engine, parts = VectorEngine(model), []
    with Progress(len(texts), label="vectors for negatives", unit="texts", check=signals.check) as bar:
        for first in range(0, len(texts), PART):
            file = folder / f"vectors-{first:09d}.npy"
            part = texts.select(np.arange(first, min(first + PART, len(texts))))
            if file.exists():
                bar.done += len(part)
            else:
                write_atomically(file, _as_bytes(engine.vectors(part, bar.advance)))
            parts.append(np.load(file))
    return np.concatenate(parts)


def _as_bytes(array: npt.NDArray[np.floating]) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def _key(model: SentenceModel, rows: TextColumns) -> str:
    """A hash of all that the negatives depend on, beside how many are wanted and how near they may be."""
    digest = hashlib.sha256(f"{model.encoder.config.model_dump_json()}{model.head.config.model_dump_json()}".encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    for array in (rows.texts.ids, rows.texts.boundaries, rows.columns, rows.same):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _listing(examples: Sequence[EmbeddingExample], found: Negatives, positives: Sequence[float]) -> Iterator[Row]:
    texts = number_texts(examples).texts
    for example, numbers, cosines, positive in zip(examples, *found, positives, strict=True):
        near = [
            {"text": texts[number], "cosine": round(cosine, 4)}
            for number, cosine in zip(numbers.tolist(), cosines.tolist(), strict=True)
            if number != NONE
        ]
        yield {
            "row": example.row,
            "text": example.text,
            "text_pair": example.text_pair,
            "cosine": round(positive, 4),
            "negatives": near,
        }


def _summary(found: Negatives, count: int) -> str:
    """How many were found, and how near they are; DataError for none."""
    there = found.numbers != NONE
    if not there.any():
        raise DataError(
            "no text is a negative for any row: each is as near to the anchor as its positive is, or says the same. "
            "Give more rows, a larger max_negative, or leave mine_negatives out"
        )
    fewer = int((~there.all(axis=1)).sum())
    return (
        f"mined {counted(int(there.sum()), 'negative')} for {counted(len(there), 'row')}, cosines "
        f"{np.percentile(found.cosines[there], 5):.2f} to {np.percentile(found.cosines[there], 95):.2f}"
        + (f"; {counted(fewer, 'row')} got fewer than {count}" if fewer else "")
        + f"; see {FOUND}"
    )
