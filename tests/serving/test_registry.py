"""Models by name."""

import time
from pathlib import Path

import numpy as np
import pytest

from checkpoints import CONFIG, bert_tensors, write_bert, write_modules
from conftest import Serve
from static_checkpoints import write_model2vec
from vecmill.config import Settings
from vecmill.core import Options, Request
from vecmill.errors import BadSettings, ModelLoading, UnknownModel, UnsupportedModel
from vecmill.serving.events import BatchDone, Event, Events
from vecmill.serving.registry import Registry, load


def test_a_model_is_found_by_its_name(serve: Serve) -> None:
    """Each name gives its own model; without a name there must be only one."""
    one, two = serve(name="org/one"), serve(name="two")
    registry = Registry(["org/one", "two"])
    registry.add(one)
    registry.add(two)
    assert (registry.get("org/one"), registry.get("two")) == (one, two)
    with pytest.raises(UnknownModel, match="the request names no model; served: org/one, two"):
        registry.get(None)


def test_an_unknown_name_lists_the_served() -> None:
    """What is not served is refused with the names that are."""
    with pytest.raises(UnknownModel, match="model 'gpt' is not served here; served: one"):
        Registry(["one"]).get("gpt")


def test_a_name_is_known_before_its_model() -> None:
    """While a model loads, its name says so and the registry is not ready."""
    registry = Registry(["one"])
    with pytest.raises(ModelLoading, match="'one' is being loaded"):
        registry.get("one")
    assert (registry.ready, registry.states) == (False, {"one": "loading"})


def test_readiness_ends_with_a_drain(serve: Serve) -> None:
    """A registry whose models all live is ready, until it drains."""
    registry = Registry(["tiny"])
    registry.add(serve())
    assert registry.ready
    registry.draining = True
    assert not registry.ready


def test_two_models_of_one_name_are_refused() -> None:
    """Names are unique, and the message says how to choose one."""
    with pytest.raises(BadSettings, match="two models are named a: .*NAME=MODEL"):
        Registry(["a", "b", "a"])


def test_a_model_without_a_vector_never_gets_ready(tmp_path: Path) -> None:
    """Weights that give NaN are found by the first embedding, before anyone asks."""
    tensors = bert_tensors(CONFIG)
    tensors["encoder.layer.1.output.dense.weight"][:] = float("nan")
    folder = write_modules(write_bert(tmp_path / "nan", tensors=tensors))
    with pytest.raises(UnsupportedModel, match="the first request failed: .*NaN"):
        load(str(folder), Settings(), Events())


def test_the_first_embedding_is_computed(tiny_folder: Path, tmp_path: Path) -> None:
    """What a store holds of an earlier start says nothing of the engine that is there now."""
    settings = Settings(result_store=str(tmp_path / "store"))
    for _ in range(2):
        events, seen = Events(), list[Event]()
        events.subscribers.append(seen.append)
        model = load(str(tiny_folder), settings, events)
        assert [type(one) for one in seen] == [BatchDone]
        while not (model.store and model.store.ready):
            time.sleep(0.001)
        model.close()


def test_a_long_limit_is_bounded(tiny_folder: Path) -> None:
    """Inputs are cut to the server's bound where the model would take more, so that no text takes all memory."""
    model = load(str(tiny_folder), Settings(max_input_tokens=12), Events())
    result = model.compute(Request(model=None, inputs=["the cat sat on the mat " * 9]))
    assert (model.spec.max_tokens, result.tokens, result.truncated) == (12, [12], 1)
    model.close()


@pytest.mark.parametrize("static", [False, True])
def test_vectors_as_they_were_before_normalising(tmp_path: Path, static: bool) -> None:
    """A loaded model that normalises gives length 1, and on request the vectors from before that."""
    folder = write_model2vec(tmp_path) if static else write_modules(write_bert(tmp_path))
    model = load(str(folder), Settings(engine="auto"), Events())
    own, raw = (
        model.compute(Request(model=None, inputs=["the cat", "a dog sat"], options=Options(normalize=normalize))).rows
        for normalize in (None, False)
    )
    model.close()
    lengths = np.linalg.norm(raw, axis=1)
    assert np.abs(np.linalg.norm(own, axis=1) - 1).max() < 1e-6
    assert np.abs(lengths - 1).min() > 1e-3
    assert np.allclose(own, raw / lengths[:, None], atol=1e-6)
