"""Late interaction from request to answer: sides, lengths, what counts, ids instead of texts, and scores of pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from checkpoints import VOCABULARY, write_json
from late_checkpoints import EXPANSION, write_late
from vecmill.config import Settings
from vecmill.core import Input, Options, Pair, Request
from vecmill.embedder import Embedder
from vecmill.errors import CorruptFile, EmptyInput, InputTooLong, InvalidRequest, UnsupportedModel, WrongTask
from vecmill.model.spec import read_spec
from vecmill.model.tokenizer import Tokenizer

LONG = "a b c d e f g " * 9
ONE_THREAD = Settings(threads=1)


@pytest.mark.parametrize(
    ("side", "text", "count"),
    [
        ("query", "cat", 12),
        ("query", LONG, 12),
        ("document", "cat . dog !", 6),
        ("document", LONG, 20),
        (None, "cat", 5),
    ],
)
def test_how_many_vectors(tmp_path: Path, side: str | None, text: str, count: int) -> None:
    """Queries have as many as they are made long, documents one for each token that counts; all are of length 1."""
    with Embedder(str(write_late(tmp_path)), settings=ONE_THREAD) as embedder:
        (vectors,) = embedder.token_vectors([text], prompt_name=side)
    assert vectors.shape == (count, 8)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("side", ["query", "document"])
def test_ids_are_read_as_their_text(tmp_path: Path, side: str) -> None:
    """Token ids of a text give the bytes that the text gives, marker and expansion included."""
    ids = [VOCABULARY[word] for word in ["the", "cat", "sat", "."]]
    with Embedder(str(write_late(tmp_path)), settings=ONE_THREAD) as embedder:
        (of_text,) = embedder.token_vectors(["the cat sat ."], prompt_name=side)
        answer = embedder._model.compute(
            Request(
                model=None,
                inputs=[ids],
                outputs=("multi",),
                options=Options(prompt_name=side, token_vocabulary="native"),
            )
        )
    assert np.array_equal(answer.multi[0], of_text)


def test_unseen_tokens_change_nothing(tmp_path: Path) -> None:
    """What a query is made longer with is not seen: its own tokens have the vectors that they have without it."""
    plain = write_late(tmp_path / "plain", query_expansion=None)
    with Embedder(str(plain), settings=ONE_THREAD) as embedder:
        (alone,) = embedder.token_vectors(["the cat"], prompt_name="query")
    for attend, same in ((False, True), (True, False)):
        folder = write_late(tmp_path / f"{attend}", query_expansion=EXPANSION | {"attend": attend})
        with Embedder(str(folder), settings=ONE_THREAD) as embedder:
            (longer,) = embedder.token_vectors(["the cat"], prompt_name="query")
        assert np.allclose(longer[: len(alone)], alone, atol=1e-5) is same


@pytest.mark.parametrize("attend", [False, True])
def test_bytes(tmp_path: Path, *, attend: bool) -> None:
    """A query has the same bytes alone and among others that see more or fewer of their tokens."""
    folder = write_late(tmp_path, query_expansion=EXPANSION | {"attend": attend})
    texts = ["cat", "the cat sat on", "the dog", LONG]
    with Embedder(str(folder), settings=Settings(threads=2)) as embedder:
        together = embedder.token_vectors(texts, prompt_name="query")
        for text, vectors in zip(texts, together, strict=True):
            assert embedder.token_vectors([text], prompt_name="query")[0].tobytes() == vectors.tobytes()


def test_scores(tmp_path: Path) -> None:
    """A document's score is the sum over the query's vectors of the largest product with one of its own."""
    documents = ["the cat sat", "dog !", LONG]
    with Embedder(str(write_late(tmp_path)), settings=ONE_THREAD) as embedder:
        (query,) = embedder.token_vectors(["cat"], prompt_name="query")
        wanted = [(query @ rows.T).max(axis=1).sum() for rows in embedder.token_vectors(documents)]
        raw = embedder.rerank("cat", documents, raw_scores=True)
        mean = embedder.rerank("cat", documents)
    assert raw == pytest.approx(wanted, abs=1e-5)
    assert mean == pytest.approx(raw / 12, abs=1e-6)


async def test_nothing_is_computed_for_a_wrong_query(tmp_path: Path) -> None:
    """An empty query is refused before the documents are computed for nobody."""
    with Embedder(str(write_late(tmp_path)), settings=ONE_THREAD) as embedder:
        model = embedder._model
        before = model.runner.cost.pace
        pairs: list[Input] = [Pair("", "the cat"), Pair("", "dog !")]
        with pytest.raises(EmptyInput):
            await model.submit(Request(model=None, inputs=pairs, outputs=("scores",), ranks=True))
        assert model.runner.waiting_items == 0
        assert model.runner.cost.pace == before


async def test_an_answer_has_a_bound(tmp_path: Path) -> None:
    """Vectors of tokens that would take more memory than an answer may are refused, with both sizes."""
    with Embedder(str(write_late(tmp_path)), settings=Settings(threads=1, max_answer_mb=1)) as embedder:
        fits, over = [LONG] * 1562, [LONG] * 1563  # of 20 tokens and 8 numbers each, 640 bytes
        request = Request(model=None, inputs=[*fits], outputs=("multi",), options=Options(prompt_name="document"))
        assert len((await embedder._model.submit(request)).multi) == 1562
        with pytest.raises(InvalidRequest, match="31260 tokens have vectors of 1.00032 MB .* may have 1 MB"):
            await embedder._model.submit(replace(request, inputs=[*over]))


def test_a_document_of_which_nothing_counts(tmp_path: Path) -> None:
    """Where none of a document's tokens count it has no vectors, and scores 0."""
    folder = write_late(tmp_path, mask={"keep_only_token_ids": [VOCABULARY["cat"]]})
    with Embedder(str(folder), settings=ONE_THREAD) as embedder:
        assert embedder.token_vectors(["dog", "cat"])[0].shape == (0, 8)
        assert embedder.rerank("cat", ["dog"]).tolist() == [0]


