"""Who may ask, and on which terms."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from edge import EMBEDDINGS, error_of, until

from conftest import Serve, client_of, distinct
from vecmill.api.app import DIALECTS, build
from vecmill.api.callers import Callers
from vecmill.api.keys import read_keys
from vecmill.config import Settings
from vecmill.core import Caller
from vecmill.engine.fake import FakeEngine
from vecmill.errors import BadSettings, InvalidRequest, Unauthorized
from vecmill.serving.events import Event, Events, RequestDone
from vecmill.serving.registry import Registry

TENANTS = """
[search]
keys = ["sk-1", "sk-2"]
weight = 3

[index]
keys = ["sk-3"]
"""


def basic(credentials: str) -> str:
    """What a client sends for http://CREDENTIALS@HOST."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


@pytest.fixture
def tenants(tmp_path: Path) -> Path:
    """A file of two tenants."""
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    return path


def test_without_keys_everybody_may_ask() -> None:
    """A server that wants no key takes whatever clients send as one, and none."""
    callers = Callers(Settings())
    assert callers({}) == callers({"authorization": "Bearer whatever"}) == Caller()


@pytest.mark.parametrize(
    ("headers", "tenant", "share"),
    [
        ({"authorization": "Bearer sk-1"}, "search", 3.0),
        ({"authorization": "bearer  sk-2 "}, "search", 3.0),
        ({"authorization": "sk-3"}, "index", 1.0),
        ({"api-key": "sk-3"}, "index", 1.0),
        ({"x-api-key": "sk-3"}, "index", 1.0),
        ({"authorization": "", "api-key": "sk-3"}, "index", 1.0),
        ({"authorization": "Basic abc", "x-api-key": "sk-1"}, "search", 3.0),
        ({"authorization": basic("weaviate:sk-1")}, "search", 3.0),
        ({"authorization": basic(":sk-3")}, "index", 1.0),
        ({"authorization": basic("sk-3:")}, "index", 1.0),
        ({"authorization": basic("sk-3").replace("Basic", "basic ")}, "index", 1.0),
        ({"authorization": "Bearer main"}, "default", 1.0),
    ],
)
def test_a_key_is_a_tenant(tenants: Path, headers: dict[str, str], tenant: str, share: float) -> None:
    """A key is found wherever clients put it, and says whose request it is and what it weighs."""
    caller = Callers(Settings(tenants=tenants, api_key="main"))(headers)
    assert (caller.tenant, caller.share) == (tenant, share)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"authorization": " "}, {"api-key": ""}])
def test_no_key(tenants: Path, headers: dict[str, str]) -> None:
    """Who sends no key is told where to put it."""
    with pytest.raises(Unauthorized, match="authorization: Bearer KEY|not one of this server's"):
        Callers(Settings(tenants=tenants))(headers)


@pytest.mark.parametrize(
    "value", [basic("sk-1:sk-4"), basic(""), basic(":"), "Basic", "Basic ü", "Basic =", "Basic /w==", basic("a:b:sk-1")]
)
def test_a_wrong_password(tenants: Path, value: str) -> None:
    """A password that is no key, and what is no password, are refused; a user counts only without one."""
    with pytest.raises(Unauthorized):
        Callers(Settings(tenants=tenants))({"authorization": value})


async def test_a_key_in_the_url(serve: Serve, events: Events) -> None:
    """A client that takes only a URL, as Weaviate's inference modules, asks a server with keys by a password in it."""
    body = {"text": "hello", "config": {"task_type": "passage"}}
    async with client_of([serve()], events, api_key="se/cret") as client:
        statuses = [
            (await client.post(f"http://{user}test/vectors", json=body)).status_code
            for user in ("", "weaviate:se%2Fcret@", "weaviate:other@")
        ]
    assert statuses == [401, 200, 401]


