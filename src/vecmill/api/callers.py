"""Who asks, and on which terms: from API keys and other headers of a request."""

import base64
import math
from collections.abc import Mapping

from vecmill.api.keys import Keys, digest, read_keys
from vecmill.config import Settings
from vecmill.core import Caller
from vecmill.errors import InvalidRequest, Unauthorized

PRIORITIES = {"high": 4.0, "normal": 1.0, "low": 0.25}
"""What x-priority may say, and the weight of a request beside the others of its tenant."""

KEY_HEADERS = ("authorization", "api-key", "x-api-key")
"""Where clients put their key: OpenAI's and most others' place, Azure's, and that of many gateways."""


TERMS = frozenset({"x-priority", "x-request-timeout"})
"""What else a caller may say of a request."""


class Callers:
    """Who may ask, and how much each counts. Without any key everybody may, as one tenant.

    Args:
        settings: The key, the file of tenants, and how long requests may take.
        keys: What was read of both before; else they are read now.

    Raises:
        BadSettings: As `read_keys`.
    """

    def __init__(self, settings: Settings, keys: Keys | None = None) -> None:
        self._patience_s = settings.request_timeout_s or math.inf
        self._by_key = read_keys(settings) if keys is None else keys

    def __call__(self, headers: Mapping[str, str]) -> Caller:
        """Who sent these headers.

        Args:
            headers: Values by lower-case name.

        Raises:
            Unauthorized: There is no key, or none that is known.
            InvalidRequest: The priority is no word of `PRIORITIES`, or the timeout no number of seconds.
        """
        tenant, share = self._tenant(headers)
        if TERMS.isdisjoint(headers):
            return Caller(tenant=tenant, share=share, timeout_s=self._patience_s)
        priority = headers.get("x-priority", "normal").strip().lower()
        if priority not in PRIORITIES:
            raise InvalidRequest(f"x-priority is {priority!r}; allowed are {', '.join(PRIORITIES)}", param="x-priority")
        timeout_s = min(self._patience_s, _seconds(headers.get("x-request-timeout")))
        return Caller(tenant=tenant, share=share, weight=PRIORITIES[priority], timeout_s=timeout_s)

    def _tenant(self, headers: Mapping[str, str]) -> tuple[str, float]:
        if not self._by_key:
            return "", 1.0
        given = [_bare(headers[name]) for name in KEY_HEADERS if headers.get(name, "").strip()]
        for key in given:
            if found := self._by_key.get(digest(key)):
                return found
        if given:
            raise Unauthorized("the API key is not one of this server's")
        raise Unauthorized("this server wants an API key: send 'authorization: Bearer KEY', or api-key, or x-api-key")


def with_key(headers: Mapping[str, str], key: str | None) -> Mapping[str, str]:
    """The headers, with a key that came elsewhere where none of them holds one."""
    if not key or any(headers.get(name, "").strip() for name in KEY_HEADERS):
        return headers
    return {**headers, "authorization": f"Bearer {key}"}


def _bare(value: str) -> str:
    """A key with or without the word Bearer: some clients send it raw, those that know only a URL as its password."""
    scheme, _, rest = value.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            return _password(rest.strip()) or value.strip()
        case _:
            return value.strip()


def _password(credentials: str) -> str:
    """The password of http://USER:PASSWORD@HOST, or the user where there is none; "" where it is no such thing."""
    try:
        user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        return ""
    return password or user


def _seconds(value: str | None) -> float:
    if value is None:
        return math.inf
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise InvalidRequest(
            f"x-request-timeout is {value!r}; a positive number of seconds is needed", param="x-request-timeout"
        )
    return seconds
