"""Search indexes beside the models: each with the model that it was built with, which makes vectors of queries."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.errors import BertkitError, ConfigError, DataError, did_you_mean
from bertkit.server.calls import Answer, IndexFacts, ModelFacts, Times
from bertkit.server.failures import Failure
from bertkit.server.open_model import OpenModel
from bertkit.server.settings import named
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.paths import user_path

if TYPE_CHECKING:
    from bertkit.inference.retrieval.search_index import By, SearchIndex


class ServedIndex:
    """An index by its name.

    model: name of the model that it was built with; None: it is not loaded.
    reading: how that model makes vectors of queries.
    """

    def __init__(self, name: str, folder: str) -> None:
        self.name, self.folder = name, folder
        self.model: str | None = None
        self.reading: Mapping[str, Any] = {}
        self._changing = ForkSafeLock()
        self._open()
        #: Of each model that it was not built with, why not.
        self._others: dict[str, str] = {}

    def _open(self) -> None:
        from bertkit.inference.retrieval.search_index import SearchIndex

        state = self._on_disk()  # before: what changes meanwhile is seen the next time
        self._opened: SearchIndex = SearchIndex(self.folder)
        self._state = state

    def _on_disk(self) -> tuple[int, int] | None:
        """What changes when the index does; None: it is gone."""
        with contextlib.suppress(OSError):
            found = os.stat(user_path(self.folder) / "index.json")
            return found.st_ino, found.st_mtime_ns
        return None

    @property
    def facts(self) -> IndexFacts:
        """What is known of it."""
        manifest = self._opened.manifest
        return IndexFacts(
            name=self.name,
            num_texts=manifest.num_texts,
            by=self.by(None),
            model=self.model,
            built_with=manifest.model,
        )

    def by(self, by: By | None) -> By:
        """What a search goes by, if ``by`` is asked for."""
        share = self._opened.share_of(by)
        return "words" if share == 0 else "vectors" if share == 1 else "both"

    def bind(self, name: str, model: OpenModel) -> None:
        """Take vectors of queries from this model, if the index was built with it."""
        from bertkit.inference.retrieval.index_encoder import open_encoder

        try:
            with self._changing:
                self._open()
            if "embed" not in model.tasks:
                raise ConfigError(f"{model.path} makes no vectors")
            encoder = open_encoder(self._opened.path, self._opened.manifest, model.path, pipe=model.vectors)
        except BertkitError as error:
            self._others[name] = str(error)
            self.model = None if self.model == name else self.model
        else:
            self.model, self.reading = name, encoder.reading(query=True)

    def lacks_its_model(self) -> Failure:
        """What a search by vectors is told without the index's model."""
        why = "; ".join(f"{name}: {reason}" for name, reason in self._others.items())
        return Failure(
            "wrong_task",
            f"the index {self.name} was built with {self._opened.manifest.model}, which is none of the models here "
            f"({why}). Serve that one, too, or search with 'by': 'words'",
            param="index",
        )

    def search(self, queries: Sequence[str], embedded: Answer | None, by: By, top_k: int) -> Answer:
        """The hits of each query, whose vectors are ``embedded``."""
        vectors = None if embedded is None else np.stack([np.asarray(vector) for vector in embedded.results])
        try:
            opened = self._current()
            if embedded is not None and embedded.model.name != self.model:  # it was built anew meanwhile
                raise self.lacks_its_model()
            found = opened.search(queries, top_k, by=by, vectors=vectors)
        except DataError as error:
            if self._on_disk() not in (None, self._state):  # it was changed meanwhile
                return self.search(queries, embedded, by, top_k)
            raise Failure("damaged_model", f"the index {self.name} cannot be read: {error}") from error
        results = [{"index": self.name, "by": by, "hits": [hit.to_dict() for hit in hits]} for hits in found]
        if embedded is None:
            return _without_model(results)
        return Answer(
            results=results,
            model=embedded.model,
            tokens=embedded.tokens,
            truncated=embedded.truncated,
            characters=embedded.characters,
            times=embedded.times,
        )

    def _current(self) -> SearchIndex:
        """The index as it is on disk; what another process has added or removed is seen."""
        with self._changing:
            if self._on_disk() != self._state:
                facts = self._opened.manifest.facts
                self._open()
                if self._opened.manifest.facts != facts:
                    self.model = None
                    raise Failure("damaged_model", f"the index {self.name} was built anew with another model: reload")
            return self._opened


class Indexes:
    """The indexes of a server by their names.

    Raises:
        BertkitError: a folder is no finished index; two have one name.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self._indexes: dict[str, ServedIndex] = {}
        for name, folder in map(named, given):
            if name in self._indexes:
                raise ConfigError(f"two indexes are called {name!r}: name one otherwise, NAME={folder}")
            self._indexes[name] = ServedIndex(name, folder)

    def facts(self) -> list[IndexFacts]:
        """Of all."""
        return [index.facts for index in self._indexes.values()]

    def bind(self, name: str, model: OpenModel) -> None:
        """Let the indexes that were built with a model be searched by its vectors; called whenever it was loaded."""
        for index in self._indexes.values():
            index.bind(name, model)

    def index(self, name: str | None) -> ServedIndex:
        """An index by its name; None: the first.

        Raises:
            Failure: there is none.
        """
        if not self._indexes:
            raise Failure("wrong_task", "no index is served here: bertkit serve MODEL --index FOLDER")
        found = next(iter(self._indexes.values())) if name is None else self._indexes.get(name)
        if found is None:
            near = did_you_mean(str(name), self._indexes)
            there = ", ".join(self._indexes)
            raise Failure("unknown_model", f"no index {name!r:.200}{near}; there are: {there}", param="index")
        return found


def _without_model(results: Sequence[Any]) -> Answer:
    """An answer that no model was asked for."""
    return Answer(
        results=results,
        model=ModelFacts(name="", state="unloaded", tasks=(), source="", created=0),
        tokens=[0] * len(results),
        truncated=[False] * len(results),
        characters=0,
        times=Times(queue=0.0, compute=0.0, total=0.0),
    )
