"""Late chunking: the inputs of a request as the chunks of one document."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from checkpoints import CONFIG, VOCABULARY, bert_tensors, write_bert, write_modules
from conftest import Serve
from exported_checkpoints import write_exported
from numpy_bert import states
from static_checkpoints import write_model2vec
from vecmill.core import Options, Output, Pair, Ranges, Request, Result
from vecmill.embedder import Embedder
from vecmill.engine.base import load_engine
from vecmill.engine.fake import FAKE_DIMS, FakeEngine, fake_row
from vecmill.errors import EmptyInput, EngineFailed, InputTooLong, InvalidRequest, TooManyInputs
from vecmill.model.late import Late
from vecmill.model.modules import Dense
from vecmill.model.spec import ModelSpec
from vecmill.serving import document
from vecmill.serving.document import refusal
from vecmill.serving.served import ServedModel

CHUNKS = ["The cat sat on the mat .", "it was a dog", "hello", "world , a day"]
LONG = ["the cat sat on the mat " * 4, "hello world", "a dog a day " * 8, "time people way " * 9, "walk"]


def request_of(*inputs: Any, lenient: bool = False, outputs: tuple[Output, ...] = ("dense",), **wishes: Any) -> Request:
    """Chunks of a document."""
    options = Options(**{"one_document": True, **wishes})
    return Request(model=None, inputs=list(inputs), outputs=outputs, lenient=lenient, options=options)


def ask(model: ServedModel, *inputs: Any, **wishes: Any) -> Result:
    """Compute on this thread."""
    return model.compute(request_of(*inputs, **wishes))


def words(model: ServedModel, text: str) -> list[int]:
    """Its tokens alone."""
    return model.tokenizer.whole(text)


def states_of(ids: list[int]) -> NDArray[np.float64]:
    """States of the tiny model's tokens, from numpy alone."""
    return states(np.array(ids), bert_tensors(CONFIG), CONFIG)


