"""What is no setting, or none that makes sense, is refused in one line."""

from pathlib import Path
from typing import Any

import pytest

from conftest import Complaint


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a settings file goes."""
    return tmp_path / "settings.toml"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("porte = 1", "porte is no setting; did you mean port?"),
        ("max-input = 1", "max-input is no setting; did you mean max_inputs?"),
        ("[serve]\nport = 1", "serve is no setting"),
        ("port = = 1", "no TOML: Invalid value (at line 1, column 8)"),
        ('models = "./m"', "models is './m'; a list of strings is needed"),
        ("models = [1]", "models is [1]; a list of strings is needed"),
        (
            '[tenants.search]\nkeys = ["sk-1"]',
            "tenants is a table; it is the path of a file, which holds the tables of the tenants",
        ),
        (
            '[[tenants]]\nkeys = ["sk-1"]',
            "tenants is a table; it is the path of a file, which holds the tables of the tenants",
        ),
        ('[api_key]\nmain = "k1"', "api_key is a table; a string is needed"),
        ('api-key = ["k1", "k2"]', "api_key is a list; a string is needed"),
        ("api_key = 5", "api_key is no string; a string is needed"),
        ("host = {}", "host is a table; a string is needed"),
        ("max_inputs = {a = 1}", "max_inputs is a table; a whole number is needed"),
        ("threads = true", "threads is True; a whole number is needed"),
        ("max_wait_s = [1]", "max_wait_s is [1]; a number is needed"),
        ("offline = 1", "offline is 1; a truth value is needed"),
        ("cors_origin = [{a = 1}]", "cors_origin is [{'a': 1}]; a list of strings is needed"),
    ],
)
def test_a_bad_file(complaint: Complaint, file: Path, content: str, line: str) -> None:
    """A file with a key that is no setting, or that is no TOML, is named with its fault."""
    file.write_text(content)
    assert complaint(["serve", "--config", str(file)]) == f"--config {file}: {line}"


def test_a_file_that_cannot_be_read(complaint: Complaint, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the system does not give is named with what the system says."""

    def read_text(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    file.touch()
    monkeypatch.setattr(Path, "read_text", read_text)
    assert complaint(["serve", "--config", str(file)]) == f"--config {file}: Permission denied"


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
        (["--host", ""], "host is ''; an address is needed, as 127.0.0.1, or 0.0.0.0 for all"),
    ],
)
def test_a_bad_number(complaint: Complaint, flags: list[str], line: str) -> None:
    """A number out of range is named with its value and what is allowed."""
    assert complaint(["serve", *flags]) == line


@pytest.mark.parametrize(
    ("flags", "variables", "line"),
    [
        (["--threads", "1.5"], {}, "--threads: unable to"),
        (["--grpc-port", "7.2"], {}, "--grpc-port: unable to"),
        (["--max-client-batch-size=2.9"], {}, "--max-inputs: unable to"),
        ([], {"VECMILL_WORKERS": "1.9"}, "VECMILL_WORKERS from env: unable to"),
        ([], {"MAX_BATCH_TOKENS": "99.5"}, "[batch_tokens] from environment: unable to"),
    ],
)
def test_a_fraction(complaint: Complaint, file: Path, flags: list[str], variables: dict[str, str], line: str) -> None:
    """A fraction where a whole number is needed is refused and not rounded, wherever it comes from."""
    assert complaint(["serve", *flags], variables, code=2).startswith(f"Invalid value for {line}")
    file.write_text("threads = 1.5")
    for command in ("serve", "doctor", "verify"):
        told = complaint([command, "--config", str(file)], code=2)
        assert told == f'Invalid value for [threads] from {file}: unable to convert "1.5" into int.'


def test_a_whole_number_may_have_a_point(complaint: Complaint) -> None:
    """A number that loses nothing is taken."""
    assert complaint(["serve", "--port", "-4.0"]) == "port is -4; the least is 0"


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
