"""A request's whole way, without HTTP."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from checkpoints import VOCABULARY
from conftest import Serve
from vecmill.core import Options, Request, Result
from vecmill.engine.fake import FakeEngine
from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.serving.prepared import INLINE_CHARS
from vecmill.serving.served import ServedModel

LONG = "the cat sat on the mat " * 20


def ask(model: ServedModel, *inputs: Any, **options: Any) -> Result:
    """Compute on this thread."""
    return model.compute(Request(model=model.name, inputs=list(inputs), options=Options(**options)))


def test_rows_follow_the_inputs(serve: Serve) -> None:
    """A row is its input's, whatever its mates and its place."""
    model = serve()
    texts = ["the cat", "a dog sat on the mat", "hello", "the cat", "walk"]
    rows = ask(model, *texts).rows
    alone = np.concatenate([ask(model, text).rows for text in texts])
    assert np.abs(rows - alone).max() < 1e-6
    assert np.array_equal(rows[0], rows[3])


async def test_the_loop_gets_what_a_thread_gets(serve: Serve) -> None:
    """Small and large requests of an event loop give the rows that a waiting thread gets."""
    model = serve()
    large = ["the cat sat on the mat"] * (INLINE_CHARS // 10)
    for texts in (["hello"], large):
        request = Request(model="tiny", inputs=list(texts))
        result = await model.submit(request)
        assert np.array_equal(result.rows, model.compute(request).rows)


def test_tokens_are_counted_with_their_frame(serve: Serve) -> None:
    """Usage is what went through the model: special tokens in, what was cut off out."""
    result = ask(serve(), "the cat", LONG)
    assert result.tokens == [4, 40]
    assert result.truncated == 1


def test_truncation_can_be_refused(serve: Serve) -> None:
    """`truncate=False` refuses the input that is too long, by its index and with the limit."""
    with pytest.raises(InputTooLong, match=r"input\[1\] has more than 40 tokens") as refused:
        ask(serve(), "the cat", LONG, truncate=False)
    assert (refused.value.param, refused.value.code) == ("input", "context_length_exceeded")


def test_a_prompt_goes_before_the_text(serve: Serve) -> None:
    """A named prompt gives the vector of the text with the prompt written before it."""
    model = serve()
    assert np.array_equal(ask(model, "the cat", prompt_name="query").rows, ask(model, "query : the cat").rows)


def test_an_unknown_prompt_lists_the_known(serve: Serve) -> None:
    """A prompt that the model does not have is an error that names those it has."""
    with pytest.raises(InvalidRequest, match="prompt_name is 'qeury'; tiny has: passage, query"):
        ask(serve(), "the cat", prompt_name="qeury")


@pytest.mark.parametrize("framed", [True, False])
def test_token_ids_give_the_texts_vector(serve: Serve, framed: bool) -> None:
    """Ids of the model's own vocabulary give the text's vector, with or without special tokens around them."""
    model = serve()
    ids = [VOCABULARY[word] for word in ("the", "cat", "sat", "on", "the", "mat")]
    given = [VOCABULARY["[CLS]"], *ids, VOCABULARY["[SEP]"]] if framed else ids
    result = ask(model, given, token_vocabulary="native")
    assert np.array_equal(result.rows, ask(model, "the cat sat on the mat").rows)
    assert (result.tokens, result.token_vocabulary) == ([8], "native")


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([], {}, "input is an empty list"),
        (["the", ""], {}, r"input\[1\] is an empty string"),
        ([[3], []], {}, r"input\[1\] is an empty list of token ids"),
        (["the"] * 11, {}, "11 inputs; a request may hold at most 10"),
        (["the"], {"dimensions": 0}, "dimensions is 0; tiny allows 1 to 16"),
        (["the"], {"dimensions": -1}, "dimensions is -1; tiny allows 1 to 16"),
        (["the"], {"dimensions": 17}, "dimensions is 17; tiny allows 1 to 16"),
    ],
)
def test_what_is_wrong_is_said(serve: Serve, inputs: list[Any], options: dict[str, Any], message: str) -> None:
    """A wrong request is refused before the engine sees it, with the value given and the values allowed."""
    with pytest.raises(InvalidRequest, match=message):
        ask(serve(max_inputs=10), *inputs, **options)


async def test_a_cancelled_call_leaves_the_queue(serve: Serve, fake: FakeEngine) -> None:
    """Whoever stops waiting takes the rest of the work out of the queue."""
    model = serve(fake)
    fake.gate.clear()
    running = asyncio.create_task(model.submit(Request(model=None, inputs=["hello"])))
    waiting = asyncio.create_task(model.submit(Request(model=None, inputs=["the cat sat"] * 50)))
    while model.runner.waiting_items != 50:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert model.runner.waiting_items == 0
    fake.gate.set()
    assert (await running).rows.shape == (1, 16)


def test_many_threads_get_their_own_rows(serve: Serve) -> None:
    """Requests of many threads at once are never mixed up."""
    model = serve()
    texts = [f"the {word} sat" for word in ("cat", "dog", "mat", "time", "year", "people", "way", "day")]
    wanted = [ask(model, text).rows for text in texts]
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(20):
            if np.abs(ask(model, texts[number]).rows - wanted[number]).max() > 1e-6:
                wrong.append(texts[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