def by_hand(model: ServedModel, chunks: list[str], prompt: str = "") -> NDArray[np.float64]:
    """The mean of each chunk's states, of length 1; the first has the beginning, the last the end."""
    lead, pieces = words(model, prompt), [words(model, chunk) for chunk in chunks]
    ids = [VOCABULARY["[CLS]"], *lead, *(number for piece in pieces for number in piece), VOCABULARY["[SEP]"]]
    rows, at, found = states_of(ids), 1 + len(lead), []
    for number, piece in enumerate(pieces):
        begin = at if number else 0
        at += len(piece)
        found.append(rows[begin : len(ids) if number == len(pieces) - 1 else at].mean(axis=0))
    return unit(np.stack(found))


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows at length 1."""
    scaled: NDArray[Any] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


@pytest.mark.parametrize("prompt_name", [None, "query"])
def test_a_chunk_is_the_mean_of_its_states(serve: Serve, prompt_name: str | None) -> None:
    """Rows are those of states that numpy computes of the document as a whole, with its prompt."""
    model = serve()
    wanted = by_hand(model, CHUNKS, model.spec.prompts.get(prompt_name or "", ""))
    given = ask(model, *CHUNKS, prompt_name=prompt_name)
    assert given.rows == pytest.approx(wanted, abs=1e-6)
    assert given.truncated == given.cached == 0


def test_context_makes_the_difference(serve: Serve) -> None:
    """The same chunk has another vector in another document, and neither is the one that it has alone."""
    model = serve()
    one, other = (ask(model, before, "hello world", "the").rows[1] for before in ("the cat", "a year"))
    alone = ask(model, "hello world", one_document=False).rows[0]
    assert np.abs(one - other).max() > 1e-2
    assert np.abs(one - alone).max() > 1e-2


def test_one_chunk_alone_is_a_text(serve: Serve) -> None:
    """A document of one chunk has the vector and the count of the text."""
    model = serve()
    for prompt_name in (None, "query"):
        given = ask(model, "the cat sat", prompt_name=prompt_name)
        usual = ask(model, "the cat sat", prompt_name=prompt_name, one_document=False)
        assert given.rows == pytest.approx(usual.rows, abs=1e-6)
        assert given.tokens == usual.tokens
        assert usual.ranges == []


def test_a_prompt_that_is_not_pooled(tmp_path: Path) -> None:
    """Where the model's pooling leaves the prompt out, so does the first chunk's, but it is context all the same."""
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    folder = write_modules(write_bert(tmp_path), pooling=pooling, prompts={"prompts": {"query": "query : "}})
    with Embedder(str(folder)) as embedder:
        (row,) = embedder.embed_document(["the cat sat"], prompt_name="query").rows
        assert row == pytest.approx(embedder.embed("the cat sat", prompt_name="query"), abs=1e-6)
        first, last = embedder.embed_document(["the cat", "sat"], prompt_name="query").rows
        ids = [VOCABULARY[token] for token in ["[CLS]", "query", ":", "the", "cat", "sat", "[SEP]"]]
        wanted = unit(np.stack([states_of(ids)[part].mean(axis=0) for part in (slice(3, 5), slice(5, 7))]))
        assert np.stack([first, last]) == pytest.approx(wanted, abs=1e-6)


def test_a_long_document_is_read_in_windows(serve: Serve) -> None:
    """Each state is from the window that has more of the document around it."""
    model = serve()
    ids = [number for chunk in LONG for number in words(model, chunk)]
    owners = [number for number, chunk in enumerate(LONG) for _ in words(model, chunk)]
    room, starts = 38, [0, 24, 48]
    assert len(ids) == starts[-1] + room
    windows = [states_of([2, *ids[start : start + room], 3]) for start in starts]
    seams = [0, *((one + room + other) // 2 for one, other in pairwise(starts)), len(ids)]
    taken: list[list[NDArray[np.float64]]] = [[] for _ in LONG]
    taken[0].append(windows[0][0])
    for number, (start, rows) in enumerate(zip(starts, windows, strict=True)):
        for at in range(seams[number], seams[number + 1]):
            taken[owners[at]].append(rows[1 + at - start])
    taken[-1].append(windows[-1][-1])
    given = ask(model, *LONG)
    assert given.rows == pytest.approx(unit(np.stack([np.mean(one, axis=0) for one in taken])), abs=1e-6)
    assert sum(given.tokens) == 3 * 40
    assert given.ranges[-1].tokens == (len(ids) - 1, len(ids))


def test_windows_may_be_asked_for_in_turns(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many windows are in memory at once, the bytes are the same."""
    model = serve()
    together = ask(model, *LONG).rows
    monkeypatch.setattr(document, "TOGETHER", 1)
    assert np.array_equal(ask(model, *LONG).rows, together)


async def test_company_changes_nothing(serve: Serve) -> None:
    """A document has the same bytes alone and beside other documents and texts, and they have theirs."""
    model = serve(result_cache_mb=0)
    documents = [CHUNKS, LONG, CHUNKS[::-1], ["a b c"] * 9]
    alone = [ask(model, *one).rows for one in documents]
    texts = request_of(*CHUNKS, *LONG, one_document=False)
    usual = model.compute(texts).rows
    tasks = [model.submit(request_of(*one)) for one in documents]
    *found, beside = await asyncio.gather(*tasks, *tasks[:0], model.submit(texts))
    assert all(np.array_equal(one.rows, wanted) for one, wanted in zip(found, alone, strict=True))
    assert np.array_equal(beside.rows, usual)


async def test_memory_mixes_nothing_up(serve: Serve) -> None:
    """A text, its token vectors and a document of the same tokens keep apart, whichever was asked before."""
    model = serve()
    for _ in range(2):
        usual = await model.submit(request_of("the cat", one_document=False))
        (tokens,) = (await model.submit(request_of("the cat", outputs=("multi",), one_document=False))).multi
        given = await model.submit(request_of("the", "cat"))
        assert usual.rows[0] == pytest.approx(unit(tokens.mean(axis=0)[None])[0], abs=1e-6)
        assert given.rows == pytest.approx(by_hand(model, ["the", "cat"]), abs=1e-6)
    assert given.cached == 0


def test_order_and_repeats(serve: Serve) -> None:
    """Equal chunks of a document have vectors of their own, each in its place."""
    model = serve()
    rows = ask(model, "cat", "dog", "cat").rows
    assert rows == pytest.approx(by_hand(model, ["cat", "dog", "cat"]), abs=1e-6)
    assert np.abs(rows[0] - rows[2]).max() > 1e-2


