"""From a checkpoint to transformers' own network of it, with every tensor where it belongs.

No code of a repository is run and nothing is downloaded: not for the network, nor for its attention, which config.json
may wish from a repository of kernels.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
import transformers

from vecmill.errors import CorruptFile, MissingFile, UnsupportedModel
from vecmill.model.spec import ModelSpec
from vecmill.model.tasks import TYPES, Splade, YesNo

TYPE_IDS = "token_type_ids"

POOLER = "pooler."
"""What an encoder may lack, as our poolings take the states; a classifier may not."""


def choose_device(name: str) -> torch.device:
    """The device of that name, "cpu", "mps", "cuda" or "cuda:1"; for "auto" an accelerator where there is one.

    Raises:
        UnsupportedModel: There is none.
    """
    here = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    here += ["mps"] if torch.backends.mps.is_available() else []
    here += ["cpu"]
    if name != "auto" and not any(one == name or one.startswith(f"{name}:") for one in here):
        raise UnsupportedModel(f"device {name!r} is not here; here are: {', '.join(here)}")
    return torch.device(here[0] if name == "auto" else name)


def load_network(spec: ModelSpec, dtype: torch.dtype) -> Any:  # noqa: ANN401 (any of transformers' classes)
    """Transformers' network for a checkpoint, ready to run; weights stay in the mapped file where their type allows.

    Raises:
        UnsupportedModel: transformers has no such network, or the numbers would be others than the checkpoint's.
        MissingFile: The checkpoint lacks a tensor.
        CorruptFile: A tensor has another shape.
    """
    folder, kind = str(spec.transformer), spec.config.get("model_type")
    own = [name for name in spec.config.get("auto_map") or {} if name.startswith("AutoModel")]
    if kind not in transformers.CONFIG_MAPPING:
        code = "; the repository brings code of its own, which is never run" if own else ""
        raise UnsupportedModel(f"{folder}: transformers {transformers.__version__} has no architecture {kind!r}{code}")
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **local)
            config._attn_implementation = None  # noqa: SLF001 (transformers' own choice: torch's attention or its own)
            model, told = getattr(transformers, _auto_class(spec, config)).from_pretrained(
                folder, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **local
            )
        except Exception as error:  # transformers and the readers below it raise what they like
            raise UnsupportedModel(f"{folder}: transformers cannot load it: {_first_line(error)}") from error
    _check_tensors(spec, model, told)
    causal = any(getattr(module, "is_causal", False) for module in model.modules())
    if own and causal and "is_causal" not in spec.config:
        raise UnsupportedModel(
            f"{folder}/config.json: auto_map names the repository's own code for {', '.join(own)}, and no is_causal "
            "says whether it lets tokens see what comes after them"
        )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = -1  # no token is padding, also where a classifier looks for it
    return model.eval()


def takes(model: Any, name: str) -> bool:  # noqa: ANN401 (as above)
    """Whether a network has an input of that name."""
    return name in signature(model.forward).parameters


def wants_types(spec: ModelSpec, model: Any) -> bool:  # noqa: ANN401 (as above)
    """Whether the network is to be told the types of tokens, as transformers' tokenizer of the checkpoint tells them.

    Raises:
        UnsupportedModel: A text alone has tokens of several types.
    """
    if spec.family in TYPES or not takes(model, TYPE_IDS):
        return spec.mark == "second"
    folder = str(spec.transformer)
    with _quiet():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            given = tokenizer("a")
        except Exception as error:  # as in `load_network`
            raise UnsupportedModel(f"{folder}: transformers cannot load its tokenizer: {_first_line(error)}") from error
    types = given.get(TYPE_IDS)
    if types and any(types):
        raise UnsupportedModel(f"{folder}: a text's tokens have the types {sorted(set(types))}; only 0 is supported")
    return types is not None


def _auto_class(spec: ModelSpec, config: Any) -> str:  # noqa: ANN401 (transformers' configuration)
    if isinstance(spec.scores, YesNo):
        return "AutoModelForCausalLM"
    if spec.scores is not None:
        return "AutoModelForSequenceClassification"
    if isinstance(spec.sparse, Splade):
        return "AutoModelForMaskedLM"
    encodes = type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
    return "AutoModelForTextEncoding" if encodes else "AutoModel"  # the encoder alone of T5 and its kin


def _check_tensors(spec: ModelSpec, model: Any, told: dict[str, Any]) -> None:  # noqa: ANN401 (as above)
    """Refuse what transformers would fill with random numbers, or leave out of the middle of the network."""
    folder, headless = spec.transformer, spec.scores is None and not isinstance(spec.sparse, Splade)
    lacking = sorted(name for name in told["missing_keys"] if not (headless and name.startswith(POOLER)))
    if lacking:
        more = f", and {len(lacking) - 1} more lack" if len(lacking) > 1 else ""
        raise MissingFile(f"{folder}: the checkpoint has no tensor {lacking[0]!r}{more}")
    for name, found, wanted in told["mismatched_keys"]:
        raise CorruptFile(f"{folder}: {name!r} has shape {list(found)}, the config wants {list(wanted)}")
    modules = {name for name, _ in model.named_modules() if "." in name}
    for name in sorted(told["unexpected_keys"]):
        inside = name.rsplit(".", 2)[0] in modules
        if inside and name.endswith(".weight"):
            raise UnsupportedModel(f"{folder}: transformers' {type(model).__name__} has no use for the tensor {name!r}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Transformers prints neither bars nor reports: what is wrong becomes an error."""
    log = transformers.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
