"""The models that are served, by name; and how one gets there: source, spec, engine, a first real embedding."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from vecmill.config import PRECISION_NAMES, Settings
from vecmill.core import Options, Pair, Request
from vecmill.engine.base import Batch, Engine, choose, load_engine, usable_cpus, usable_memory
from vecmill.errors import BadSettings, LoadError, ModelLoading, RequestError, UnknownModel, UnsupportedModel
from vecmill.model.source import parse, resolve
from vecmill.model.spec import ModelSpec, read_spec, unscaled
from vecmill.model.tokenizer import Tokenizer
from vecmill.model.wheel import cache_folder
from vecmill.serving.cost import CostModel, calibrate, probed
from vecmill.serving.engines import Engines
from vecmill.serving.events import Events
from vecmill.serving.kept_cost import KeptCost, kept_cost
from vecmill.serving.served import ServedModel
from vecmill.serving.store import open_store

log = logging.getLogger(__name__)

SECOND_COPY = 0.1
"""Lanes need the weights a second time: they are made where that takes no more than this part of the memory."""


class Registry:
    """Served names, in the order given; a name is known from the start and answers once its model is loaded.

    Args:
        names: Served names.

    Raises:
        BadSettings: Two models have one name.
    """

    def __init__(self, names: list[str]) -> None:
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise BadSettings(f"two models are named {', '.join(sorted(twice))}: give one another name with NAME=MODEL")
        self._models: dict[str, ServedModel | None] = dict.fromkeys(names)
        self.held = False  # not ready: other processes that serve beside this one are not
        self.draining = False  # not ready, whatever the models are
        self.closed = False  # takes no new work

    def __iter__(self) -> Iterator[ServedModel]:
        """The loaded models."""
        return iter([model for model in self._models.values() if model])

    @property
    def names(self) -> list[str]:
        """All served names, loaded or not."""
        return list(self._models)

    @property
    def ready(self) -> bool:
        """Whether every model is loaded, warmed and alive, and new work is welcome."""
        welcome = not (self.held or self.draining)
        return welcome and all(state == "ready" for state in self.states.values())

    @property
    def loaded(self) -> bool:
        """Whether every model was loaded once."""
        return None not in self._models.values()

    @property
    def states(self) -> dict[str, str]:
        """Name to "loading", "ready", "replacing" (its engine was lost, another is on its way) or "broken"."""
        return {name: _state(model) for name, model in self._models.items()}

    @property
    def broken(self) -> list[str]:
        """Names of models that won't answer any more."""
        return [name for name, state in self.states.items() if state == "broken"]

    def add(self, model: ServedModel) -> None:
        """A model is loaded."""
        self._models[model.name] = model

    def get(self, name: str | None) -> ServedModel:
        """The model of that name; the only one where none is named.

        Raises:
            UnknownModel: There is none.
            ModelLoading: It is not there yet.
        """
        if name is None and len(self._models) == 1:
            (name,) = self._models
        if name is None or name not in self._models:
            raise UnknownModel(name, self.names)
        model = self._models[name]
        if model is None:
            raise ModelLoading(f"model {name!r} is being loaded; ask again in a moment")
        return model

    def close(self) -> None:
        """Stop every model."""
        for model in self:
            model.close()


def _state(model: ServedModel | None) -> str:
    if model is None:
        return "loading"
    if not model.runner.alive:
        return "broken"
    return "ready" if model.runner.ready else "replacing"


