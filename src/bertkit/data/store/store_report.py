"""Describe the content of a token store, as text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.data.store.store_manifest import StoreManifest
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import counted

#: Upper bounds of the histogram bins of lengths; the last bin is open.
DOCUMENT_BOUNDS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
SENTENCE_BOUNDS = (4, 8, 16, 32, 64, 128, 256, 512)
#: Characters shown of a sample document.
SAMPLE_CHARS = 300
_BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts[i]`` lengths are at most ``bounds[i]`` and above the bound before; the last count is for longer ones."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    mean: float
    median: float
    longest: int

    @classmethod
    def of(cls, lengths: NDArray[np.integer], bounds: Sequence[int]) -> Histogram:
        """Count ``lengths``, at least one."""
        classes = np.searchsorted(bounds, lengths, side="left")
        counts = np.bincount(classes, minlength=len(bounds) + 1)
        mean, median = float(lengths.mean()), float(np.median(lengths))
        return cls(tuple(bounds), tuple(counts.tolist()), mean, median, int(lengths.max()))

    def lines(self, what: str) -> list[str]:
        """The histogram as text."""
        head = f"tokens per {what}: mean {self.mean:,.1f}, median {self.median:,.0f}, longest {self.longest:,}"
        names = [f"<= {bound:,}" for bound in self.bounds] + [f"> {self.bounds[-1]:,}"]
        scale = _BAR_WIDTH / max(self.counts)
        return [head] + [
            f"  {name:>8}  {count:>13,}  {'#' * round(count * scale)}".rstrip()
            for name, count in zip(names, self.counts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Sample:
    """One document: its number, where it begins in the corpus, and the beginning of its text, decoded from the ids."""

    document: int
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The result of :func:`inspect_store`; lengths of documents and sentences are in tokens."""

    path: str
    manifest: StoreManifest
    documents: Histogram
    sentences: Histogram
    samples: tuple[Sample, ...]

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all shards."""
        return sum(shard.num_bytes for shard in self.manifest.shards)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        manifest = self.manifest.model_dump()
        return {
            "path": self.path,
            **{name: manifest[name] for name in ("counts", "settings", "tokenizer", "id_type")},
            "num_shards": len(self.manifest.shards),
            "bytes_on_disk": self.bytes_on_disk,
            "documents": asdict(self.documents),
            "sentences": asdict(self.sentences),
            "samples": [asdict(sample) for sample in self.samples],
            "duplicates": manifest["duplicates"],
        }

    def render(self) -> str:
        """Text for a terminal."""
        manifest, counts = self.manifest, self.manifest.counts
        size = f"{self.bytes_on_disk:,} bytes in {counted(len(manifest.shards), 'shard')}"
        facts = {
            "token store": self.path,
            "documents": f"{counts.num_documents:,}",
            "sentences": f"{counts.num_sentences:,}",
            "tokens": f"{counts.num_tokens:,} ({manifest.id_type})",
            "[UNK]": f"{counts.num_unknown:,} ({counts.num_unknown / counts.num_tokens:.3%} of tokens)",
            "text": f"{counts.text_bytes:,} bytes, {counts.text_bytes / counts.num_tokens:.2f} per token",
            "on disk": f"{size}, {self.bytes_on_disk / counts.text_bytes:.2f} per byte of text",
            "tokenizer": ", ".join(f"{key} {value}" for key, value in manifest.tokenizer.model_dump().items()),
            "settings": ", ".join(f"{key} {value}" for key, value in manifest.settings.items()),
        }
        lines = [f"{name:<12} {value}" for name, value in facts.items()]
        lines += ["", *self.documents.lines("document"), "", *self.sentences.lines("sentence")]
        if manifest.duplicates is not None:
            lines += ["", manifest.duplicates.render()]
        for sample in self.samples:
            lines += ["", f"document {sample.document:,} ({sample.source}):", f"  {sample.text}"]
        return "\n".join(lines)


def inspect_store(folder: str | Path, *, num_samples: int = 3, verify: bool = False) -> StoreReport:
    """Describe a token store, with ``num_samples`` documents spread evenly over it; ``verify`` hashes every shard."""
    store = TokenStore(folder)
    if verify:
        store.verify()
    starts = store.sentence_boundaries[store.document_boundaries]
    tokenizer = store.tokenizer()
    chosen = np.unique(np.linspace(0, len(store) - 1, min(num_samples, len(store))).astype(int)).tolist()
    samples = []
    for document in chosen:
        text = tokenizer.decode(store.tokens_of(document)[: 4 * SAMPLE_CHARS])  # a character has at most 4 tokens
        shown = text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + " ..."
        samples.append(Sample(document, store.source_of(document), shown))
    return StoreReport(
        path=str(store.path),
        manifest=store.manifest,
        documents=Histogram.of(np.diff(starts), DOCUMENT_BOUNDS),
        sentences=Histogram.of(store.sentence_lengths, SENTENCE_BOUNDS),
        samples=tuple(samples),
    )
