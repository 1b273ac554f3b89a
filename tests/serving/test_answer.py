"""Questions of every kind."""

import asyncio

import pytest

from conftest import Serve
from vecmill.asks import (
    ByTask,
    Detokenized,
    DetokenizeRequest,
    InfoRequest,
    ListRequest,
    ModelInfo,
    Several,
    Tokenized,
    TokenizeRequest,
)
from vecmill.core import Request, Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import EmptyInput, InvalidRequest, TooManyInputs, UnknownModel, WrongTask
from vecmill.serving.answer import answer
from vecmill.serving.registry import Registry


@pytest.fixture
def registry(serve: Serve, fake: FakeEngine) -> Registry:
    """Serves "tiny" on the fake engine, 10 inputs a request."""
    registry = Registry(["tiny"])
    registry.add(serve(fake, max_inputs=10))
    return registry


async def test_tokens_and_back(registry: Registry) -> None:
    """A text's tokens, with their places, spell the text again."""
    found = await answer(TokenizeRequest(model=None, texts=["the cats [SEP]"]), registry)
    assert isinstance(found, Tokenized)
    (pieces,) = found.pieces
    assert [(one.token, one.special, one.span) for one in pieces] == [
        ("[CLS]", True, None),
        ("the", False, (0, 3)),
        ("cat", False, (4, 7)),
        ("##s", False, (7, 8)),
        ("[SEP]", False, (9, 14)),
        ("[SEP]", True, None),
    ]
    back = await answer(DetokenizeRequest(model=None, arrays=[[one.id for one in pieces]]), registry)
    assert isinstance(back, Detokenized)
    assert back.texts == ["the cat ##s"]


async def test_nothing_is_cut_when_tokens_are_shown(registry: Registry) -> None:
    """A text beyond the model's limit shows all its tokens."""
    found = await answer(TokenizeRequest(model=None, texts=["the cat " * 100], special=False), registry)
    assert isinstance(found, Tokenized)
    assert (len(found.pieces[0]), found.max_tokens) == (200, 40)


async def test_where_one_fails_the_others_are_not_computed(fake: FakeEngine, registry: Registry) -> None:
    """Of several questions none goes on when one has failed: nobody waits for it."""
    fake.gate.clear()
    held = asyncio.ensure_future(answer(Request(model=None, inputs=["the"]), registry))
    await asyncio.sleep(0.01)
    with pytest.raises(EmptyInput):
        await answer(Several([Request(model=None, inputs=["the cat"]), Request(model=None, inputs=[""])]), registry)
    await asyncio.sleep(0.01)
    assert registry.get(None).runner.waiting_items == 0
    fake.gate.set()
    await held
    assert len(fake.batches) == 1


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (TokenizeRequest(model=None, texts=[]), EmptyInput),
        (TokenizeRequest(model=None, texts=["a"] * 11), TooManyInputs),
        (TokenizeRequest(model=None, texts=["a"], prompt_name="nope"), InvalidRequest),
        (DetokenizeRequest(model=None, arrays=[[-1]]), InvalidRequest),
        (DetokenizeRequest(model=None, arrays=[[2**70]]), InvalidRequest),
        (DetokenizeRequest(model=None, arrays=[[]]), EmptyInput),
        (InfoRequest(model="other"), UnknownModel),
        (ByTask(model=None, readings={"rerank": lambda: Request(model=None, inputs=["a"])}), WrongTask),
    ],
)
async def test_what_is_wrong_is_said(registry: Registry, ask: TokenizeRequest, error: type[Exception]) -> None:
    """A wrong question of any kind is an error of the caller."""
    with pytest.raises(error):
        await answer(ask, registry)


async def test_what_a_model_is(registry: Registry) -> None:
    """The list of models holds what a question for one of them gets."""
    (one,) = await answer(ListRequest(), registry)  # type: ignore[misc]  # a list
    assert one == await answer(InfoRequest(model="tiny"), registry)
    assert isinstance(one, ModelInfo)
    assert (one.task, one.outputs, one.dims, one.max_inputs) == ("embed", ("dense", "multi"), 16, 10)


async def test_the_models_own_task(registry: Registry) -> None:
    """A question by task, and one that wants nothing in particular, is what the model is for."""
    ask = ByTask(model=None, readings={"embed": lambda: Request(model=None, inputs=["a"], outputs=())})
    found = await answer(ask, registry)
    assert isinstance(found, Result)
    assert found.rows.shape == (1, 16)


async def test_one_failure_ends_them_all(registry: Registry, fake: FakeEngine) -> None:
    """Of several questions the first error is the answer, and what still waits is dropped from the queue."""
    (model,) = registry
    fake.gate.clear()
    good, bad = Request(model=None, inputs=["a"] * 10), Request(model=None, inputs=[""])
    with pytest.raises(EmptyInput):
        await answer(Several([good, good, bad]), registry)
    async with asyncio.timeout(10):
        while model.runner.waiting_items:
            await asyncio.sleep(0)
    fake.gate.set()
