"""What people write: FastAPI around an encoder, with a batcher that waits a little and sorts by length.

    python peer_server.py ENGINE MODEL --port 8000 --batch 32 --wait 5

ENGINE is ``sentence-transformers``, ``transformers`` or ``onnxruntime``; MODEL a folder of sentence-transformers, with
``--classify`` one of ``transformers`` with a classifier, for onnxruntime with ``model.onnx`` beside it.
``POST /v1/embeddings`` answers as OpenAI's, in base64 where that is asked for, ``POST /classify`` as Infinity's.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Response
from numpy.typing import NDArray
from orjson import dumps
from pydantic import BaseModel

Vectors = NDArray[np.float32]
#: So many batches are drawn from the queue at once, and sorted by length together.
DRAWN = 4


class Body(BaseModel):
    """What OpenAI's clients send."""

    input: str | list[str]
    model: str | None = None
    encoding_format: str = "float"


def softmax(logits: Vectors) -> Vectors:
    """Shares of the labels."""
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(exponents / exponents.sum(1, keepdims=True), np.float32)


def transformers(folder: Path, classifies: bool) -> Callable[[Sequence[str]], Vectors]:
    """A classifier by the library itself."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    assert classifies, "for vectors there is sentence-transformers"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def shares(texts: Sequence[str]) -> Vectors:
        given = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            return softmax(model(**given).logits.numpy())

    return shares


def sentence_transformers(folder: Path, classifies: bool) -> Callable[[Sequence[str]], Vectors]:
    """Vectors by the library itself."""
    import torch
    from sentence_transformers import SentenceTransformer

    assert not classifies, "for classifiers there is transformers"
    model = SentenceTransformer(str(folder), device="cpu")

    def encode(texts: Sequence[str]) -> Vectors:
        with torch.inference_mode():
            found: Vectors = model.encode(list(texts), batch_size=len(texts), show_progress_bar=False)
        return found

    return encode


def onnxruntime(folder: Path, classifies: bool) -> Callable[[Sequence[str]], Vectors]:
    """By ONNX Runtime and tokenizers; vectors are means."""
    import onnxruntime as ort
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}

    def encode(texts: Sequence[str]) -> Vectors:
        rows = tokenizer.encode_batch(list(texts))
        ids = np.array([row.ids for row in rows], np.int64)
        mask = np.array([row.attention_mask for row in rows], np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, {name: given[name] for name in names})[0]
        if classifies:
            return softmax(hidden)
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True), np.float32)

    return encode


class Batcher:
    """Waits for ``size`` texts or ``wait`` seconds, and encodes them in another thread."""

    def __init__(self, encode: Callable[[Sequence[str]], Vectors], size: int, wait: float) -> None:
        self.encode, self.size, self.wait = encode, size, wait
        self.queue: asyncio.Queue[tuple[str, asyncio.Future[Any]]] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            drawn = [await self.queue.get()]
            end = loop.time() + self.wait
            while len(drawn) < self.size:
                try:
                    drawn.append(await asyncio.wait_for(self.queue.get(), max(0.0, end - loop.time())))
                except TimeoutError:
                    break
            while len(drawn) < DRAWN * self.size and not self.queue.empty():
                drawn.append(self.queue.get_nowait())
            drawn.sort(key=lambda each: len(each[0]))
            for start in range(0, len(drawn), self.size):
                part = drawn[start : start + self.size]
                vectors = await loop.run_in_executor(self.thread, self.encode, [text for text, _ in part])
                for (_, future), vector in zip(part, vectors, strict=True):
                    if not future.done():
                        future.set_result(vector)

    async def vectors(self, texts: Sequence[str]) -> list[Vectors]:
        futures = [asyncio.get_running_loop().create_future() for _ in texts]
        for text, future in zip(texts, futures, strict=True):
            self.queue.put_nowait((text, future))
        return list(await asyncio.gather(*futures))


def application(batcher: Batcher, labels: Sequence[str]) -> FastAPI:
    """The routes; ``labels``: of a classifier."""

    @contextlib.asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.ensure_future(batcher.run())
        yield
        task.cancel()

    app = FastAPI(lifespan=living)

    @app.post("/v1/embeddings")
    async def embeddings(body: Body) -> Response:
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = await batcher.vectors(texts)
        coded = body.encoding_format == "base64"
        data = [
            {
                "object": "embedding",
                "index": number,
                "embedding": base64.b64encode(vector.tobytes()).decode() if coded else vector.tolist(),
            }
            for number, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        answer = {"object": "list", "data": data, "model": body.model, "usage": usage}
        return Response(dumps(answer), media_type="application/json")

    @app.post("/classify")
    async def classify(body: Body) -> Response:
        texts = [body.input] if isinstance(body.input, str) else body.input
        found = [
            [{"label": label, "score": share} for label, share in zip(labels, shares.tolist(), strict=True)]
            for shares in await batcher.vectors(texts)
        ]
        answer = {"object": "classify", "data": found, "model": body.model, "usage": {}}
        return Response(dumps(answer), media_type="application/json")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    engines = {
        "sentence-transformers": sentence_transformers, "transformers": transformers, "onnxruntime": onnxruntime,
    }  # fmt: skip
    parser.add_argument("engine", choices=engines)
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--wait", type=float, default=5.0, help="milliseconds")
    parser.add_argument("--classify", action="store_true", help="MODEL is a classifier")
    given = parser.parse_args()
    labels: list[str] = []
    if given.classify:
        names = json.loads((given.model / "config.json").read_text())["id2label"]
        labels = [names[str(number)] for number in range(len(names))]
    encode = engines[given.engine](given.model, given.classify)
    app = application(Batcher(encode, given.batch, given.wait / 1000), labels)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="error", access_log=False)


if __name__ == "__main__":
    main()
