"""Where settings come from: default < file < environment < flag; and what is no setting."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vecmill import cli
from vecmill.config import Settings
from vecmill.errors import StartError

Complaint = Callable[..., str]

FILE = "max_inputs = -1\n"
VARIABLE = {"VECMILL_MAX_INPUTS": "-2"}
FLAG = ["--max-inputs", "-3"]


@pytest.fixture
def complaint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complaint:
    """Runs a command in this process; the one line that it ends with: `complaint(arguments, variables, code)`."""

    def run(arguments: list[str], variables: dict[str, str] | None = None, code: int = 1) -> str:
        monkeypatch.setattr(cli.app, "config", cli.app.config)
        monkeypatch.setattr(sys, "argv", ["vecmill", *arguments])
        monkeypatch.setattr(os, "_exit", sys.exit)  # `serve` ends its process without unwinding threads
        ours = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
        monkeypatch.setattr(os, "environ", ours | (variables or {}))
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert (end.value.code, printed.out) == (code, "")
        assert line.startswith("vecmill: ")
        return line.removeprefix("vecmill: ")

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file with a number that the start will complain of."""
    path = tmp_path / "settings.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("with_file", "variables", "flags", "winner"),
    [
        (True, {}, [], -1),
        (True, VARIABLE, [], -2),
        (True, {}, FLAG, -3),
        (True, VARIABLE, FLAG, -3),
        (False, VARIABLE, [], -2),
        (False, VARIABLE, FLAG, -3),
    ],
)
def test_who_wins(
    complaint: Complaint, file: Path, with_file: bool, variables: dict[str, str], flags: list[str], winner: int
) -> None:
    """A flag wins over the environment, the environment over the file, the file over the default."""
    config = ["--config", str(file)] if with_file else []
    assert complaint(["serve", *config, *flags], variables) == f"max_inputs is {winner}; the least is 1"


def test_the_default_is_last(complaint: Complaint, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no source names has its default, the model too."""

    def serve(references: list[str], settings: Settings) -> bool:
        raise StartError(f"{references} {settings == Settings(port=9000)}")

    monkeypatch.setattr("vecmill.api.server.serve", serve)
    monkeypatch.setattr("vecmill.api.log.configure_logging", lambda _: None)
    assert complaint(["serve", "--port", "9000"]) == "['sentence-transformers/all-MiniLM-L6-v2'] True"


@pytest.mark.parametrize(
    ("variables", "flags", "line"),
    [
        ({"AIP_HTTP_PORT": "-4"}, [], "port is -4; the least is 0"),
        ({"AIP_HTTP_PORT": "-4", "VECMILL_PORT": "-2"}, [], "port is -2; the least is 0"),
        ({"AIP_HTTP_PORT": "-4", "VECMILL_PORT": "-2"}, ["--port", "-3"], "port is -3; the least is 0"),
        (
            {"AIP_PREDICT_ROUTE": "predict"},
            ["--port", "0"],
            "predict_route is 'predict'; a path is needed, as /predict",
        ),
        ({"AIP_HEALTH_ROUTE": "/{x}"}, ["--port", "0"], "health_route is '/{x}'; a path is needed, as /predict"),
    ],
)
def test_a_platforms_variables_are_settings(
    complaint: Complaint, file: Path, variables: dict[str, str], flags: list[str], line: str
) -> None:
    """Vertex AI's variables win over the file, and ours and flags over them."""
    file.write_text("port = -1\n")
    assert complaint(["serve", "--config", str(file), *flags], variables) == line


@pytest.mark.parametrize(
    ("variables", "flags", "line"),
    [
        ({}, ["--max-batch-tokens", "0"], "batch_tokens is 0; the least is 1"),
        ({}, ["--max-client-batch-size=0"], "max_inputs is 0; the least is 1"),
        ({}, ["--batch-size", "-1"], "batch_inputs is -1; the least is 0"),
        ({}, ["--max-batch-requests", "-1"], "batch_inputs is -1; the least is 0"),
        ({}, ["--max-concurrent-requests", "-1"], "max_queue_inputs is -1; the least is 0"),
        ({}, ["--payload-limit", "1"], "max_body_bytes is 1; the least is 1024"),
        (
            {},
            ["--cors-allow-origin", "*", "--cors-allow-origin", "here"],
            "cors_origin is 'here'; an origin is needed, as https://app.example.com, or *",
        ),
        ({"MAX_BATCH_TOKENS": "0"}, [], "batch_tokens is 0; the least is 1"),
        ({"MAX_BATCH_TOKENS": "0", "VECMILL_BATCH_TOKENS": "-3"}, [], "batch_tokens is -3; the least is 1"),
        ({"INFINITY_BATCH_SIZE": "-1"}, [], "batch_inputs is -1; the least is 0"),
        ({"INFINITY_QUEUE_SIZE": "-1"}, [], "max_queue_inputs is -1; the least is 0"),
        ({"INFINITY_MAX_CLIENT_BATCH_SIZE": "0"}, [], "max_inputs is 0; the least is 1"),
        (
            {"CORS_ALLOW_ORIGIN": "here"},
            [],
            "cors_origin is 'here'; an origin is needed, as https://app.example.com, or *",
        ),
    ],
)
def test_other_servers_names_are_settings(
    complaint: Complaint, variables: dict[str, str], flags: list[str], line: str
) -> None:
    """What Text Embeddings Inference and Infinity call a limit, as a flag or a variable, is that limit here."""
    assert complaint(["serve", *flags], variables) == line


def test_a_platforms_variables_do_not_disturb(complaint: Complaint) -> None:
    """A command that does not know the setting takes no notice."""
    assert complaint(["pull", "./m"], {"AIP_HTTP_PORT": "8080"}) == "no folder ./m"


def test_the_file_may_come_from_the_environment(complaint: Complaint, file: Path) -> None:
    """VECMILL_CONFIG stands for --config."""
    assert complaint(["serve"], {"VECMILL_CONFIG": str(file)}) == "max_inputs is -1; the least is 1"


def test_models_come_from_everywhere(complaint: Complaint, file: Path) -> None:
    """The models, too, are taken from the command line, else from the environment, else from the file."""
    file.write_text('models = ["./from file", "./second"]\n')
    variables = {"VECMILL_MODELS": "./from-variable ./second"}
    config = ["--config", str(file)]
    assert complaint(["pull", *config]) == "no folder ./from file"
    assert complaint(["pull", *config], variables) == "no folder ./from-variable"
    assert complaint(["pull", "./given", *config], variables) == "no folder ./given"


def test_one_file_serves_every_command(complaint: Complaint, file: Path) -> None:
    """A file with settings of `serve` does not disturb `pull`."""
    assert complaint(["pull", "./m", "--config", str(file)]) == "no folder ./m"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("porte = 1", "porte is no setting; did you mean port?"),
        ("max-input = 1", "max-input is no setting; did you mean max_inputs?"),
        ("[serve]\nport = 1", "serve is no setting"),
        ("port = = 1", "no TOML: Invalid value (at line 1, column 8)"),
        ('models = "./m"', "models is './m'; a list of strings is needed"),
        ("models = [1]", "models is [1]; a list of strings is needed"),
    ],
)
def test_a_bad_file(complaint: Complaint, file: Path, content: str, line: str) -> None:
    """A file with a key that is no setting, or that is no TOML, is named with its fault."""
    file.write_text(content)
    assert complaint(["serve", "--config", str(file)]) == f"--config {file}: {line}"


