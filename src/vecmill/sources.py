"""Where settings come from besides the command line: a file and the environment, each checked before it is used."""

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from vecmill.config import Settings
from vecmill.errors import BadSettings

PREFIX = "VECMILL_"
NO_SETTINGS = {"CONFIG", "MODELS"}
"""Variables of ours that are none."""

HIDDEN = {field.name for field in fields(Settings) if not field.repr}
"""Settings whose values no message repeats."""

SERVICE = re.compile(PREFIX + r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)")
"""Variables that Kubernetes gives every pod for a Service named vecmill or vecmill-SOMETHING."""

SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.*")
"""What its variable PORT holds, which is that of a setting of ours too."""

KINDS = {list: "list of strings", bool: "truth value", int: "whole number", float: "number", str: "string"}
"""What messages call what is needed."""


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file; one file serves every command.

    Raises:
        BadSettings: It cannot be read, is no TOML, has a key that is no setting, with the nearest name, or a value that
            is none of its setting: what is not understood is not left aside.
    """
    try:
        if not path.is_file():
            raise BadSettings(f"--config {path}: no such file")
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"--config {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BadSettings(f"--config {path}: no TOML: {error}") from error
    kinds = {name: _kinds(hint) for name, hint in get_type_hints(Settings).items()} | {"models": (list,)}
    for key, value in settings.items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise BadSettings(f"--config {path}: {_no_setting(key, kinds)}")
        if complaint := _wrong(name, value, kinds[name]):
            raise BadSettings(f"--config {path}: {complaint}")
    return settings


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that look like ours and are not.

    Raises:
        BadSettings: With the nearest name.
    """
    known = {field.name.upper() for field in fields(Settings)} | NO_SETTINGS
    for name in sorted(environment):
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in known:
            raise BadSettings(_no_setting(name, known, PREFIX))


def of_services(environment: Mapping[str, str]) -> list[str]:
    """Variables that are Kubernetes' and not ours, though they look so: a Service of our name is in the namespace."""
    return [
        name
        for name, value in environment.items()
        if SERVICE.fullmatch(name)
        or (name.startswith(PREFIX) and name.endswith("PORT") and SERVICE_URL.fullmatch(value))
    ]


def _kinds(hint: object) -> tuple[type, ...]:
    """What TOML may hold for a setting of this type. Words are read as on the command line, whatever is asked for."""
    if get_origin(hint) is tuple:
        return (list, str)
    if hint is bool:
        return (bool, str)
    if hint is float:
        return (float, int, str)
    return (int, float, str) if hint in {int, int | None} else (str,)


def _wrong(name: str, value: object, kinds: tuple[type, ...]) -> str:
    """What is wrong with a value of the file, or ""."""
    if name == "tenants" and isinstance(value, dict | list):
        return "tenants is a table; it is the path of a file, which holds the tables of the tenants"
    if type(value) in kinds and not (isinstance(value, list) and any(not isinstance(one, str) for one in value)):
        return ""
    shown = "a table" if isinstance(value, dict) else repr(value)
    if name in HIDDEN and shown != "a table":
        shown = "a list" if isinstance(value, list) else "no string"
    return f"{name} is {shown}; a {KINDS[kinds[0]]} is needed"


def _no_setting(name: str, known: Collection[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name.removeprefix(prefix), known, n=1)
    return f"{name} is no setting" + (f"; did you mean {prefix}{near[0]}?" if near else "")
