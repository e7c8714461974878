"""Vectors as clients ask for them: numbers in fewer bits, base64, raw bytes, and lists in OpenAI's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bertkit.server.calls import Answer
from bertkit.server.dialects.route import Reply, as_base64, dumps, json_reply, new_id, now, usage_of
from bertkit.server.failures import Failure

Floats = npt.NDArray[np.float32]
Vector = npt.NDArray[Any]
NumberType = Literal["float32", "float16", "bfloat16"]
ByteOrder = Literal["native", "little", "big"]
Encoding = Annotated[
    Literal["float", "base64", "bytes", "bytes_only"],
    Field(
        description="numbers in JSON; base64 of little-endian float32; the bytes of all vectors as the body, with the "
        "header `metadata` that says where each begins, or without it"
    ),
]
#: More vectors have a header that is too long for many clients.
_MOST_DESCRIBED = 256


def whole(vector: Floats) -> npt.NDArray[np.int8]:
    """From -127 to 127: in proportion to the number of largest magnitude, which keeps cosines."""
    largest = float(np.abs(vector).max(initial=0.0)) or 1.0
    found: npt.NDArray[np.int8] = np.rint(vector * (127.0 / largest)).astype(np.int8)
    return found


def bits(vector: Floats) -> npt.NDArray[np.uint8]:
    """A bit a number, 1 where it is above 0, eight in a byte, first bit first."""
    packed: npt.NDArray[np.uint8] = np.packbits(vector > 0)
    return packed


#: What Cohere and Jina call a vector of each kind.
KINDS: Mapping[str, Callable[[Floats], Any]] = {
    "float": lambda vector: vector,
    "base64": as_base64,
    "int8": whole,
    "uint8": lambda vector: (whole(vector).astype(np.int16) + 128).astype(np.uint8),
    "ubinary": bits,
    "binary": lambda vector: (bits(vector) ^ np.uint8(0x80)).view(np.int8),  # 128 less
}
Kind = Literal["float", "base64", "int8", "uint8", "ubinary", "binary"]


def _bfloat16(vector: Floats) -> npt.NDArray[np.uint16]:
    """The upper half of each number, rounded to the nearest, ties to even."""
    whole_numbers = np.ascontiguousarray(vector, np.float32).view(np.uint32)
    return ((whole_numbers + 0x7FFF + ((whole_numbers >> 16) & 1)) >> 16).astype(np.uint16)


_NUMBERS: Mapping[str, Callable[[Floats], Vector]] = {
    "float32": lambda vector: vector,
    "float16": lambda vector: vector.astype(np.float16),
    "bfloat16": _bfloat16,
}


def as_numbers(vector: Floats, kind: NumberType = "float32", order: ByteOrder = "native") -> Vector:
    """The vector in numbers of a kind, its bytes in an order; ``native``: little-endian."""
    found = _NUMBERS[kind](vector)
    return found.astype(found.dtype.newbyteorder(">" if order == "big" else "<"))


def bytes_reply(
    answer: Answer,
    vectors: Sequence[Floats],
    kind: NumberType = "float32",
    order: ByteOrder = "native",
    *,
    described: bool = True,
) -> Reply:
    """The vectors' bytes, one after another, as vLLM sends them; ``described``: with its header ``metadata``."""
    if described and len(vectors) > _MOST_DESCRIBED:
        raise Failure(
            "too_many",
            f"encoding_format 'bytes' describes at most {_MOST_DESCRIBED} vectors in a header: ask for 'bytes_only'",
            param="encoding_format",
            details={"num_items": len(vectors), "limit": _MOST_DESCRIBED},
        )
    parts = [as_numbers(vector, kind, order).tobytes() for vector in vectors]
    if not described:
        return Reply(b"".join(parts), media_type="application/octet-stream")
    data, start = [], 0
    for index, (vector, part) in enumerate(zip(vectors, parts, strict=True)):
        place = {"index": index, "embed_dtype": kind, "endianness": order, "start": start, "end": start + len(part)}
        data.append({**place, "shape": vector.shape})
        start += len(part)
    said = {"id": new_id("embd-"), "created": now(), "model": answer.model.name, "data": data}
    described_by = dumps({**said, "usage": usage_of(answer)}).decode()
    return Reply(b"".join(parts), media_type="application/octet-stream", headers={"metadata": described_by})


def openai_list(answer: Answer, vectors: Sequence[Any], **more: Any) -> Reply:
    """Vectors as OpenAI lists them."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return json_reply({"object": "list", "data": data, "model": answer.model.name, "usage": usage_of(answer), **more})


def encoded(answer: Answer, encoding: str, **more: Any) -> Reply:
    """The same, encoded as was asked."""
    if encoding in ("bytes", "bytes_only"):
        return bytes_reply(answer, answer.results, described=encoding == "bytes")
    return openai_list(answer, [KINDS[encoding](vector) for vector in answer.results], **more)


#: An example of such a list.
EXAMPLE: Mapping[str, Any] = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.0125, -0.0531, 0.0342]}],
    "model": "all-MiniLM-L6-v2",
    "usage": {"prompt_tokens": 8, "total_tokens": 8},
}
