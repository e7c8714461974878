"""A cache of exact answers, keyed by everything in the request and bounded in bytes. Each loaded model has its own."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Hashable

from bertkit.server.open_model import Results
from bertkit.system.fork_locks import ForkSafeLock


class AnswerCache:
    """Results of recent requests, pickled so that callers cannot change them and their size is known."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = ForkSafeLock()
        self.num_bytes = self.hits = self.misses = 0

    def get(self, key: Hashable) -> Results | None:
        """The results of the same request, if they are still there."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                self.misses += 1
                return None
            self.hits += 1
            self._kept.move_to_end(key)
        results: Results = pickle.loads(found)
        return results

    def keep(self, key: Hashable, results: Results) -> None:
        """Keep results; the least recently used are dropped to make room."""
        content = pickle.dumps(results, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if len(content) > self._max_bytes or key in self._kept:
                return
            self._kept[key] = content
            self.num_bytes += len(content)
            while self.num_bytes > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.num_bytes -= len(oldest)
