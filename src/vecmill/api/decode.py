"""JSON to a wire type, with errors that say what is wrong, what was given and what is allowed."""

import re
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from vecmill.errors import InvalidRequest, NotJson

Shape = TypeVar("Shape")

SHOWN_CHARS = 80
"""How much of a wrong value an error repeats."""

_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<index>\d+)\]")
_REQUIRED = re.compile(r"required field `(?P<field>\w+)`")
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def decode(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:  # noqa: ANN401 (the decoder's own type)
    """The body as the decoder's type.

    Raises:
        NotJson: The body is empty or does not parse.
        InvalidRequest: It is not of the type.
    """
    if not body:
        raise NotJson("the body is empty; send a JSON object")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explain(str(error), body, cast("type", decoder.type)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # msgspec calls a lone surrogate truncated data
        what = "half a surrogate pair (\\ud800 to \\udfff)" if _LONE_SURROGATE.search(body) else error
        raise NotJson(f"the body is not valid JSON: {what}") from error
    except RecursionError as error:
        raise NotJson("the body is nested too deeply") from error


def decode_query(query: bytes, kind: type[Shape]) -> Shape:
    """The query of a URL as a wire type; a name that comes twice counts once, the last time.

    Raises:
        InvalidRequest: It is not of the type.
    """
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the query is wrong: {error}") from error


def keys_of(body: bytes) -> dict[str, msgspec.Raw]:
    """The keys of a body that are not null, with their values as they came; none where it is no object."""
    try:
        keys = _KEYS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {key: value for key, value in keys.items() if value != _NULL} if _NULL in keys.values() else keys


_NULL = msgspec.Raw(b"null")
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def explain(message: str, body: bytes, kind: type) -> InvalidRequest:
    """A validation error of msgspec as one that names the field, the value given and what is allowed."""
    found = _PATH.search(message)
    claim = _PATH.sub("", message)
    steps = _STEP.findall(found["path"]) if found else []
    if not found or not steps:
        absent = _REQUIRED.search(claim)
        return InvalidRequest(f"the body is wrong: {claim}", param=absent["field"] if absent else None)
    where, name = found["path"].removeprefix("."), steps[0][0]
    allowed = _allowed(kind, name) or _sentence(claim)
    try:
        value = _at(msgspec.json.decode(body), steps)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        # msgspec stops at the first mistake: what follows may be no JSON, or give the field a second time
        return InvalidRequest(f"{where} is wrong: {allowed}", param=name)
    return InvalidRequest(f"{where} is {_shown(value)}; {allowed}", param=name)


def _at(raw: Any, steps: list[tuple[str, str]]) -> Any:  # noqa: ANN401 (JSON)
    """The value at the end of a path."""
    for field, index in steps:
        raw = raw[field] if field else raw[int(index)]
    return raw


def _allowed(kind: type, name: str) -> str | None:
    """The values of a field that takes only some."""
    hint = get_type_hints(kind).get(name)
    for option in (hint, *get_args(hint)):
        if get_origin(option) is Literal:
            return f"allowed: {', '.join(map(repr, get_args(option)))}"
    return None


def _sentence(claim: str) -> str:
    """Msgspec's "Expected `x`, got `y`" as the end of a sentence."""
    said = re.sub(r", got `[^`]*`$", "", claim).replace("`", "").replace(" | ", " or ")
    return said[:1].lower() + said[1:]


def _shown(value: Any) -> str:  # noqa: ANN401 (JSON)
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."