def load(
    reference: str, settings: Settings, events: Events, say: Callable[[str], None] = lambda _: None
) -> ServedModel:
    """Fetch, read, compile and warm a model; what comes back has made a real embedding.

    Args:
        reference: As `vecmill.model.source.parse` takes it.
        settings: Where from, and limits.
        events: Told of every batch.
        say: Told of progress in single lines.

    Raises:
        LoadError: With a line on what to do.
    """
    started = time.perf_counter()
    checkpoint = resolve(reference, settings, say=say)
    spec = read_spec(checkpoint.folder, None if settings.task == "auto" else settings.task)
    precision = PRECISION_NAMES.get(settings.precision, settings.precision)
    kind = choose(spec, settings.device) if settings.engine == "auto" else settings.engine
    if kind != "static":  # a table has no attention
        spec = replace(spec, max_tokens=min(spec.max_tokens, settings.max_input_tokens))
    room = settings.kept_weights_mb * 1_000_000
    keep = (cache_folder(settings) / "weights", room) if room else None
    one = partial(load_engine, kind, unscaled(spec), precision=precision, device=settings.device, keep=keep)
    renew = partial(open_engines, one, settings)
    engines, name = renew(), parse(reference).name
    lanes = (settings.threads or usable_cpus(), engines.lanes, engines.narrow is not None)
    batch_s, asked = settings.batch_time_ms / 1000, (precision, kind, settings.device, spec.task, *lanes)
    known = kept_cost(cache_folder(settings) / "costs", spec.folder, asked, batch_s)
    cost = measure(engines, spec, known)
    model = ServedModel(
        name,
        spec,
        engines,
        settings,
        events,
        revision=checkpoint.revision,
        precision=precision,
        kind=kind,
        cost=cost,
        learned=partial(known.learned, replace(cost, token_s=list(cost.token_s))),
        renew=renew,
        store=None if kind == "static" else open_store(name, spec, settings, [precision, kind]),
    )
    warm_up(model)
    log.info("loaded %s from %s in %.2f s", model.name, checkpoint.folder, time.perf_counter() - started)
    return model


def open_engines(one: Callable[..., Engine], settings: Settings) -> Engines:
    """An engine on all threads, and where lanes are wanted, of use and fit into memory a second one that they share.

    Args:
        one: Makes an engine of `threads`.
        settings: How many threads and lanes.

    Raises:
        LoadError: As `load_engine`.
    """
    threads = settings.threads or usable_cpus()
    wide = one(threads=threads)
    room = SECOND_COPY * usable_memory() / settings.workers
    lanes = settings.lanes or (threads if wide.weight_bytes < room else 1)
    if lanes == 1 or not wide.shared or wide.instant:
        return Engines(wide)
    try:
        return Engines(wide, one(threads=1), lanes)
    except BaseException:
        wide.close()
        raise


def measure(engines: Engines, spec: ModelSpec, known: KeptCost) -> CostModel:
    """What the micro-batches of a model cost: as it is known, or measured.

    Raises:
        UnsupportedModel: It fails on ids that are in the vocabulary.
    """

    def run(ids: NDArray[np.int32]) -> None:
        engines.usual.compute(Batch.pack(list(ids)), spec.native)

    try:
        return known.start(
            lambda: probed(run, max_tokens=spec.max_tokens, vocab_size=spec.vocab_size),
            lambda: calibrate(run, batch_s=known.batch_s, max_tokens=spec.max_tokens, vocab_size=spec.vocab_size),
        )
    except LoadError:
        raise
    except Exception as error:
        engines.retire()
        raise UnsupportedModel(f"{spec.folder}: the engine fails: {error}") from error


def warm_up(model: ServedModel) -> None:
    """Answer a real request.

    Raises:
        UnsupportedModel: It failed or gave no vector.
    """
    text = _known_text(model.tokenizer)
    one = Pair(text, text) if model.spec.task == "rerank" else text
    try:
        model.compute(Request(model=None, inputs=[one], outputs=model.spec.outputs[:1], options=Options(no_store=True)))
    except RequestError as error:
        model.close()
        raise UnsupportedModel(f"{model.spec.folder}: the first request failed: {error}") from error


def _known_text(tokenizer: Tokenizer, liked: str = "warm-up") -> str:
    """A text that has a token: some models have no special tokens, and leave out words that they do not know."""
    of_vocabulary = (tokenizer.native.decode([number]) for number in range(tokenizer.vocab_size))
    return next((text for text in chain([liked], of_vocabulary) if len(tokenizer.encode([text])[0].ids)), liked)


def names(references: list[str]) -> list[str]:
    """Served names of references, without reaching for anything."""
    return [parse(reference).name for reference in references]
