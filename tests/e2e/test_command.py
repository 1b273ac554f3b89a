"""`vecmill` as people start it: the banner, the version, several models."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from running import Running, finished, running

from checkpoints import write_bert

BANNER = """\
vecmill 0.1.0 is ready on {url} (documentation: {url}/docs)

  tiny: 16 dimensions, up to 40 tokens, mean, normalized, float32
  bare: 16 dimensions, up to 30 tokens, mean, float32

  curl {url}/v1/embeddings -H 'content-type: application/json' -d '{{"model": "tiny", "input": "hello world"}}'
"""


@pytest.fixture(scope="module")
def server(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with two different models."""
    bare = write_bert(tmp_path_factory.mktemp("bare"), seed=1, max_position_embeddings=30)
    with running(f"tiny={tiny_folder}", f"bare={bare}") as one:
        yield one


def ask(url: str, model: str) -> list[float]:
    """A vector."""
    reply = httpx.post(f"{url}/v1/embeddings", json={"model": model, "input": "hello world"})
    assert reply.status_code == 200
    vector: list[float] = reply.json()["data"][0]["embedding"]
    return vector


def test_the_banner_says_what_is_served(server: Running) -> None:
    """The banner names the address, each model with its dimensions, limit and pooling, and a line to try it."""
    assert server.url.startswith("http://127.0.0.1:")
    assert server.banner == BANNER.format(url=server.url)


def test_the_banners_line_works(server: Running) -> None:
    """The line of the banner, pasted into a shell, gives a vector."""
    words = shlex.split(server.banner.splitlines()[-1])
    curl = shutil.which("curl")
    if curl:
        text = subprocess.run([curl, "-sS", *words[1:]], capture_output=True, text=True, check=True).stdout
    else:
        name, _, value = words[3].partition(": ")
        text = httpx.post(words[1], content=words[5], headers={name: value}).text
    answer = httpx.Response(200, text=text).json()
    assert len(answer["data"][0]["embedding"]) == 16
    assert answer["usage"]["total_tokens"] == 4


def test_each_model_answers_under_its_name(server: Running) -> None:
    """`model` chooses between models whose vectors differ, and each is what it was alone."""
    tiny, bare = ask(server.url, "tiny"), ask(server.url, "bare")
    assert sum(number**2 for number in tiny) == pytest.approx(1, abs=1e-5)
    assert tiny != bare
    assert (ask(server.url, "tiny"), ask(server.url, "bare")) == (tiny, bare)


def test_it_is_ready_when_it_says_so(server: Running) -> None:
    """After the banner the server is ready, and the limits are the defaults."""
    assert httpx.get(f"{server.url}/ready").json() == {"ready": True, "models": {"tiny": "ready", "bare": "ready"}}
    assert httpx.get(f"{server.url}/v1/models").json()["data"][0]["max_inputs"] == 2048


def test_the_documentation_is_served(server: Running) -> None:
    """/docs and what it fetches are there."""
    for path in ("docs", "openapi.json", "v1/models"):
        assert httpx.get(f"{server.url}/{path}").status_code == 200


def test_the_version() -> None:
    """`python -m vecmill --version` prints the version and nothing else."""
    done = finished("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.1.0\n", "")


@pytest.mark.parametrize("command", ["serve", "pull"])
def test_help_names_every_flag_with_its_variable(command: str) -> None:
    """`--help` tells the flags and the environment variables that stand for them."""
    done = finished(command, "--help")
    assert done.returncode == 0
    for word in ("--config", "VECMILL_CONFIG", "--offline", "VECMILL_OFFLINE", "VECMILL_MODELS"):
        assert word in done.stdout


def test_pull_says_where(tiny_folder: Path) -> None:
    """`vecmill pull` prints name, revision and folder of each model."""
    done = finished("pull", f"mine={tiny_folder}")
    assert (done.returncode, done.stdout) == (0, f"mine local {tiny_folder}\n")
