"""Any question to the models, whatever its kind: the one way from a transport to `ServedModel`."""

from functools import partial

from vecmill.asks import (
    Answer,
    Ask,
    ByTask,
    Detokenized,
    DetokenizeRequest,
    InfoRequest,
    ListRequest,
    ModelInfo,
    Piece,
    Several,
    Tokenized,
    TokenizeRequest,
)
from vecmill.core import ANYONE, Caller, Options, Request
from vecmill.errors import InvalidRequest, WrongTask
from vecmill.model.pieces import pieces, spelled
from vecmill.serving.registry import Registry
from vecmill.serving.served import ServedModel
from vecmill.serving.steps import together


async def answer(ask: Ask, registry: Registry, caller: Caller = ANYONE) -> Answer:
    """Answer a question from an event loop.

    Raises:
        RequestError: There is no such model, or as `ServedModel` says. Of several the first to fail; the others are
            cancelled.
    """
    if isinstance(ask, Request):
        return await registry.get(ask.model).submit(ask, caller)
    if isinstance(ask, ListRequest):
        return [describe(model) for model in registry]
    if isinstance(ask, Several):
        return await together(*(_part(ask, number, registry, caller) for number in range(len(ask.parts))))
    return await _one(ask, registry.get(ask.model), caller)


async def _part(ask: Several, number: int, registry: Registry, caller: Caller) -> Answer:
    try:
        return await answer(ask.parts[number], registry, caller)
    except InvalidRequest as failure:
        failure.part = f"{ask.name}[{number}]" if ask.name else ""
        raise


def describe(model: ServedModel) -> ModelInfo:
    """What a client needs to know of a model."""
    spec, settings = model.spec, model.settings
    return ModelInfo(
        model=model.name,
        created=model.created,
        task=spec.task,
        outputs=model.outputs,
        dims=spec.dims,
        labels=spec.scores.labels if spec.scores else (),
        max_tokens=spec.max_tokens,
        max_inputs=settings.max_inputs,
        max_batch_tokens=settings.batch_tokens,
        max_batch_inputs=settings.batch_inputs,
        max_queue_inputs=settings.max_queue_inputs,
        max_queue_tokens=settings.max_queue_tokens,
        waiting_inputs=model.runner.waiting_items,
        waiting_tokens=model.runner.waiting_tokens,
        vocab_size=spec.vocab_size,
        family=spec.family,
        pooling=spec.pooling,
        normalized=spec.normalized,
        prompts=tuple(sorted(spec.prompts)),
        default_prompt=spec.default_prompt,
        revision=model.revision,
        precision=model.precision,
        engine=model.kind,
        size_bytes=model.weight_bytes,
    )


async def _one(
    ask: TokenizeRequest | DetokenizeRequest | InfoRequest | ByTask, model: ServedModel, caller: Caller
) -> Answer:
    match ask:
        case TokenizeRequest():
            return await _tokenize(model, ask)
        case DetokenizeRequest():
            return await _detokenize(model, ask)
        case InfoRequest():
            return describe(model)
        case ByTask():
            if model.spec.task not in ask.readings:
                raise WrongTask(model.name, f"what is asked of models that {' or '.join(ask.readings)}", model.outputs)
            return await model.submit(ask.readings[model.spec.task](), caller)


async def _tokenize(model: ServedModel, ask: TokenizeRequest) -> Tokenized:
    model.prepare.check_inputs(ask.texts)
    prompt = model.prepare.prompt(Options(prompt_name=ask.prompt_name))
    texts = [prompt + text for text in ask.texts]

    def work() -> list[list[Piece]]:
        return [pieces(model.tokenizer, text, special=ask.special) for text in texts]

    return Tokenized(model=model.name, texts=texts, pieces=await model.aside(work), max_tokens=model.spec.max_tokens)


async def _detokenize(model: ServedModel, ask: DetokenizeRequest) -> Detokenized:
    model.prepare.check_inputs(ask.arrays)
    spell = partial(spelled, model.tokenizer, skip_special=ask.skip_special)
    return Detokenized(model=model.name, texts=await model.aside(lambda: [spell(ids) for ids in ask.arrays]))
