"""JSON files of a checkpoint, with errors that name them."""

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
        return msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing: fetch the model again (vecmill pull) or complete the folder") from error
    except msgspec.DecodeError as error:
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