@pytest.mark.parametrize("key", ["sk-4", "sk-", "sk-11", "search", "SK-1", "ключ"])
def test_a_wrong_key(tenants: Path, key: str) -> None:
    """A key that is not known is refused, however near it is to one, and is not repeated in the error."""
    with pytest.raises(Unauthorized) as refused:
        Callers(Settings(tenants=tenants))({"authorization": f"Bearer {key}"})
    assert str(refused.value) == "the API key is not one of this server's"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("[search", "no TOML"),
        ("[search]\nkeys = []", "keys"),
        ("[search]\nkeys = ['']", "a key of tenant 'search' is blank"),
        ("[search]\nkeys = ['a', ' ']", "a key of tenant 'search' is blank"),
        ("[search]\nkeys = ['schlüssel']", "a key of tenant 'search' has other characters than printable ASCII"),
        ("", "no tenant; each is a table"),
        ("# [search]", "no tenant; each is a table"),
        ("[search]\nweight = 2", "keys"),
        ("[search]\nkeys = ['a']\nweight = 0", "weight"),
        ("[search]\nkeys = ['a']\nweight = inf", "weight"),
        ("[search]\nkeys = ['a']\nwieght = 2", "wieght"),
        ("[a]\nkeys = ['x']\n[b]\nkeys = ['x']", "tenant 'b' has a key that another tenant has too"),
        ("[a]\nkeys = ['x']\n[b]\nkeys = ['x ']", "tenant 'b' has a key that another tenant has too"),
        ("keys = ['x']", "each is a table"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str, about: str) -> None:
    """Mistakes in the file end the start, and say where they are."""
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    with pytest.raises(BadSettings, match=about):
        Callers(Settings(tenants=path))


@pytest.mark.parametrize("key", ["sk-1\n", " sk-1", "sk-1\r\n"])
def test_space_around_a_key_is_none_of_it(tmp_path: Path, key: str) -> None:
    """A key that was read from a file with its last newline is the key, in the settings and in the tenants' file."""
    path = tmp_path / "tenants.toml"
    path.write_text(f"[search]\nkeys = [{json.dumps(key)}]")
    for settings in (Settings(api_key=key), Settings(tenants=path)):
        assert Callers(settings)({"authorization": "Bearer sk-1"}).tenant
        with pytest.raises(Unauthorized):
            Callers(settings)({})


@pytest.mark.parametrize("key", ["\n", " ", "schlüssel", "ключ", "two\nlines", "nul\0"])
def test_a_key_that_nobody_could_send(key: str) -> None:
    """A blank key does not open the server, and one that headers do not carry ends the start, without being shown."""
    with pytest.raises(BadSettings, match=r"^api_key (is blank|has other characters)") as refused:
        Callers(Settings(api_key=key))
    assert not key.strip() or key not in str(refused.value)


def test_keys_that_were_read_stay(tenants: Path) -> None:
    """Keys that are given are those that count, whatever has become of the file."""
    keys = read_keys(Settings(tenants=tenants))
    tenants.write_text("[search")
    callers = Callers(Settings(tenants=tenants), keys)
    assert callers({"x-api-key": "sk-1"}).tenant == "search"
    assert "sk-" not in repr(keys)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file ends the start."""
    with pytest.raises(BadSettings, match="No such file"):
        Callers(Settings(tenants=tmp_path / "absent.toml"))


def test_keys_are_not_shown(tenants: Path) -> None:
    """Neither the settings nor what is made of them show a key."""
    settings = Settings(tenants=tenants, api_key="main-secret")
    shown = repr(settings) + repr(vars(Callers(settings)))
    assert "main-secret" not in shown
    assert "sk-" not in shown


@pytest.mark.parametrize(
    ("headers", "weight", "timeout_s"),
    [
        ({}, 1.0, 60.0),
        ({"x-priority": "high"}, 4.0, 60.0),
        ({"x-priority": " LOW"}, 0.25, 60.0),
        ({"x-request-timeout": "2.5"}, 1.0, 2.5),
        ({"x-request-timeout": "600"}, 1.0, 60.0),
        ({"x-request-timeout": "inf"}, 1.0, 60.0),
    ],
)
def test_terms(headers: dict[str, str], weight: float, timeout_s: float) -> None:
    """A request may say how urgent it is and how long it waits, no longer than the server lets it."""
    assert Callers(Settings(request_timeout_s=60))(headers) == Caller(weight=weight, timeout_s=timeout_s)


@pytest.mark.parametrize(
    "headers", [{"x-priority": "urgent"}, *({"x-request-timeout": bad} for bad in ("0", "-1", "soon", "nan", ""))]
)
def test_terms_that_make_no_sense(headers: dict[str, str]) -> None:
    """A header that says nothing is refused and named."""
    (name,) = headers
    with pytest.raises(InvalidRequest, match=name):
        Callers(Settings())(headers)


@pytest.fixture
async def keyed(serve: Serve, fake: FakeEngine, events: Events, tenants: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that wants keys."""
    async with client_of([serve(fake)], events, tenants=tenants) as one:
        yield one


