"""API keys and whose they are: from the settings and the tenants' file, read once; only digests are kept."""

import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from vecmill.config import Settings
from vecmill.errors import BadSettings

MOST_WEIGHT = 1_000_000.0
"""The largest weight of a tenant: shares are sums of weights, and infinity has none."""

Keys = dict[str, tuple[str, float]]
"""Digest of a key to the name and weight of its tenant. Without any, everybody may ask."""


class Tenant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A table of the tenants' file."""

    keys: Annotated[list[str], msgspec.Meta(min_length=1)]
    weight: Annotated[float, msgspec.Meta(gt=0, le=MOST_WEIGHT)] = 1.0


def read_keys(settings: Settings) -> Keys:
    """The keys that are accepted; none only where the settings name neither a key nor a file.

    Raises:
        BadSettings: The file is not there, makes no sense or has no tenant, a key is none that a request could send, or
            two tenants have the same.
    """
    keys: Keys = {}
    for name, tenant in _tenants(settings):
        for key in tenant.keys:
            if keys.setdefault(digest(_sendable(key, f"a key of tenant {name!r}")), (name, tenant.weight))[0] != name:
                raise BadSettings(f"tenant {name!r} has a key that another tenant has too")
    return keys


def digest(key: str) -> str:
    """Looking up a digest takes the same time whatever part of a key was guessed, and keeps keys out of dumps."""
    return hashlib.sha256(key.encode()).hexdigest()


def _sendable(key: str, what: str) -> str:
    """A key without the space around it, as the newline that ends a file: headers of requests are read so too.

    Raises:
        BadSettings: Nothing is left, or there is what headers do not carry alike from every client.
    """
    bare = key.strip()
    if not bare:
        raise BadSettings(f"{what} is blank")
    if not (bare.isascii() and bare.isprintable()):
        raise BadSettings(f"{what} has other characters than printable ASCII, which not every client can send")
    return bare


def _tenants(settings: Settings) -> Iterator[tuple[str, Tenant]]:
    if settings.api_key:
        yield "default", Tenant([_sendable(settings.api_key, "api_key")])
    if settings.tenants:
        yield from _read(settings.tenants).items()


def _read(path: Path) -> dict[str, Tenant]:
    """The tenants of a TOML file, by name.

    Raises:
        BadSettings: It is not there, is no TOML, has something else than keys and weights, or nothing.
    """
    form = "each is a table [NAME] with keys and a weight"
    try:
        tenants = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Tenant])
    except OSError as error:
        raise BadSettings(f"tenants {path}: {error.strerror or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"tenants {path}: no TOML: {error}") from error
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadSettings(f"tenants {path}: {error}; {form}") from error
    if not tenants:  # else a file that was cut short would let everybody in
        raise BadSettings(f"tenants {path}: no tenant; {form}")
    return tenants
