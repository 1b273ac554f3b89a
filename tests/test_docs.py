"""The documentation says what is so."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from vecmill import __version__
from vecmill.api.admin import PAGES
from vecmill.api.app import DIALECTS
from vecmill.api.dialect import Dialect
from vecmill.api.dialects.openai import OPENAI, STATUSES, EmbeddingsBody
from vecmill.api.grpc.rpcs import RPCS
from vecmill.api.grpc.statuses import CODES
from vecmill.api.metrics import Metrics
from vecmill.api.probes import PROBES
from vecmill.config import DEFAULT_MODEL, Settings
from vecmill.graph.build import FAMILIES
from vecmill.serving.registry import Registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
API = (ROOT / "docs/api.md").read_text()
PAGE = (ROOT / "docs/dialects.md").read_text()
CONFIGURATION = (ROOT / "docs/configuration.md").read_text()
DIALECT_TABLE = (ROOT / "docs/dialects.md").read_text()


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_every_setting_is_documented(name: str) -> None:
    """A setting has a row with its flag, its variable and its default."""
    (row,) = [line for line in CONFIGURATION.splitlines() if line.startswith(f"| `{name}` |")]
    default = getattr(Settings(), name)
    assert f"`--{name.replace('_', '-')}`" in row
    assert f"`VECMILL_{name.upper()}`" in row
    assert f"`{default}`" in row or default in {None, "", ()}


def test_every_architecture_is_documented() -> None:
    """Each family stands in the table of models."""
    models = (ROOT / "docs/models.md").read_text()
    assert [family for family in FAMILIES if f"`{family}`" not in models] == []


def test_every_page_is_documented() -> None:
    """Each path of OpenAI's dialect and each that belongs to none stands in the table of routes."""
    paths = [path for route in OPENAI.routes for path in route.paths] + [*PAGES, *PROBES]
    assert [path for path in paths if f" {path}`" not in API] == []


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_route_is_documented_with_its_proof(dialect: Dialect) -> None:
    """Each route has a row with its paths and a golden file that asks one of them and is answered."""
    for route in dialect.routes:
        paths = ", ".join(f"`{path}`" for path in route.paths).replace("`", f"`{route.method} ", 1)
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {dialect.name} | {paths} | ")]
        assert f"| {route.summary} |" in row
        (file,) = re.findall(r"\]\(\.\./(tests/api/golden/\S+\.json)\)", row)
        golden = json.loads((ROOT / file).read_text())
        method, path = golden.get("ask", "POST /v1/embeddings").split()
        assert (golden["status"], method) == (200, route.method)
        assert path.split("?")[0] in route.paths


@pytest.mark.parametrize("group", ["services", "frameworks", "generated", "node"])
def test_every_tested_client_is_documented(group: str) -> None:
    """Each library that `make test-clients` asks with has a row with its version and the file that holds its proof."""
    pins = (ROOT / f"tests/clients/requirements-{group}.txt").read_text().split("\n\n")[0].splitlines()
    proof = f"tests/clients/of_{'services' if group == 'node' else group}.py"
    for pin in pins:
        library, version = re.split("==|@", pin)
        name = f"{library} (Node)" if group == "node" else library
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} | {version} | ")]
        assert f"](../{proof})" in row


def test_every_field_is_documented() -> None:
    """Each field of a request has its row."""
    assert [name for name in EmbeddingsBody.__struct_fields__ if f"| `{name}` |" not in API] == []


def test_every_error_is_documented() -> None:
    """Each status has a row with its code."""
    rows = {(status, code) for status, _, code in STATUSES.values() if code}
    assert [row for row in rows if f"| {row[0]} | `{row[1]}` |" not in API] == []


def test_every_rpc_is_documented() -> None:
    """Each rpc has a row with its service and the route that asks the same."""
    for rpc in RPCS:
        (row,) = [
            line for line in PAGE.splitlines() if line.startswith(f"| `{rpc.service}` |") and f"`{rpc.name}`" in line
        ]
        assert any(f"`{rpc.route.method} {path}`" in row for path in rpc.route.paths)


def test_every_code_is_documented() -> None:
    """Each code of gRPC has a row."""
    assert [code.name for code in CODES.values() if f"| `{code.name}` |" not in API] == []


def test_every_metric_is_documented() -> None:
    """Each metric of ours stands in the table."""
    text = Metrics(Registry(["one"])).text().decode()
    names = set(re.findall(r"^# TYPE (vecmill_\w+?)(?:_created)? ", text, re.MULTILINE))
    assert names
    assert [name for name in sorted(names) if f"`{name}`" not in API] == []


def test_the_changelog_knows_the_version() -> None:
    """The version of the package heads the changelog."""
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading
    assert heading[1] == __version__


def test_the_readme_begins_with_two_commands() -> None:
    """A new user finds how to serve and how to test before anything else."""
    assert re.findall(r"^    (make \w+)$", README, re.MULTILINE) == ["make serve", "make test"]
    assert README.index("make test") < 200
    assert DEFAULT_MODEL in README


def test_links_lead_somewhere() -> None:
    """Every relative link of a page exists."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.model
def test_the_readmes_python_runs(minilm_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The in-process example prints what one expects of it."""
    assert minilm_folder.is_dir()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Embedder" in block]
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 (our own page)
    assert capsys.readouterr().out == "(3, 384) True\n"