def test_keys_may_be_spelt_like_flags(complaint: Complaint, file: Path) -> None:
    """A key of the file may have the hyphens of its flag."""
    file.write_text("max-inputs = -1\n")
    assert complaint(["serve", "--config", str(file)]) == "max_inputs is -1; the least is 1"


def test_no_such_file(complaint: Complaint, tmp_path: Path) -> None:
    """A settings file that is not there is an error, not a default."""
    missing = tmp_path / "missing.toml"
    assert complaint(["serve", "--config", str(missing)]) == f"--config {missing}: no such file"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("VECMILL_PROT", "VECMILL_PROT is no setting; did you mean VECMILL_PORT?"),
        ("VECMILL_MAX_INPUT", "VECMILL_MAX_INPUT is no setting; did you mean VECMILL_MAX_INPUTS?"),
        ("VECMILL_MODEL", "VECMILL_MODEL is no setting; did you mean VECMILL_MODELS?"),
        ("VECMILL_QQQQ", "VECMILL_QQQQ is no setting"),
    ],
)
def test_a_variable_that_is_none(complaint: Complaint, name: str, line: str) -> None:
    """A variable that looks like ours and is not is an error with the nearest name, if one is near."""
    assert complaint(["serve"], {name: "1"}) == line


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--porte", "1"], "Unknown option: --porte. Did you mean --port?"),
        (["--port", "http"], 'Invalid value for --port: unable to convert "http" into int.'),
        (["--log-level", "loud"], 'Invalid value "loud" for --log-level. Choose from: '),
    ],
)
def test_a_wrong_flag(complaint: Complaint, flags: list[str], line: str) -> None:
    """A flag that does not exist or cannot be read is a usage error, in one line and with exit code 2."""
    assert complaint(["serve", *flags], code=2).startswith(line)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--port", "-1"], "port is -1; the least is 0"),
        (["--batch-tokens", "0"], "batch_tokens is 0; the least is 1"),
        (["--max-body-bytes", "10"], "max_body_bytes is 10; the least is 1024"),
        (["--drain-timeout-s", "nan"], "drain_timeout_s is nan; a finite number is needed"),
        (["--drain-timeout-s", "inf"], "drain_timeout_s is inf; a finite number is needed"),
    ],
)
def test_a_bad_number(complaint: Complaint, flags: list[str], line: str) -> None:
    """A number out of range is named with its value and what is allowed."""
    assert complaint(["serve", *flags]) == line


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--device", "tpu"], "device is 'tpu'; allowed are auto, cpu, cuda, cuda:0, cuda:1 ..., mps"),
        (["--device", "cuda:x"], "device is 'cuda:x'; allowed are auto, cpu, cuda, cuda:0, cuda:1 ..., mps"),
        (
            ["--device", "cuda", "--engine", "onnx"],
            "device is 'cuda'; the onnx engine computes on the CPU, torch elsewhere",
        ),
    ],
)
def test_a_bad_device(complaint: Complaint, flags: list[str], line: str) -> None:
    """A device that there is not, and one that the engine asked for cannot use, are refused instead of left aside."""
    assert complaint(["serve", *flags]) == line
