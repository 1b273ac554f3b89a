"""A request's whole way, without HTTP."""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkpoints import VOCABULARY
from conftest import Serve, distinct
from vecmill.core import Options, Output, Request, Result
from vecmill.engine.base import Batch, Column
from vecmill.engine.fake import FakeEngine
from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.model.spec import ModelSpec
from vecmill.serving.preparing import INLINE_CHARS
from vecmill.serving.priority import NICE
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


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
async def test_tokenizing_goes_behind(serve: Serve) -> None:
    """Where cores are short, what large requests need goes behind the event loop."""
    found = await serve().aside(lambda: os.getpriority(os.PRIO_PROCESS, 0))
    assert found == os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICE


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


def test_a_role_takes_the_first_prompt_that_there_is(serve: Serve) -> None:
    """Of the names for a role the first that the model has counts; where it has none there is no prompt."""
    model = serve()
    wanted = ask(model, "passage : the cat").rows
    assert np.array_equal(ask(model, "the cat", role=("document", "passage", "query")).rows, wanted)
    assert np.array_equal(ask(model, "the cat", role=("clustering",)).rows, ask(model, "the cat").rows)
    assert np.array_equal(ask(model, "the cat", role=("query",), prompt_name="passage").rows, wanted)


@pytest.mark.parametrize(("side", "kept"), [("left", "sat on the mat"), ("right", "the cat sat on"), (None, None)])
def test_the_caller_says_where_and_how_far_to_cut(serve: Serve, side: str | None, kept: str | None) -> None:
    """An input is cut to the tokens that the request allows, at the end that it names, else at the model's own."""
    model = serve()
    result = ask(model, "the cat sat on the mat", max_tokens=6, truncation_side=side)
    assert np.array_equal(result.rows, ask(model, kept or "the cat sat on").rows)
    assert (result.tokens, result.truncated) == ([6], 1)


def test_a_long_text_keeps_its_end(serve: Serve) -> None:
    """Of a text of a million characters that is cut on the left the very end is kept."""
    model = serve()
    text = "the cat " * 125_000 + "hello world"
    rows = ask(model, text, truncation_side="left", max_tokens=4).rows
    assert np.array_equal(rows, ask(model, "hello world").rows)


def test_kinds_of_inputs_stand_side_by_side(serve: Serve) -> None:
    """Texts and token ids in one request each get their own row, in the caller's order."""
    model = serve(token_ids="native")
    ids = [VOCABULARY["the"], VOCABULARY["cat"]]
    mixed = ask(model, ids, "hello", ids, "the dog")
    wanted = np.concatenate([ask(model, one).rows for one in ("the cat", "hello", "the cat", "the dog")])
    assert np.array_equal(mixed.rows, wanted)
    assert mixed.token_vocabulary == "native"


@pytest.mark.parametrize(("normalize", "length"), [(True, 1.0), (False, 0.5), (None, 0.5)])
def test_vectors_are_scaled_where_asked(
    serve: Serve, tiny_spec: ModelSpec, normalize: bool | None, length: float
) -> None:
    """A model that does not normalise gives its own lengths, and 1 where the request says so."""

    class Half(FakeEngine):
        """Rows of length 0.5."""

        def compute(self, batch: Batch, outputs: Sequence[Output]) -> list[Column]:
            return [
                np.asarray(column, dtype=np.float32) * np.float32(0.5) for column in super().compute(batch, outputs)
            ]

    model = serve(Half(replace(tiny_spec, tail=())))
    assert np.linalg.norm(ask(model, "the cat", normalize=normalize).rows) == pytest.approx(length)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([], {}, "input is an empty list"),
        (["the", ""], {}, r"input\[1\] is an empty string"),
        ([[3], []], {}, r"input\[1\] is an empty list of token ids"),
        (["the"] * 11, {}, "11 inputs; a request may hold at most 10"),
        (["the"], {"dimensions": 0}, "dimensions is 0; tiny allows 1 to 16"),
        (["the"], {"dimensions": -1}, "dimensions is -1; tiny allows 1 to 16"),
        (["the"], {"max_tokens": 2}, "max_tokens is 2; tiny needs at least 3"),
        (["the"], {"second_tokens": 0}, "second_tokens is 0; tiny needs at least 1"),
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
    waiting = asyncio.create_task(model.submit(Request(model=None, inputs=[*distinct(50)])))
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
