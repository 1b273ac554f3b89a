"""What every client library gets from a served vecmill, in its own words."""

import os
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
from client import MODEL, Classifier, Client, Ranker
from servers import Serving, asked, servers, vectors

pytestmark = pytest.mark.clients

GROUP = os.environ.get("CLIENTS")
"""What is installed: the libraries of requirements-GROUP.txt, whose rows are in of_GROUP.py."""

KINDS = {"one": Client, "ranker": Ranker, "classifier": Classifier}

QUERY, TEXTS = "the cat", ["a dog", "the cat sat on the mat", "hello world"]
NUMBERED = [f"{number} people walk to the {number % 7}. house" for number in range(100)]
"""Texts whose vectors all differ by more than rounding."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test runs on every row of its kind."""
    rows = import_module(f"of_{GROUP}").ROWS if GROUP else []
    for name in KINDS.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, [row for row in rows if isinstance(row, KINDS[name])], ids=lambda row: row.name)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The servers, started when they are first asked for."""
    with servers(tmp_path_factory.mktemp("checkpoints")) as starting:
        yield starting


def test_the_vectors(one: Client, serving: Serving) -> None:
    """Vectors are those that the server gives without a library."""
    found = np.array(one.embed(serving("embed"), MODEL, TEXTS), np.float32)
    assert found.shape == (3, 384)
    assert np.abs(found - vectors(serving("embed"), TEXTS)).max() < 1e-6


def test_the_order(one: Client, serving: Serving) -> None:
    """Each of a hundred texts gets its own vector, however the library cuts them into requests."""
    wanted = vectors(serving("embed"), NUMBERED)
    assert len(np.unique(wanted.round(3), axis=0)) == len(NUMBERED)
    found = np.array(one.embed(serving("embed"), MODEL, NUMBERED), np.float32)
    assert np.abs(found - wanted).max() < 1e-6


def test_an_unknown_model(one: Client, serving: Serving) -> None:
    """A model that is not served is the library's own error, which says so."""
    if one.unknown is None:
        pytest.skip("it names no model")
    with pytest.raises(one.unknown) as refused:
        one.embed(serving("embed"), "unheard-of", TEXTS)
    assert type(refused.value) is one.unknown
    assert "unheard-of" in str(refused.value)


def test_an_empty_text(one: Client, serving: Serving) -> None:
    """An empty text is the library's own error."""
    with pytest.raises(one.empty) as refused:
        one.embed(serving("embed"), MODEL, ["the cat", ""])
    assert type(refused.value) is one.empty


def test_a_refusal(one: Client, serving: Serving) -> None:
    """A 429 with Retry-After is tried again, or is the library's own error where it leaves that to its user."""
    address, texts = serving("embed", refusing=True), [f"asked by {one.name}"]
    if one.refused:
        with pytest.raises(one.refused) as refused:
            one.embed(address, MODEL, texts)
        assert type(refused.value) is one.refused
    found = np.array(one.embed(address, MODEL, texts), np.float32)
    assert np.abs(found - vectors(serving("embed"), texts)).max() < 1e-6


def test_a_ranking(ranker: Ranker, serving: Serving) -> None:
    """Texts come in the order of their scores, with the server's scores."""
    address = serving("rerank")
    body = {"query": QUERY, "texts": TEXTS, "raw_scores": ranker.raw}
    wanted = [(one["index"], one["score"]) for one in asked(f"{address}/rerank", body)]
    found = ranker.rank(address, QUERY, TEXTS)
    assert [place for place, _ in found] == [place for place, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-6)


def test_labels(classifier: Classifier, serving: Serving) -> None:
    """Each text has the labels' probabilities."""
    address = serving("classify")
    answers = asked(f"{address}/predict", {"inputs": [[text] for text in TEXTS]})
    wanted = [{one["label"]: one["score"] for one in answer} for answer in answers]
    found = classifier.classify(address, TEXTS)
    assert len(wanted[0]) > 1
    for row, right in zip(found, wanted, strict=True):
        assert row == pytest.approx(right, abs=1e-6)
