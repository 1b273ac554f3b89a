"""What vLLM's bodies have in common, and its errors."""

import time
import uuid
from typing import Any, Literal

import msgspec

from vecmill import errors
from vecmill.api.dialect import STATUSES, ErrorReply, Headers, Keys, entry
from vecmill.api.inputs import Written, read, texts_of, token_vocabulary
from vecmill.core import Input, Options, Output, Request, Result


class VllmMessage(msgspec.Struct):
    """A part of a conversation: a text, or texts that each take a line. Whose it is does not matter here."""

    content: str | list[str | dict[str, Any]] | None = None


class VllmOptions(msgspec.Struct, kw_only=True):
    """What every request may say. Unknown fields are ignored."""

    model: str | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None
    use_activation: bool | None = None


class VllmInputs(VllmOptions, kw_only=True):
    """What is to be read: texts, token ids, or a conversation or several."""

    input: Written | None = None
    messages: list[VllmMessage | list[VllmMessage]] | None = None
    chat_template: str | None = None


class VllmUsage(msgspec.Struct):
    """Tokens that went through the model."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class VllmAnswer(msgspec.Struct, kw_only=True):
    """What every answer has."""

    id: str
    created: int
    model: str
    usage: VllmUsage


class VllmMistake(msgspec.Struct):
    """What went wrong; `code` is the status."""

    message: str
    type: str
    param: str | None
    code: int


class VllmError(msgspec.Struct):
    """Every error has this body."""

    error: VllmMistake


TYPES = {
    errors.InvalidRequest: "BadRequestError",
    errors.Unauthorized: "AuthenticationError",
    errors.UnknownModel: "NotFoundError",
    errors.UnknownRoute: "NotFoundError",
    errors.Overloaded: "ServiceUnavailableError",
    errors.ModelLoading: "ServiceUnavailableError",
    errors.ShuttingDown: "ServiceUnavailableError",
    errors.TimedOut: "GatewayTimeoutError",
    errors.EngineFailed: "InternalServerError",
    errors.RequestError: "BadRequestError",
    errors.VecmillError: "InternalServerError",
}
"""Error to vLLM's name for it."""

OWN_KEYS = frozenset(
    {
        *("truncate_prompt_tokens", "truncation_side", "add_special_tokens", "use_activation", "messages"),
        *("embed_dtype", "endianness", "cache_salt", "mm_processor_kwargs", "chat_template", "max_tokens_per_query"),
        *("request_id", "instruction"),
    }
)
"""Fields by which a body on a shared path is known to be vLLM's."""


def render_error(error: errors.VecmillError) -> ErrorReply:
    """The status and the body of an error."""
    status = entry(STATUSES, error)
    param = error.param if isinstance(error, errors.InvalidRequest) else None
    body = VllmError(VllmMistake(str(error), entry(TYPES, error), param, status))
    return ErrorReply(status, msgspec.json.encode(body))


def is_vllm(keys: Keys, _: object) -> bool:
    """Whether a body is vLLM's, by its keys."""
    if not OWN_KEYS.isdisjoint(keys):
        return True
    return "encoding_format" in keys and bytes(keys["encoding_format"]).startswith(b'"bytes')


def options(body: VllmOptions, **more: Any) -> Options:  # noqa: ANN401 (fields of Options)
    """What changes the numbers.

    Raises:
        InvalidRequest: Something is asked for that is not served.
    """
    if body.add_special_tokens is False:
        message = "add_special_tokens is false; the special tokens that the model was trained with are always added"
        raise errors.InvalidRequest(message, param="add_special_tokens")
    kept = body.truncate_prompt_tokens
    if kept is not None and kept != WHOLE and kept < 1:
        message = f"truncate_prompt_tokens is {kept}; 1 or more, or -1 for as much as the model takes"
        raise errors.InvalidRequest(message, param="truncate_prompt_tokens")
    wishes = {
        "truncate": kept is not None,
        "max_tokens": kept if kept != WHOLE else None,
        "truncation_side": body.truncation_side,
    }
    return Options(**{**wishes, **more})


def asked(
    body: VllmInputs,
    outputs: tuple[Output, ...],
    headers: Headers,
    **more: Any,  # noqa: ANN401 (fields of Options)
) -> Request:
    """The request for what the model gives for each input. Token ids are the model's own unless a header says else.

    Raises:
        InvalidRequest: There is no input, or something is asked for that is not served.
    """
    if (body.input is None) == (body.messages is None):
        what = "no input" if body.input is None else "input beside messages; send one of them"
        raise errors.InvalidRequest(f"the request has {what}", param="input")
    vocabulary = token_vocabulary(headers) or "native"
    wishes = options(body, conversation=body.messages is not None, token_vocabulary=vocabulary, **more)
    inputs = read(body.input) if body.input is not None else _conversations(body)
    return Request(model=body.model, inputs=inputs, outputs=outputs, options=wishes)


def _conversations(body: VllmInputs) -> list[Input]:
    """Each conversation as one text, its messages one after another, as vLLM's basic template has it."""
    if body.chat_template is not None:
        raise errors.InvalidRequest("chat_template is not served; messages follow one another", param="chat_template")
    given = body.messages or []
    alone = [one for one in given if isinstance(one, VllmMessage)]
    several = [one for one in given if isinstance(one, list)]
    if alone and several:
        raise errors.InvalidRequest("messages holds lists beside messages; send only lists", param="messages")
    conversations = [alone] if alone else several
    if not conversations:
        raise errors.EmptyInput("messages is an empty list; at least one message is needed", param="messages")
    return ["".join(map(_content, conversation)) for conversation in conversations]


def _content(message: VllmMessage) -> str:
    parts = [message.content] if isinstance(message.content, str) else message.content or []
    return "\n".join(texts_of(parts, "messages.content"))


NAMES = {"input": ("input", "messages"), "max_tokens": ("truncate_prompt_tokens",)}
"""What an error calls the fields of `VllmInputs`."""

WHOLE = -1
"""As much as the model takes."""


def common(kind: str, result: Result) -> dict[str, Any]:
    """The fields that every answer has."""
    total = sum(result.tokens)
    return {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": result.model,
        "usage": VllmUsage(total, total),
    }
