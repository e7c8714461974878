"""A cache of exact answers, keyed by everything in the request and bounded in bytes. Each loaded model has its own."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from bertkit.server.open_model import Results
from bertkit.system.fork_locks import ForkSafeLock

#: Bytes of a digest, by which a request is known: of so many no two requests that differ are ever seen to be equal.
_DIGEST = 32
#: Bytes of an entry beside its digest and content: its place in the dictionary, and what allocators round up.
_PLACE = 200


def digest_of(key: Hashable, items: Any) -> bytes:
    """A short name of a request, however long its texts are; ``key``: its task and options.

    Of the request as Python writes it: pickled, equal requests may differ, because pickle notes which objects are one.
    """
    return hashlib.blake2b(repr((key, items)).encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


class AnswerCache:
    """Results of recent requests, pickled so that callers cannot change them and their size is known."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = ForkSafeLock()
        self.num_bytes = self.hits = 0
        #: Requests that were computed; whoever asks counts them, once each.
        self.misses = 0

    def get(self, digest: bytes) -> Results | None:
        """The results of the same request, if they are still there."""
        with self._lock:
            found = self._kept.get(digest)
            if found is None:
                return None
            self.hits += 1
            self._kept.move_to_end(digest)
        results: Results = pickle.loads(found)
        return results

    def keep(self, digest: bytes, results: Results) -> None:
        """Keep results; the least recently used are dropped to make room."""
        content = pickle.dumps(results, pickle.HIGHEST_PROTOCOL)
        size = _size(digest, content)
        with self._lock:
            if size > self._max_bytes or digest in self._kept:
                return
            self._kept[digest] = content
            self.num_bytes += size
            while self.num_bytes > self._max_bytes:
                self.num_bytes -= _size(*self._kept.popitem(last=False))


def _size(digest: bytes, content: bytes) -> int:
    """Bytes that an entry takes."""
    return sys.getsizeof(digest) + sys.getsizeof(content) + _PLACE
