"""JSON files of a checkpoint, with errors that name them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from vecmill.errors import CorruptFile, MissingFile


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The JSON object in a file; {} where an optional file is absent.

    Raises:
        MissingFile: There is no such file.
        CorruptFile: It holds no JSON object.
    """
    if optional and not path.is_file():
        return {}
    value = decode(path)
    if not isinstance(value, dict):
        raise CorruptFile(f"{path}: not a JSON object")
    return value


def decode(path: Path) -> Any:  # noqa: ANN401 (JSON: the caller checks)
    """Whatever JSON value is in a file.

    Raises:
        MissingFile: There is no such file.
        CorruptFile: It holds no JSON.
    """
    try:
        data = path.read_bytes()
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError:
            if not any(word in data for word in (b"NaN", b"Infinity")):
                raise
            return json.loads(data)  # Python writes and reads these numbers, which are not JSON
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing: fetch the model again (vecmill pull) or complete the folder") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptFile(f"{path}: not JSON ({error})") from error


def positive(settings: dict[str, Any], key: str, folder: Path) -> int:
    """A size in the settings of a folder's config.json.

    Raises:
        MissingFile: The key is absent or no positive number.
    """
    value = settings.get(key)
    if not isinstance(value, int) or value <= 0:
        raise MissingFile(f"{folder / 'config.json'}: {key} is {value!r}, a positive number is needed")
    return value


@contextmanager
def settings_of(folder: Path) -> Iterator[None]:
    """Within it, settings of a folder's files are used, any of which may be of a kind that nobody thought of.

    Raises:
        CorruptFile: What was read made Python fail.
    """
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise CorruptFile(f"{folder}: a setting of its files is of the wrong kind ({error!r})") from error


def architectures(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """What config.json says the checkpoint is; a text is one name.

    Raises:
        CorruptFile: It is neither a text nor a list.
    """
    stated = config.get("architectures") or ()
    if not isinstance(stated, str | list | tuple):
        raise CorruptFile(f"{folder / 'config.json'}: architectures is {stated!r}, a list of names is needed")
    return (stated,) if isinstance(stated, str) else tuple(map(str, stated))