def test_wishes(serve: Serve) -> None:
    """Length and dimensions are what they are for texts."""
    model = serve()
    raw = ask(model, *CHUNKS, normalize=False).rows
    assert unit(raw) == pytest.approx(ask(model, *CHUNKS).rows, abs=1e-6)
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)
    assert ask(model, *CHUNKS, dimensions=5).rows == pytest.approx(unit(raw[:, :5]), abs=1e-6)
    assert np.array_equal(ask(model, *CHUNKS, dimensions=5, normalize=False).rows, raw[:, :5])


def test_counts_and_ranges(serve: Serve) -> None:
    """Counts are the tokens that go through the model; ranges are those of the document alone."""
    given = ask(serve(), "the cat", "sat", "on", prompt_name="query")
    assert given.tokens == [5, 1, 2]
    assert given.ranges == [Ranges((0, 2), (0, 7)), Ranges((2, 3), (8, 11)), Ranges((3, 4), (12, 14))]


def test_token_ids(serve: Serve) -> None:
    """Arrays of the model's ids give the bytes of their texts; texts and arrays do not go together."""
    model = serve()
    arrays = [words(model, chunk) for chunk in CHUNKS]
    given = ask(model, *arrays, token_vocabulary="native")
    assert np.array_equal(given.rows, ask(model, *CHUNKS).rows)
    assert {one.characters for one in given.ranges} == {None}
    assert given.token_vocabulary == "native"
    with pytest.raises(InvalidRequest, match="all texts, or all arrays"):
        ask(model, "the", [7], token_vocabulary="native")
    with pytest.raises(InvalidRequest, match="all texts, or all arrays"):
        ask(model, Pair("the", "cat"))


def test_limits_and_options(serve: Serve) -> None:
    """What is refused of texts is refused of chunks, and what has no meaning for them."""
    model = serve(max_inputs=3)
    with pytest.raises(TooManyInputs):
        ask(model, *"abcd")
    with pytest.raises(InputTooLong, match="makes 4 windows of tiny; it may make at most 3"):
        ask(model, "the cat " * 60)
    with pytest.raises(EmptyInput, match=r"input\[1\] is an empty string"):
        ask(model, "the", "")
    with pytest.raises(InvalidRequest, match=r"input\[1\] holds no token") as refused:
        ask(model, "the", " \n ")
    assert refused.value.param == "input"
    with pytest.raises(InvalidRequest, match="and multi is asked"):
        ask(model, "the", outputs=("multi",))
    with pytest.raises(InvalidRequest, match="read in windows"):
        ask(model, "the", chunked=True)
    with pytest.raises(InvalidRequest, match="dimensions is 17"):
        ask(model, "the", dimensions=17)


def test_truncation(serve: Serve) -> None:
    """Nothing is ever cut; a chunk that the model cannot read at once is refused where cutting is."""
    model = serve()
    assert ask(model, *LONG).truncated == 0
    long = "the cat " * 30
    assert ask(model, "hello", long).ranges[1].tokens == (1, 61)
    with pytest.raises(InputTooLong, match=r"input\[1\] has 60 tokens, more than the 38 that tiny takes"):
        ask(model, "hello", long, truncate=False)
    assert len(ask(model, *["the cat " * 15] * 4, truncate=False).rows) == 4
    with pytest.raises(InputTooLong, match="more than the 8"):
        ask(model, "a b c d e f g h i", truncate=False, max_tokens=10)


async def test_errors_of_single_chunks(serve: Serve) -> None:
    """Where inputs may fail alone, those that do are left out of the document."""
    model = serve()
    long = "the cat " * 30
    given = await model.submit(request_of("the cat", "", " ", "sat on", long, lenient=True, truncate=False))
    assert {place: type(error) for place, error in given.errors.items()} == {
        1: EmptyInput, 2: InvalidRequest, 4: InputTooLong
    }  # fmt: skip
    assert np.array_equal(given.rows, ask(model, "the cat", "sat on").rows)
    assert len(given.tokens) == len(given.ranges) == 2
    none = await model.submit(request_of("", " ", lenient=True))
    assert (len(none.rows), sorted(none.errors)) == (0, [0, 1])


