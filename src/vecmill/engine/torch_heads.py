"""What turns token states into answers, in torch: the same poolings and modules as `vecmill.graph.heads`.

Every function takes states [rows, length, width] and which tokens count, a mask bool [rows, length]; padding and, where
the pooling leaves it out, the prompt do not.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vecmill.errors import CorruptFile, UnsupportedModel
from vecmill.model.modules import Dense, LayerNorm, Module, Normalize, Projection, Tail
from vecmill.model.weights import Weights, read_torch, read_weights

LEAST = 1e-12
"""A shorter row is divided by this instead of by its length."""


def cls(states: Tensor, mask: Tensor) -> Tensor:
    """The state of the first token that counts."""
    return states[torch.arange(len(states)), mask.int().argmax(1)]


def lasttoken(states: Tensor, mask: Tensor) -> Tensor:
    """The state of the last token that counts."""
    return states[torch.arange(len(states)), mask.shape[1] - 1 - mask.flip(1).int().argmax(1)]


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over tokens."""
    return _sum(states, mask) / _count(mask)


def maximum(states: Tensor, mask: Tensor) -> Tensor:
    """The largest value over tokens, number by number."""
    return states.masked_fill(~mask[:, :, None], torch.finfo(states.dtype).min).amax(1)


def mean_sqrt_len(states: Tensor, mask: Tensor) -> Tensor:
    """The sum over tokens, divided by the square root of their number."""
    return _sum(states, mask) / _count(mask).sqrt()


def weightedmean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over tokens weighted by position, 1 for the first."""
    weights = torch.arange(1, states.shape[1] + 1, device=states.device) * mask
    total: Tensor = (states.float() * weights[:, :, None]).sum(1)
    return total / weights.sum(1, keepdim=True)


POOLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": cls,
    "max": maximum,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_sqrt_len,
    "weightedmean": weightedmean,
    "lasttoken": lasttoken,
}

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Tanh": torch.tanh,
    "Identity": lambda x: x,
    "ReLU": torch.relu,
    "GELU": nn.functional.gelu,
    "Sigmoid": torch.sigmoid,
    "SiLU": nn.functional.silu,
    "LeakyReLU": nn.functional.leaky_relu,
    "ELU": nn.functional.elu,
    "SELU": nn.functional.selu,
    "Mish": nn.functional.mish,
    "ReLU6": nn.functional.relu6,
    "Softplus": nn.functional.softplus,
    "Softsign": nn.functional.softsign,
}


def pooled(states: Tensor, mask: Tensor, modes: tuple[str, ...], modules: list[nn.Module]) -> Tensor:
    """Rows [rows, dims] in float32."""
    rows = torch.cat([POOLING[mode](states, mask) for mode in modes], dim=1).float()
    for module in modules:
        rows = module(rows)
    return rows


def load_tail(tail: Tail, device: torch.device) -> list[nn.Module]:
    """The modules after a pooling, or on states, in float32.

    Raises:
        UnsupportedModel: An activation is unknown.
        MissingFile: A tensor is absent.
        CorruptFile: A tensor has another shape.
    """
    return [_load(module).to(device).eval() for module in tail]


class _Normalize(nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.normalize(rows.float(), dim=-1, eps=LEAST)


class _Dense(nn.Module):  # type: ignore[misc]  # as above
    def __init__(self, module: Dense) -> None:
        super().__init__()
        activation = ACTIVATIONS.get(module.activation)
        if activation is None:
            known = ", ".join(sorted(ACTIVATIONS))
            raise UnsupportedModel(
                f"{module.folder}: activation {module.activation!r} is not supported; supported: {known}"
            )
        weights = read_weights(module.folder)
        out, into = module.out_features, module.in_features
        self.linear = _linear(weights, "linear.weight", "linear.bias" if module.bias else None, (out, into))
        across = module.residual and out != into
        self.across = _linear(weights, "residual.weight", None, (out, into)) if across else nn.Identity()
        self.residual = module.residual
        self.activation = activation

    def forward(self, rows: Tensor) -> Tensor:
        out = self.activation(self.linear(rows.float()))
        return out + self.across(rows.float()) if self.residual else out


def _load(module: Module) -> nn.Module:
    match module:
        case Normalize():
            return _Normalize()
        case Dense():
            return _Dense(module)
        case Projection():
            return project(module)
        case LayerNorm():
            weights = read_weights(module.folder)
            norm = nn.LayerNorm(module.dims)
            norm.weight = _parameter(weights, "norm.weight", module.dims)
            norm.bias = _parameter(weights, "norm.bias", module.dims)
            return norm


def project(module: Projection) -> nn.Linear:
    """A linear layer of the size of its tensor; errors are those of `load_tail`."""
    file = module.place.suffix == ".pt"
    weights = Weights(read_torch(module.place), module.place.parent) if file else read_weights(module.place)
    shape = weights[module.weight].shape if module.weight in weights else ()
    if len(shape) != len(("out", "in")):
        raise CorruptFile(f"{module.place}: {module.weight!r} has shape {list(shape)}, a matrix is needed")
    return _linear(weights, module.weight, module.bias, (shape[0], shape[1]))


def _linear(weights: Weights, weight: str, bias: str | None, shape: tuple[int, int]) -> nn.Linear:
    linear = nn.Linear(shape[1], shape[0], bias=bias is not None)
    linear.weight = _parameter(weights, weight, *shape)
    if bias is not None:
        linear.bias = _parameter(weights, bias, shape[0])
    return linear


def _parameter(weights: Weights, name: str, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(weights.array(name, *shape).copy()), requires_grad=False)


def _sum(states: Tensor, mask: Tensor) -> Tensor:
    return (states.float() * mask[:, :, None]).sum(1)


def _count(mask: Tensor) -> Tensor:
    return mask.sum(1, keepdim=True)