def test_the_limit_in_a_message_is_the_sides(tmp_path: Path) -> None:
    """Where cutting is refused, the error names the limit of queries for queries, of documents for documents."""
    with Embedder(str(write_late(tmp_path)), settings=ONE_THREAD) as embedder:
        for side, limit in (("query", 12), ("document", 20)):
            request = Request(
                model=None, inputs=[LONG], outputs=("multi",), options=Options(prompt_name=side, truncate=False)
            )
            with pytest.raises(InputTooLong, match=f"more than {limit} tokens"):
                embedder._model.compute(request)


def test_what_is_not_given(tmp_path: Path) -> None:
    """Rows, labels, pairs that are not to be ranked and other prompts are refused by name."""
    with Embedder(str(write_late(tmp_path)), settings=ONE_THREAD) as embedder:
        with pytest.raises(WrongTask, match="gives multi, not dense"):
            embedder.embed(["cat"])
        with pytest.raises(InvalidRequest, match="does not read together"):
            embedder._model.compute(Request(model=None, inputs=[Pair("a", "b")], outputs=("multi",)))
        with pytest.raises(InvalidRequest, match="prompt_name is 'passage'"):
            embedder.token_vectors(["cat"], prompt_name="passage")


@pytest.mark.parametrize(
    ("knobs", "error", "said"),
    [
        (
            {"query_expansion": EXPANSION | {"length": 41}},
            UnsupportedModel,
            "41 tokens long, and there are 40 positions",
        ),
        ({"query_expansion": EXPANSION | {"length": 0}}, CorruptFile, "a strategy (fixed, min) and a length"),
        ({"query_expansion": EXPANSION | {"strategy": "max"}}, CorruptFile, "a strategy (fixed, min) and a length"),
        (
            {"query_expansion": EXPANSION | {"token": "[NONE]"}},
            UnsupportedModel,
            "no [NONE], which makes queries longer",
        ),
        ({"document_length": 2}, CorruptFile, "a limit of 2 tokens leaves no room"),
    ],
)
def test_what_cannot_be(tmp_path: Path, knobs: dict[str, Any], error: type[Exception], said: str) -> None:
    """A checkpoint whose queries or documents could not be read as it says is refused at start."""
    folder = write_late(tmp_path, **knobs)
    with pytest.raises(error) as caught:
        Tokenizer(read_spec(folder))
    assert said in str(caught.value)


def test_filling_on_the_left(tmp_path: Path) -> None:
    """A tokenizer that fills up on the left would put the query's tokens elsewhere: refused."""
    folder = write_late(tmp_path)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "padding_side": "left"})
    with pytest.raises(UnsupportedModel, match="longer on the left"):
        Tokenizer(read_spec(folder))