async def test_a_refusal_says_so_in_the_dialect(keyed: httpx.AsyncClient) -> None:
    """Every route of every dialect wants the key, and says so with 401 and the dialect's own body."""
    for dialect in DIALECTS:
        for route in dialect.routes:
            for path in route.paths:
                reply = await keyed.request(route.method, path.replace("{", "").replace("}", ""), json={})
                assert reply.status_code == 401, path
                assert reply.headers["www-authenticate"] == "Bearer"
                assert "API key" in reply.text
    error = error_of(await keyed.post(EMBEDDINGS, json={"input": "hello"}), 401)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


async def test_probes_need_no_key(keyed: httpx.AsyncClient) -> None:
    """Probes and scrapers get their answers."""
    for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json"):
        assert (await keyed.get(path)).status_code == 200, path


async def test_what_a_tenant_used_is_counted(keyed: httpx.AsyncClient, events: Events) -> None:
    """Events and metrics tell whose texts they were; who was refused is nobody."""
    told: list[Event] = []
    events.subscribers.append(told.append)
    for key in ("sk-1", "sk-2", "sk-3", "sk-4"):
        await keyed.post(EMBEDDINGS, json={"input": f"hello {key}"}, headers={"api-key": key})
    assert [event.tenant for event in told if isinstance(event, RequestDone)] == ["search", "search", "index", ""]
    page = (await keyed.get("/metrics")).text
    assert 'vecmill_inputs_total{model="tiny",tenant="search"} 2.0' in page
    assert 'vecmill_inputs_total{model="tiny",tenant="index"} 1.0' in page


async def test_tenants_share_by_weight(serve: Serve, fake: FakeEngine, events: Events, tenants: Path) -> None:
    """While both wait, a tenant of weight 3 with one request is served three times as much as one with many."""
    model = serve(fake, batch_tokens=5)
    done: list[str] = []

    async def ask(client: httpx.AsyncClient, key: str, text: str) -> None:
        await client.post(EMBEDDINGS, json={"input": text}, headers={"api-key": key})
        done.append(key)

    async with client_of([model], events, tenants=tenants) as client:
        fake.gate.clear()
        asked = [asyncio.create_task(ask(client, "sk-3", text)) for text in distinct(240)[:200]]
        await until(lambda: model.runner.waiting_items == 199)
        asked += [asyncio.create_task(ask(client, "sk-1", text)) for text in distinct(240)[200:]]
        await until(lambda: model.runner.waiting_items == 239)
        fake.gate.set()
        await asyncio.gather(*asked)
    share = done[: done.index("sk-1") + 40].count("sk-1")
    assert share == pytest.approx(30, abs=4)


async def test_a_request_has_its_time(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """What is not done in its time is answered with 504, told not to be tried again, and gone from the queue."""
    model = serve(fake)
    async with client_of([model], events) as client:
        fake.gate.clear()
        first = asyncio.create_task(client.post(EMBEDDINGS, json={"input": "hello"}))
        await until(lambda: any(lane.items for lane in model.runner._lanes))
        late = await client.post(EMBEDDINGS, json={"input": distinct(9)}, headers={"x-request-timeout": "0.05"})
        assert error_of(late, 504)["code"] == "timeout"
        assert late.headers["x-should-retry"] == "false"
        assert model.runner.waiting_items == 0
        fake.gate.set()
        assert (await first).status_code == 200


async def test_the_server_bounds_all(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """The setting holds for requests that say nothing."""
    async with client_of([serve(fake)], events, request_timeout_s=0.05) as client:
        fake.gate.clear()
        assert (await client.post(EMBEDDINGS, json={"input": "hello"})).status_code == 504


def test_a_bad_file_ends_the_start(tmp_path: Path) -> None:
    """The application is not made where the file makes no sense."""
    with pytest.raises(BadSettings):
        build(Registry([]), Settings(tenants=tmp_path / "absent"), Events())
