"""What people write: FastAPI around an encoder, with a batcher that waits a little and sorts by length.

    python peer_server.py ENGINE MODEL --port 8000 --batch 32 --wait 5

ENGINE is ``sentence-transformers`` or ``onnxruntime``; MODEL a folder of sentence-transformers, for onnxruntime with
``model.onnx`` beside it. ``POST /v1/embeddings`` answers as OpenAI's, in base64 where that is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
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


def sentence_transformers(folder: Path) -> Callable[[Sequence[str]], Vectors]:
    """By the library itself."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")

    def encode(texts: Sequence[str]) -> Vectors:
        with torch.inference_mode():
            found: Vectors = model.encode(list(texts), batch_size=len(texts), show_progress_bar=False)
        return found

    return encode


def onnxruntime(folder: Path) -> Callable[[Sequence[str]], Vectors]:
    """By ONNX Runtime and tokenizers, mean pooling."""
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


def application(batcher: Batcher) -> FastAPI:
    """The routes."""

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

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("sentence-transformers", "onnxruntime"))
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--wait", type=float, default=5.0, help="milliseconds")
    given = parser.parse_args()
    engine = sentence_transformers if given.engine == "sentence-transformers" else onnxruntime
    app = application(Batcher(engine(given.model), given.batch, given.wait / 1000))
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="error", access_log=False)


if __name__ == "__main__":
    main()
