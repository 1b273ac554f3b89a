"""The table of rpcs: each asks what a route of TEI's HTTP dialect asks, and answers in a message of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from vecmill.api.dialect import Route
from vecmill.api.dialects.tei.dialect import TEI
from vecmill.api.grpc import messages
from vecmill.api.grpc import tei_pb2 as pb
from vecmill.asks import Answer
from vecmill.core import Result

ROUTES = {route.paths[0]: route for route in TEI.routes}

ROWS: dict[str, tuple[str, Callable[[Any, Any], Message]]] = {
    "Info": ("/info", messages.info),
    "Embed": ("/embed", messages.vector),
    "EmbedSparse": ("/embed_sparse", messages.sparse),
    "EmbedAll": ("/embed_all", messages.vectors_of_tokens),
    "Predict": ("/tei/predict", messages.predictions),
    "PredictPair": ("/tei/predict", messages.predictions),
    "Rerank": ("/tei/rerank", messages.ranks),
    "Tokenize": ("/tei/tokenize", messages.tokens),
    "Decode": ("/decode", messages.text),
}
"""Name of an rpc, also of its stream, to the route that asks the same and to what makes a message of its answer."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """One rpc.

    Attributes:
        service: With its package.
        name: Of the rpc.
        request: What a call sends, once or as a stream.
        response: What answers it, once or as a stream.
        many: Whether it sends a stream.
        answers: Whether it is answered by a stream.
        route: What asks the same over HTTP.
        reply: Body and answer to the message of the answer, without metadata.
    """

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    many: bool
    answers: bool
    route: Route
    reply: Callable[[Any, Any], Message]

    @property
    def path(self) -> str:
        """As HTTP/2 asks it, and the route that metrics have."""
        return f"/{self.service}/{self.name}"

    def headers(self, body: object, answer: Answer) -> dict[str, str]:
        """As the route's."""
        return self.route.headers(body, answer)

    def render(self, body: object, answer: Answer) -> bytes:
        """The bytes of the answer."""
        message: Any = self.reply(body, answer)
        if isinstance(answer, Result):
            characters = int(self.headers(body, answer)["x-compute-characters"])
            message.metadata.CopyFrom(messages.metadata(characters, answer))
        rendered: bytes = message.SerializeToString()
        return rendered


def _rpcs() -> list[Rpc]:
    rows = []
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            path, reply = ROWS[method.name.removesuffix("Stream")]
            streams = (method.client_streaming, method.server_streaming)
            types = (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
            rows.append(Rpc(service.full_name, method.name, *types, *streams, ROUTES[path], reply))
    return rows


RPCS = _rpcs()
"""Every rpc of tei.proto."""

SERVICES = sorted({rpc.service for rpc in RPCS})
"""Their services, with the package."""
