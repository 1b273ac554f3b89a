"""JSON to a wire type, with errors that say what is wrong, what was given and what is allowed."""

import re
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from vecmill.errors import InvalidRequest

SHOWN_CHARS = 80
"""How much of a wrong value an error repeats."""

_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_FIRST_FIELD = re.compile(r"^\.(?P<field>\w+)")


def decode(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:  # noqa: ANN401 (the decoder's own type)
    """The body as the decoder's type.

    Raises:
        InvalidRequest: The body is empty, no JSON, or not of the type.
    """
    if not body:
        raise InvalidRequest("the body is empty; send a JSON object")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explain(str(error), body, cast("type", decoder.type)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply") from error


def explain(message: str, body: bytes, kind: type) -> InvalidRequest:
    """A validation error of msgspec as one that names the field, the value given and what is allowed."""
    found = _PATH.search(message)
    claim = _PATH.sub("", message)
    field = _FIRST_FIELD.match(found["path"]) if found else None
    if field is None:
        return InvalidRequest(f"the body is wrong: {claim}")
    name = field["field"]
    where, value = _culprit(msgspec.json.decode(body), name, kind)
    allowed = _allowed(kind, name)
    return InvalidRequest(f"{where} is {_shown(value)}; {allowed or _sentence(claim)}", param=name)


def _culprit(raw: Any, name: str, kind: type) -> tuple[str, Any]:  # noqa: ANN401 (JSON)
    """Where the wrong value is and what it is; of a list, the first element that is wrong on its own."""
    value = raw[name]
    if not isinstance(value, list):
        return name, value
    for number, element in enumerate(value):
        if not _converts({**raw, name: [element]}, kind):
            return f"{name}[{number}]", element
    return name, value


def _converts(raw: Any, kind: type) -> bool:  # noqa: ANN401 (JSON)
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return False
    return True


def _allowed(kind: type, name: str) -> str | None:
    """The values of a field that takes only some."""
    hint = get_type_hints(kind).get(name)
    for option in (hint, *get_args(hint)):
        if get_origin(option) is Literal:
            return f"allowed: {', '.join(map(repr, get_args(option)))}"
    return None


def _sentence(claim: str) -> str:
    """Msgspec's "Expected `x`, got `y`" as the end of a sentence."""
    return re.sub(r", got `[^`]*`$", "", claim).replace("`", "").replace(" | ", " or ").replace("Expected", "expected")


def _shown(value: Any) -> str:  # noqa: ANN401 (JSON)
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."
