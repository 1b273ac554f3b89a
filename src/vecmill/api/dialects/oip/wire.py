"""The wire types of the Open Inference Protocol, and the names of tensors."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

TEXT, QUERY = "text", "query"
"""Names of the tensors that come in; their capitals do not matter."""

VERSION = "1"
"""The one version of every model."""

Size = Annotated[int, msgspec.Meta(ge=0)]
"""A number of bytes."""


class OipTensorParameters(msgspec.Struct, kw_only=True):
    """Where a tensor's data stands: after the JSON where a size is given; in shared memory it cannot."""

    binary_data_size: Size | None = None
    shared_memory_region: str | None = None


class OipTensor(msgspec.Struct):
    """A tensor of texts. Its data may be nested or flat, or stand after the JSON."""

    name: str
    shape: list[int]
    datatype: Literal["BYTES"]
    data: list[Any] | None = None
    parameters: OipTensorParameters | None = None

    @property
    def size_bytes(self) -> int | None:
        """How much of what follows the JSON is this tensor's; None where its data stand in the JSON."""
        return self.parameters.binary_data_size if self.parameters else None


class OipWantedParameters(msgspec.Struct, kw_only=True):
    """How a tensor is wanted; the labels of the largest numbers, and shared memory, are not served."""

    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: str | None = None


class OipWanted(msgspec.Struct):
    """A tensor that is wanted."""

    name: str
    parameters: OipWantedParameters | None = None


class OipParameters(msgspec.Struct, kw_only=True):
    """Whether tensors are wanted in binary where they do not say; and, not the protocol's own, what changes numbers."""

    binary_data_output: bool | None = None
    input_type: str | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    truncate: bool | None = None
    normalize: bool | None = None


class OipInferBody(msgspec.Struct, kw_only=True):
    """Tensors, and which are wanted; all where nothing is said."""

    inputs: list[OipTensor]
    id: str | None = None
    parameters: OipParameters | None = None
    outputs: list[OipWanted] | None = None


class OipNumbersParameters(msgspec.Struct):
    """How much of what follows the JSON is this tensor's."""

    binary_data_size: int


class OipNumbers(msgspec.Struct):
    """A tensor of float32, row by row: flat numbers, or little-endian bytes after the JSON."""

    name: str
    shape: list[int]
    data: Any | UnsetType = UNSET
    datatype: Literal["FP32"] = "FP32"
    parameters: OipNumbersParameters | UnsetType = UNSET


class OipInferAnswer(msgspec.Struct, omit_defaults=True):
    """The tensor, and the `id` that came."""

    model_name: str
    model_version: str
    outputs: list[OipNumbers]
    id: str | None = None


class OipShape(msgspec.Struct):
    """What a tensor looks like; -1 is any number."""

    name: str
    datatype: str
    shape: list[int]


class OipModel(msgspec.Struct):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[OipShape]
    outputs: list[OipShape]


class OipConfigShape(msgspec.Struct):
    """What a tensor looks like, in the words of Triton's configuration."""

    name: str
    data_type: str
    dims: list[int]


class OipConfig(msgspec.Struct):
    """What a model takes and gives as Triton's configuration says it; 0 means that `dims` hold the number of texts."""

    name: str
    platform: str
    backend: str
    input: list[OipConfigShape]
    output: list[OipConfigShape]
    max_batch_size: int = 0


class OipError(msgspec.Struct):
    """Every error has this body."""

    error: str
