"""Who asks, and on which terms: from API keys and other headers of a request."""

import base64
import hashlib
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from vecmill.config import Settings
from vecmill.core import Caller
from vecmill.errors import BadSettings, InvalidRequest, Unauthorized

PRIORITIES = {"high": 4.0, "normal": 1.0, "low": 0.25}
"""What x-priority may say, and the weight of a request beside the others of its tenant."""

MOST_WEIGHT = 1_000_000.0
"""The largest weight of a tenant: shares are sums of weights, and infinity has none."""

KEY_HEADERS = ("authorization", "api-key", "x-api-key")
"""Where clients put their key: OpenAI's and most others' place, Azure's, and that of many gateways."""


class Tenant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A table of the tenants' file."""

    keys: Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
    weight: Annotated[float, msgspec.Meta(gt=0, le=MOST_WEIGHT)] = 1.0


class Callers:
    """Who may ask, and how much each counts. Without any key everybody may, as one tenant.

    Args:
        settings: The key, the file of tenants, and how long requests may take.

    Raises:
        BadSettings: The file is not there or makes no sense, or two tenants have the same key.
    """

    def __init__(self, settings: Settings) -> None:
        self._patience_s = settings.request_timeout_s or math.inf
        self._by_key: dict[bytes, tuple[str, float]] = {}
        for name, tenant in _tenants(settings):
            for key in tenant.keys:
                if self._by_key.setdefault(_digest(key), (name, tenant.weight))[0] != name:
                    raise BadSettings(f"tenant {name!r} has a key that another tenant has too")

    def __call__(self, headers: Mapping[str, str]) -> Caller:
        """Who sent these headers.

        Args:
            headers: Values by lower-case name.

        Raises:
            Unauthorized: There is no key, or none that is known.
            InvalidRequest: The priority is no word of `PRIORITIES`, or the timeout no number of seconds.
        """
        tenant, share = self._tenant(headers)
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
            if found := self._by_key.get(_digest(key)):
                return found
        if given:
            raise Unauthorized("the API key is not one of this server's")
        raise Unauthorized("this server wants an API key: send 'authorization: Bearer KEY', or api-key, or x-api-key")


def with_key(headers: Mapping[str, str], key: str | None) -> Mapping[str, str]:
    """The headers, with a key that came elsewhere where none of them holds one."""
    if not key or any(headers.get(name, "").strip() for name in KEY_HEADERS):
        return headers
    return {**headers, "authorization": f"Bearer {key}"}


def _tenants(settings: Settings) -> Iterator[tuple[str, Tenant]]:
    if settings.api_key:
        yield "default", Tenant([settings.api_key])
    if settings.tenants:
        yield from _read(settings.tenants).items()


def _read(path: Path) -> dict[str, Tenant]:
    """The tenants of a TOML file, by name.

    Raises:
        BadSettings: It is not there, is no TOML, or has something else than keys and weights.
    """
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), dict[str, Tenant])
    except OSError as error:
        raise BadSettings(f"tenants {path}: {error.strerror or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"tenants {path}: no TOML: {error}") from error
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadSettings(f"tenants {path}: {error}; each is a table [NAME] with keys and a weight") from error


def _digest(key: str) -> bytes:
    """Looking up a digest takes the same time whatever part of a key was guessed, and keeps keys out of dumps."""
    return hashlib.sha256(key.encode()).digest()


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
