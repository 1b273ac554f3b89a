"""Where settings come from: default < file < environment < flag."""

from pathlib import Path
from typing import Any, get_args

import pytest

from conftest import Complaint
from vecmill.config import Precision, Settings
from vecmill.errors import StartError

FILE = "max_inputs = -1\n"
VARIABLE = {"VECMILL_MAX_INPUTS": "-2"}
FLAG = ["--max-inputs", "-3"]


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


SERVICES = {
    f"VECMILL_{name}{end}": value
    for name in ("", "GRPC_", "CONFIG_", "MY_SEARCH_")
    for end, value in {
        "SERVICE_HOST": "10.96.0.7",
        "SERVICE_PORT": "8080",
        "SERVICE_PORT_HTTP": "8080",
        "PORT": "tcp://10.96.0.7:8080",
        "PORT_8080_TCP": "tcp://10.96.0.7:8080",
        "PORT_8080_TCP_PROTO": "tcp",
        "PORT_8080_TCP_PORT": "8080",
        "PORT_8080_TCP_ADDR": "10.96.0.7",
    }.items()
}
"""What a pod of Kubernetes finds where Services are named vecmill, vecmill-grpc, vecmill-config and so on."""


def test_a_service_of_our_name_does_not_disturb(complaint: Complaint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes' variables for Services are no settings, and hide none; what only looks like them is refused."""

    def serve(_: list[str], settings: Settings) -> bool:
        raise StartError(str(settings == Settings()))

    monkeypatch.setattr("vecmill.api.server.serve", serve)
    monkeypatch.setattr("vecmill.api.log.configure_logging", lambda _: None)
    assert complaint(["serve"], SERVICES) == "True"
    assert complaint(["serve"], SERVICES | {"VECMILL_PORT": "-1"}) == "port is -1; the least is 0"
    assert complaint(["serve"], {"VECMILL_PORT": "http"}, code=2).startswith("Invalid value for VECMILL_PORT")
    assert complaint(["serve"], {"VECMILL_SERVICE_HOSTS": "x"}) == "VECMILL_SERVICE_HOSTS is no setting"


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
    for command in ("doctor", "verify"):  # these take one
        assert complaint([command, *config]) == "no folder ./from file"
        assert complaint([command, *config], variables) == "no folder ./from-variable"
        assert complaint([command, "./given", *config], variables) == "no folder ./given"


@pytest.mark.parametrize("command", ["pull", "doctor", "verify"])
@pytest.mark.parametrize("precision", get_args(Precision))
def test_one_file_serves_every_command(complaint: Complaint, file: Path, command: str, precision: str) -> None:
    """A file with settings of `serve` does not disturb the other commands, nor do variables."""
    file.write_text(f'port = -1\nprecision = "{precision}"\n')
    assert complaint([command, "./m", "--config", str(file)]) == "no folder ./m"
    assert complaint([command, "./m"], {"VECMILL_PRECISION": precision, "VECMILL_PORT": "-1"}) == "no folder ./m"


@pytest.mark.parametrize(
    ("precision", "tried", "measured"),
    [("float32", "float32", []), ("int8", "int8", ["int8"]), ("gptq", "int4", ["int4"])],
)
def test_a_precision_of_serve_is_tried(
    complaint: Complaint, monkeypatch: pytest.MonkeyPatch, precision: str, tried: str, measured: list[str]
) -> None:
    """`doctor` tries the precision that is served, by whatever name; `verify` measures it, and all beside float32."""

    def told(*arguments: Any, **named: Any) -> None:
        raise StartError(f"{named.get('precision', arguments[1])}")

    monkeypatch.setattr("vecmill.doctor.examine", told)
    monkeypatch.setattr("vecmill.verify.verify", told)
    assert complaint(["doctor", "./m"], {"VECMILL_PRECISION": precision}) == tried
    assert complaint(["verify", "./m"], {"VECMILL_PRECISION": precision}) == str(measured)
