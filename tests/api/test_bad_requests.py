"""POST /v1/embeddings where the caller is wrong: 400, and a message with what is wrong and what is right."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from edge import EMBEDDINGS, JSON, error_of

from conftest import Serve, client_of
from vecmill.engine.fake import FakeEngine
from vecmill.serving.events import Events

NATIVE = {"x-token-vocabulary": "native"}
LONG = "the cat sat on the mat " * 20
KINDS = "send only strings, only token ids or only arrays of token ids"


@pytest.fixture
async def faked(serve: Serve, fake: FakeEngine, events: Events) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that serves "tiny" on the fake engine, which in the end has not been asked."""
    async with client_of([serve(fake)], events) as one:
        yield one
    assert fake.batches == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "input is an empty string; every input needs content"),
        ([], "input is an empty list; at least one input is needed"),
        ([""], "input[0] is an empty string; every input needs content"),
        (["the cat", "", "dog"], "input[1] is an empty string; every input needs content"),
        ([[]], "input[0] is an empty list of token ids; every input needs content"),
        ([[5], []], "input[1] is an empty list of token ids; every input needs content"),
        (None, "input is null; expected str or array"),
        (5, "input is 5; expected str or array"),
        (1.5, "input is 1.5; expected str or array"),
        (True, "input is true; expected str or array"),
        ({"text": "the cat"}, 'input is {"text":"the cat"}; expected str or array'),
        ([None], "input[0] is null; expected int or str or array"),
        (["the cat", None], "input[1] is null; expected int or str or array"),
        ([False], "input[0] is false; expected int or str or array"),
        ([1.5], "input[0] is 1.5; expected int or str or array"),
        ([5, 6.0], "input[1] is 6.0; expected int or str or array"),
        (["a", {"text": "a"}], 'input[1] is {"text":"a"}; expected int or str or array'),
        ([[5, 1.5]], "input[0][1] is 1.5; expected int"),
        ([[5], ["the cat"]], 'input[1][0] is "the cat"; expected int'),
        ([[[5]]], "input[0][0] is [5]; expected int"),
        (["the cat", 5], f"input[1] is a token id, input[0] a string; {KINDS}"),
        ([5, "the cat"], f"input[1] is a string, input[0] a token id; {KINDS}"),
        ([[5], "the cat"], f"input[1] is a string, input[0] an array of token ids; {KINDS}"),
        ([5, [5]], f"input[1] is an array of token ids, input[0] a token id; {KINDS}"),
        ([-1], "input[0][0]: -1 is no token id of the model: they are 0 to 55"),
        ([[5], [6, 56]], "input[1][1]: 56 is no token id of the model: they are 0 to 55"),
        ([2**31], "input[0][0]: 2147483648 is no token id of the model: they are 0 to 55"),
        ([10**30], f"input[0][0]: {10**30} is no token id of the model: they are 0 to 55"),
        (["x"] * 2049, "2049 inputs; a request may hold at most 2048"),
        ([[5]] * 2049, "2049 inputs; a request may hold at most 2048"),
    ],
)
async def test_wrong_inputs(faked: httpx.AsyncClient, given: Any, message: str) -> None:
    """An input of a wrong kind is refused with its place, its value and what is allowed."""
    error = error_of(await faked.post(EMBEDDINGS, json={"input": given}, headers=NATIVE), 400)
    assert error == {"message": message, "type": "invalid_request_error", "param": "input", "code": None}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dimensions", 0, "dimensions is 0; tiny allows 1 to 16"),
        ("dimensions", -8, "dimensions is -8; tiny allows 1 to 16"),
        ("dimensions", 17, "dimensions is 17; tiny allows 1 to 16"),
        ("dimensions", 10**20, f"dimensions is {10**20}; tiny allows 1 to 16"),
        ("dimensions", "8", 'dimensions is "8"; expected int or null'),
        ("dimensions", 8.5, "dimensions is 8.5; expected int or null"),
        ("dimensions", True, "dimensions is true; expected int or null"),
        ("dimensions", [8], "dimensions is [8]; expected int or null"),
        ("encoding_format", "hex", "encoding_format is \"hex\"; allowed: 'float', 'base64'"),
        ("encoding_format", "", "encoding_format is \"\"; allowed: 'float', 'base64'"),
        ("encoding_format", 32, "encoding_format is 32; allowed: 'float', 'base64'"),
        ("model", 5, "model is 5; expected str or null"),
        ("model", ["tiny"], 'model is ["tiny"]; expected str or null'),
        ("user", 5, "user is 5; expected str or null"),
        ("user", 10**30, f"user is {10**30}; expected str or null"),
        ("truncate", "yes", 'truncate is "yes"; expected bool or null'),
        ("truncate", 0, "truncate is 0; expected bool or null"),
        ("prompt_name", "qeury", "prompt_name is 'qeury'; tiny has: passage, query"),
        ("prompt_name", 1, "prompt_name is 1; expected str or null"),
    ],
)
async def test_wrong_fields(faked: httpx.AsyncClient, field: str, value: Any, message: str) -> None:
    """A field with a wrong value is named, with the value and what is allowed."""
    error = error_of(await faked.post(EMBEDDINGS, json={"input": "the cat", field: value}), 400)
    assert error == {"message": message, "type": "invalid_request_error", "param": field, "code": None}


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"", None, "the body is empty; send a JSON object"),
        (b"  ", None, "the body is not valid JSON"),
        (b"hello", None, "the body is not valid JSON"),
        (b"input=hello&model=tiny", None, "the body is not valid JSON"),
        (b"{'input': 'hello'}", None, "object keys must be strings"),
        (b'{"input": "hello"', None, "the body is not valid JSON"),
        (b'{"input": "hel', None, "the body is not valid JSON"),
        (b'{"input": "hello",}', None, "the body is not valid JSON"),
        (b'{"input": "hello"} {}', None, "trailing characters (byte 20)"),
        (b'{"input": NaN}', None, "invalid character (byte 10)"),
        (b'{"input": "a\nb"}', None, "invalid character (byte 12)"),
        (b'\xef\xbb\xbf{"input": "hello"}', None, "invalid character (byte 0)"),
        ('{"input": "hello"}'.encode("utf-16"), None, "invalid character (byte 0)"),
        (b'{"input": "\xff"}', None, "Invalid UTF-8 encoded string"),
        (b'{"input": "caf\xe9"}', None, "Invalid UTF-8 encoded string"),
        (b'{"input": "\\ud800"}', None, "half a surrogate pair"),
        (b'{"input": "hello \\udc00 world"}', None, "half a surrogate pair"),
        (b'{"input": "hello", "user": "\\ud83d"}', None, "half a surrogate pair"),
        (b"[]", None, "Expected `object`, got `array`"),
        (b'["hello"]', None, "Expected `object`, got `array`"),
        (b'"hello"', None, "Expected `object`, got `str`"),
        (b"null", None, "Expected `object`, got `null`"),
        (b"{}", "input", "missing required field `input`"),
        (b'{"inputs": "hello"}', "input", "missing required field `input`"),
        (b"[" * 100_000, None, "Expected `object`, got `array`"),
        (b'{"input": "hello", "x": ' + b"[" * 100_000, None, "nested too deeply"),
        (b'{"input": "hello", "x": ' + b'{"a":' * 100_000, None, "nested too deeply"),
        (b'{"input": ' + b"[" * 100_000, "input", "input[0][0] is wrong: expected int"),
        (b'{"input": {"a":' + b"[" * 100_000, "input", "input is wrong: expected str or array"),
        (b'{"input": 5, "x": [', "input", "input is wrong: expected str or array"),
        (b'{"input": 5, "x": "\\ud800"}', "input", "input is wrong: expected str or array"),
        (b'{"input": [true], "input": "hello"}', "input", "input[0] is "),
        (b'{"input": [' + b"9" * 5000 + b"]}", "input", "integer value out of range"),
        (b'{"input": "hello", "dimensions": ' + b"9" * 5000 + b"}", "dimensions", "integer value out of range"),
        (b'{"input": "hello", "dimensions": 1e999}', "dimensions", "number out of range"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_wrong_json(faked: httpx.AsyncClient, body: bytes, param: str | None, message: str) -> None:
    """A body that is no JSON object of a request is refused with what is wrong with it."""
    error = error_of(await faked.post(EMBEDDINGS, content=body, headers=JSON), 400)
    assert message in error.pop("message")
    assert error == {"type": "invalid_request_error", "param": param, "code": None}


async def test_a_large_wrong_value_is_shown_in_part(faked: httpx.AsyncClient) -> None:
    """A message repeats no more than the beginning of a wrong value."""
    error = error_of(await faked.post(EMBEDDINGS, json={"input": {"text": "the cat " * 100_000}}), 400)
    assert error["message"].startswith('input is {"text":"the cat the cat')
    assert len(error["message"]) < 200


async def test_one_wrong_element_of_very_many(faked: httpx.AsyncClient) -> None:
    """The place of a wrong element is found in a list of a million."""
    body = b'{"input": [' + b"5," * 1_000_000 + b"true]}"
    error = error_of(await faked.post(EMBEDDINGS, content=body, headers=JSON), 400)
    assert error["message"] == "input[1000000] is true; expected int or str or array"


async def test_too_long_where_truncation_is_refused(faked: httpx.AsyncClient) -> None:
    """`truncate: false` refuses the first input beyond the limit by its index, with the limit and OpenAI's code."""
    body = {"input": ["the cat", LONG, LONG], "truncate": False}
    assert error_of(await faked.post(EMBEDDINGS, json=body), 400) == {
        "message": "input[1] has more than 40 tokens, the limit of tiny; shorten it or let it be truncated",
        "type": "invalid_request_error",
        "param": "input",
        "code": "context_length_exceeded",
    }


async def test_an_unknown_token_vocabulary(faked: httpx.AsyncClient) -> None:
    """The header that declares token ids takes four values, which its error lists."""
    reply = await faked.post(EMBEDDINGS, json={"input": [5, 6]}, headers={"x-token-vocabulary": "gpt2"})
    assert error_of(reply, 400)["message"] == (
        "the header x-token-vocabulary is 'gpt2'; allowed: auto, native, cl100k_base, reject"
    )


async def test_token_ids_can_be_rejected(serve: Serve, fake: FakeEngine, events: Events) -> None:
    """A server told to reject token ids says what to send instead, and still takes text."""
    async with client_of([serve(fake, token_ids="reject")], events) as client:
        refused = await client.post(EMBEDDINGS, json={"input": [5, 6]})
        taken = await client.post(EMBEDDINGS, json={"input": "the cat"})
    assert "send text" in error_of(refused, 400)["message"]
    assert taken.status_code == 200
