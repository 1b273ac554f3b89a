"""RerankStream: texts that come one by one, ranked together in the end."""

from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np

from vecmill.api.dialects.tei.wire import TeiRerankBody
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.grpc.messages import read
from vecmill.core import Result
from vecmill.errors import EmptyInput

Part = tuple[TeiRerankBody, Result]
"""A body of one text, and its score."""


async def one_by_one(stream: AsyncIterator[bytes]) -> AsyncIterator[pb.RerankRequest]:
    """Each text as a ranking of its own; `raw_scores` and `return_text` are those of the first message.

    Raises:
        InvalidRequest: The bytes are no such message.
    """
    first: pb.RerankStreamRequest | None = None
    async for given in stream:
        message = read(pb.RerankStreamRequest, given)
        first = message if first is None else first
        yield pb.RerankRequest(
            query=message.query,
            texts=[message.text],
            truncate=message.truncate,
            raw_scores=first.raw_scores,
            return_text=first.return_text,
            truncation_direction=message.truncation_direction,
        )


def together(parts: Sequence[Part]) -> Part:
    """All of them as one body and one answer, whose times are those of the slowest.

    Raises:
        EmptyInput: There are none.
    """
    if not parts:
        raise EmptyInput("the stream holds no text; at least one is needed", param="texts")
    results = [result for _, result in parts]
    body = msgspec.structs.replace(parts[0][0], texts=[text for one, _ in parts for text in one.texts])
    return body, Result(
        model=results[0].model,
        scores=np.concatenate([one.scores for one in results]),
        labels=results[0].labels,
        tokens=[count for one in results for count in one.tokens],
        truncated=sum(one.truncated for one in results),
        cached=sum(one.cached for one in results),
        timings=max((one.timings for one in results), key=lambda timings: timings.total_s),
    )