async def test_an_engine_that_fails_fails_the_document(
    serve: Serve, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks stand or fall together, also where inputs may fail alone."""

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(fake, "_column", fail)
    for lenient in (False, True):
        with pytest.raises(EngineFailed, match="input 0: the engine failed"):
            await serve(fake).submit(request_of("the", "cat", lenient=lenient))


async def test_states_without_a_mean(serve: Serve, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk whose states add up to nothing is named."""
    row = fake_row(np.array([1]), FAKE_DIMS)
    states = np.stack([row, row, row, -row, 0 * row])
    monkeypatch.setattr(fake, "_column", lambda _output, ids: [states for _ in ids])
    with pytest.raises(EngineFailed, match="input 1: the states of its tokens have no mean"):
        await serve(fake).submit(request_of("the", "cat dog", lenient=False))


def test_who_does_not_ask_pays_nothing(serve: Serve, tiny_spec: ModelSpec) -> None:
    """Token states have a graph of their own, made when they are first asked for; vectors keep theirs."""
    engine = load_engine("onnx", tiny_spec, threads=1)
    model = serve(engine, result_cache_mb=0)
    before, size = ask(model, *CHUNKS, one_document=False).rows, engine.weight_bytes
    assert list(engine._sessions) == [("dense",)]  # type: ignore[attr-defined]
    ask(model, *CHUNKS)
    assert list(engine._sessions) == [("dense",), ("multi",)]  # type: ignore[attr-defined]
    assert engine.weight_bytes > size
    assert np.array_equal(ask(model, *CHUNKS, one_document=False).rows, before)


def test_which_models_can(tiny_spec: ModelSpec, tmp_path: Path) -> None:
    """Others than plain means are refused, and told why."""
    dense = Dense(tmp_path, 16, 8, bias=True, activation="tanh", residual=False)
    late = Late(tail=(), prompts={}, markers=(), limits={})
    assert refusal(tiny_spec, tiny_spec.outputs) is None
    assert refusal(replace(tiny_spec, tail=()), tiny_spec.outputs) is None
    for changes, reason in (
        ({"pooling": ("cls",)}, "no mean of token states, but are pooled by cls"),
        ({"pooling": ("lasttoken",)}, "pooled by lasttoken"),
        ({"pooling": ("mean", "max")}, "pooled by mean and max"),
        ({"tail": (dense, *tiny_spec.tail)}, "a Dense module follows its pooling"),
        ({"late": late}, "for late interaction"),
        ({"family": "static"}, "none of them depends on the others"),
    ):
        assert reason in str(refusal(replace(tiny_spec, **changes), tiny_spec.outputs))
    assert "no token states" in str(refusal(tiny_spec, ("dense",)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: write_modules(write_bert(folder), pooling={"pooling_mode_cls_token": True}), "cls"),
        (lambda folder: write_modules(write_bert(folder), dense={"out_features": 8}), "a Dense module"),
        (lambda folder: write_exported(folder, outputs=["sentence_embedding"]), "no token states"),
        (write_model2vec, "it looks words up"),
    ],
)
def test_a_refusal_names_the_model_and_the_reason(tmp_path: Path, make: Any, reason: str) -> None:
    """A model that cannot says so, before anything is read; its texts are answered as ever."""
    with Embedder(str(make(tmp_path / "this"))) as embedder:
        with pytest.raises(InvalidRequest, match=f"this does no late chunking: .*{reason}") as refused:
            embedder.embed_document(["the", "cat"])
        assert refused.value.param == "one_document"
        assert len(embedder.embed(["the"])) == 1


def test_a_file_that_gives_states(tmp_path: Path) -> None:
    """A repository's own ONNX file can do it where it gives states of tokens."""
    with Embedder(str(write_exported(tmp_path))) as embedder:
        (whole,) = embedder.token_vectors(["the cat sat"])
        rows = embedder.embed_document(["the cat", "sat"]).rows
        assert rows == pytest.approx(np.stack([whole[:3].mean(axis=0), whole[3:].mean(axis=0)]), abs=1e-6)
