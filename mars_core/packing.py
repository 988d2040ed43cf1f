"""Linear layers whose weights oneDNN has laid out once, for processors.

Decoding multiplies a handful of rows by every weight. For float32, torch hands that to a routine
that is quick for one row and lays the weight out anew at every call for several, so that on a
processor without AVX-512 a forward of five rows takes nearly twice as long as one of one row. The
layout is worth making once, here: it replaces the plain weight, so it costs no memory (but for a
head that shares its weight with the embedding, which then exists twice).

Weights in 8 bits have a routine of their own for few rows, as quick as the packed ones.

Layers that are given the same input (queries, keys and values; gate and up) are laid out as one:
a product less to start, and longer ones to share between threads.

The layout is opaque: a packed model can neither be trained nor saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

# the number of rows the layout is made for: a window, not a single token
WINDOW_ROWS = 4
# up to so many rows torch's product with 8 bits is the faster one; it takes inputs by this many
INT8_ROWS, INT8_INPUTS = 8, 32
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class PackedLinear(nn.Module):
    """Does what the given layers of one input do side by side, up to rounding."""

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.bias = bias_of(layers)
        self.nbytes = weight.nbytes
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, WINDOW_ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in features) -> (..., out features)."""
        product = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return torch.as_tensor(product)


class Int8Linear(nn.Module):
    """The same for layers that bitsandbytes has quantised to int8: a scale for each line.

    Only the weights are in 8 bits; bitsandbytes puts what they are multiplied with in 8 bits too.
    """

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers])
        scales = torch.cat([layer.weight.SCB for layer in layers]) / 127
        self.bias = bias_of(layers)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scales = nn.Parameter(scales.to(torch.bfloat16), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in features), bfloat16 -> (..., out features)."""
        flat = x.reshape(-1, x.shape[-1])
        if len(flat) <= INT8_ROWS:
            y = torch._weight_int8pack_mm(flat, self.weight, self.scales)
        else:
            y = linear(flat, self.weight.to(x.dtype)) * self.scales
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], -1)


def bias_of(layers: Sequence[Any]) -> nn.Parameter | None:
    """The biases of all, if they have any."""
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return nn.Parameter(torch.cat(biases), requires_grad=False) if biases else None


class Joined(nn.Module):
    """A layer that is several. Whoever asks first has the product computed for all.

    It is kept for as long as the others ask with the very same tensor, the last of them included.
    """

    def __init__(self, product: nn.Module) -> None:
        super().__init__()
        self.product = product
        self._known: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, x: torch.Tensor, *, last: bool) -> torch.Tensor:
        """x: (..., in features) -> (..., out features of all)."""
        if self._known is None or self._known[0] is not x:
            self._known = x, self.product(x)
        product = self._known[1]
        if last:
            self._known = None
        return product


class Part(nn.Module):
    """One of the layers that are `joined`, the one of these columns."""

    def __init__(self, joined: Joined, columns: slice, *, last: bool) -> None:
        super().__init__()
        self.joined, self._columns, self._last = joined, columns, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in features) -> (..., out features), a view."""
        return torch.as_tensor(self.joined(x, last=self._last)[..., self._columns])


def side_by_side(layers: Sequence[nn.Module], x: torch.Tensor) -> torch.Tensor:
    """What layers of the same input give, behind one another: (..., out features of all)."""
    if isinstance(layers[0], Part):
        return torch.as_tensor(layers[0].joined.product(x))
    return torch.cat([layer(x) for layer in layers], dim=-1)


def pack_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` in `model`."""
    replace(model, nn.Linear, PackedLinear)


def pack_int8(model: nn.Module) -> bool:
    """Replace every layer that bitsandbytes has quantised to int8, if all can be: whether so."""
    from bitsandbytes.nn.modules import Linear8bitLt

    if any(
        layer.in_features % INT8_INPUTS for layer in model.modules() if type(layer) is Linear8bitLt
    ):
        return False
    replace(model, Linear8bitLt, Int8Linear)
    return True


@torch.no_grad()
def replace(model: nn.Module, kind: type[nn.Module], packed: Callable[..., nn.Module]) -> None:
    """Replace the layers of a type, one by one, so that the peak is one layer more.

    packed: what does the work of some layers side by side.
    """
    # the layers themselves must not be held: each has to go when its own is done
    for parent in [module for module in model.modules() if type(module) is not kind]:
        for names in TOGETHER:
            layers: list[Any] = [getattr(parent, name, None) for name in names]
            if can_join(layers, kind):
                joined = Joined(packed(*layers))
                ends = accumulate((layer.out_features for layer in layers), initial=0)
                for name, (start, end) in zip(names, pairwise(ends), strict=True):
                    part = Part(joined, slice(start, end), last=name == names[-1])
                    setattr(parent, name, part)
        alone = [name for name, child in parent.named_children() if type(child) is kind]
        for name in alone:
            setattr(parent, name, packed(getattr(parent, name)))
    # whatever is left of the file's tensors would keep all of it mapped, and every page was read
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def can_join(layers: Sequence[Any], kind: type[nn.Module]) -> bool:
    """Whether all are layers of this type for one input, all or none of them with a bias."""
    if not all(type(layer) is kind for layer in layers):
        return False
    return len({(layer.in_features, layer.bias is None) for layer in layers}) == 1
