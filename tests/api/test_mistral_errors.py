"""What Mistral's API says of each error, by which its clients choose what to do."""

import json

import pytest

from vecmill import errors
from vecmill.api.dialects.mistral import MISTRAL

ROWS: list[tuple[errors.VecmillError, int, str, str | None]] = [
    (errors.Overloaded("full", retry_after_s=1.0), 429, "rate_limited", "1300"),
    (errors.Unauthorized("no key"), 401, "authentication_error", None),
    (errors.UnknownModel("m", ["tiny"]), 400, "invalid_model", "1500"),
    (errors.WrongTask("m", "vectors", ["scores"]), 400, "invalid_model", "1500"),
    (errors.TooManyInputs(5, 4), 400, "invalid_request_prompt", "3210"),
    (errors.InputTooLong("long"), 400, "invalid_request_prompt", "3210"),
    (errors.NotJson("no JSON"), 400, "invalid_request_error", None),
    (errors.UnsupportedMediaType("no JSON"), 415, "invalid_request_error", None),
    (errors.BodyTooLarge("large"), 413, "invalid_request_error", None),
    (errors.EngineFailed("failed"), 500, "server_error", None),
    (errors.ShuttingDown("draining"), 503, "server_error", None),
    (errors.TimedOut("late"), 504, "server_error", None),
]


@pytest.mark.parametrize(("error", "status", "kind", "code"), ROWS, ids=lambda one: type(one).__name__)
def test_an_error_in_mistrals_words(error: errors.VecmillError, status: int, kind: str, code: str | None) -> None:
    """Status, type and code are those of Mistral's API, and the body repeats the status."""
    reply = MISTRAL.render_error(error)
    body = json.loads(reply.body)
    assert (reply.status, body["type"], body["code"], body["raw_status_code"]) == (status, kind, code, status)
    assert (body["object"], body["message"]) == ("error", str(error))


@pytest.mark.parametrize(("param", "place"), [("input", ["body", "input"]), (None, ["body"])])
def test_a_field_that_is_wrong(param: str | None, place: list[str]) -> None:
    """What is wrong with a field is a list of problems in place of a line, as pydantic has it."""
    reply = MISTRAL.render_error(errors.InvalidRequest("it is wrong", param=param))
    assert reply.status == 422
    problem = {"type": "value_error", "loc": place, "msg": "it is wrong"}
    assert json.loads(reply.body)["message"] == {"detail": [problem]}
