"""Messages to the bodies of TEI's HTTP dialect, whose fields have the same names, and answers to messages."""

from typing import Any, TypeVar

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from vecmill.api.dialects.tei.tokens import facts, tokens_of
from vecmill.api.dialects.tei.wire import TeiRerankBody
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.api.ranking import labelled, ranked
from vecmill.asks import Detokenized, ModelInfo, Tokenized
from vecmill.core import Result
from vecmill.errors import InvalidRequest

MessageT = TypeVar("MessageT", bound=Message)

DIRECTIONS = {pb.TRUNCATION_DIRECTION_RIGHT: "right", pb.TRUNCATION_DIRECTION_LEFT: "left"}

MODEL_TYPES = {"classify": pb.MODEL_TYPE_CLASSIFIER, "rerank": pb.MODEL_TYPE_RERANKER}
"""Task to type; what is not here gives vectors of some kind."""

MOST = 2**32 - 1
"""What a uint32 holds."""


def read(kind: type[MessageT], given: bytes) -> MessageT:
    """The message of a call.

    Raises:
        InvalidRequest: It is none of this kind.
    """
    try:
        message: MessageT = kind.FromString(given)
    except DecodeError as error:
        raise InvalidRequest(f"the bytes are no {kind.DESCRIPTOR.full_name}: {error}") from None
    return message


def body_of(message: Message, kind: type[msgspec.Struct], model: str | None) -> msgspec.Struct:
    """The body that asks the same over HTTP; a field that may be absent and is becomes None.

    Raises:
        InvalidRequest: The truncation direction is none.
    """
    fields = message.DESCRIPTOR.fields
    given = {field.name: _value(message, field) for field in fields if _is_there(message, field)}
    return kind(model=model, **given)


def _is_there(message: Message, field: FieldDescriptor) -> bool:
    return not field.has_presence or message.HasField(field.name)


def _value(message: Message, field: FieldDescriptor) -> Any:  # noqa: ANN401 (of any field)
    value = getattr(message, field.name)
    if field.name == "truncation_direction":
        if value not in DIRECTIONS:
            raise InvalidRequest(f"truncation_direction is {value}; allowed are 0 (right) and 1 (left)")
        return DIRECTIONS[value]
    return list(value) if field.is_repeated else value


def metadata(characters: int, result: Result) -> pb.Metadata:
    """What an answer took.

    Args:
        characters: Of all texts.
        result: The answer.
    """
    times = result.timings
    return pb.Metadata(
        compute_chars=characters,
        compute_tokens=sum(result.tokens),
        total_time_ns=_ns(times.total_s),
        tokenization_time_ns=_ns(times.tokenize_s),
        queue_time_ns=_ns(times.queue_s),
        inference_time_ns=_ns(max(0.0, times.compute_s - times.queue_s)),
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def info(_: object, answer: ModelInfo) -> pb.InfoResponse:
    """What the model is, and the limits."""
    told = {name: value for name, value in msgspec.structs.asdict(facts(answer)).items() if value is not None}
    known = (told.keys() & set(pb.InfoResponse.DESCRIPTOR.fields_by_name)) - {"model_type"}
    bounded = {name: min(told[name], MOST) if isinstance(told[name], int) else told[name] for name in known}
    return pb.InfoResponse(model_type=MODEL_TYPES.get(answer.task, pb.MODEL_TYPE_EMBEDDING), **bounded)


def vector(_: object, result: Result) -> pb.EmbedResponse:
    """One vector."""
    return pb.EmbedResponse(embeddings=result.rows[0].tolist())


def sparse(_: object, result: Result) -> pb.EmbedSparseResponse:
    """The entries of a sparse vector, by index."""
    entries = zip(result.sparse[0].indices.tolist(), result.sparse[0].values.tolist(), strict=True)
    return pb.EmbedSparseResponse(sparse_embeddings=[pb.SparseValue(index=at, value=value) for at, value in entries])


def vectors_of_tokens(_: object, result: Result) -> pb.EmbedAllResponse:
    """A vector for each token."""
    rows = [pb.TokenEmbedding(embeddings=row.tolist()) for row in result.multi[0]]
    return pb.EmbedAllResponse(token_embeddings=rows)


def predictions(_: object, result: Result) -> pb.PredictResponse:
    """All labels with their scores, the best first."""
    pairs = labelled(result, 0)
    return pb.PredictResponse(predictions=[pb.Prediction(score=score, label=label) for label, score in pairs])


def ranks(body: TeiRerankBody, result: Result) -> pb.RerankResponse:
    """The texts by their scores, the best first."""
    return pb.RerankResponse(
        ranks=[
            pb.Rank(index=place, text=body.texts[place] if body.return_text else None, score=score)
            for place, score in ranked(result)
        ]
    )


def tokens(_: object, answer: Tokenized) -> pb.EncodeResponse:
    """The tokens of a text, with their places in bytes."""
    found = tokens_of(answer.texts[0], answer.pieces[0])
    return pb.EncodeResponse(tokens=[pb.SimpleToken(**msgspec.structs.asdict(token)) for token in found])


def text(_: object, answer: Detokenized) -> pb.DecodeResponse:
    """The text of tokens."""
    return pb.DecodeResponse(text=answer.texts[0])
