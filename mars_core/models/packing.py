"""Linear layers whose weights oneDNN has laid out once, for processors.

Decoding multiplies a handful of rows by every weight. For float32, torch hands that to a routine
that is quick for one row and lays the weight out anew at every call for several, so that on a
processor without AVX-512 a forward of five rows takes nearly twice as long as one of one row. The
layout is worth making once, here: it replaces the plain weight, so it costs no memory (but for a
head that shares its weight with the embedding, which then exists twice).

Layers that are given the same input (queries, keys and values; gate and up) are laid out as one:
a product less to start, and longer ones to share between threads.

The layout is opaque: a packed model can neither be trained nor saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import nn

# the number of rows the layout is made for: a window, not a single token
WINDOW_ROWS = 4
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class PackedLinear(nn.Module):
    """Does what a linear layer with this weight (out features, in features) does, up to rounding.

    It does not keep the weight.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.nbytes = weight.nbytes
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, WINDOW_ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in features) -> (..., out features)."""
        product = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return torch.as_tensor(product)


class Joined(nn.Module):
    """Several linear layers as one. Whoever asks first has the product computed for all.

    It is kept for as long as the others ask with the very same tensor, the last of them included.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.product = PackedLinear(weight, torch.cat(biases) if biases else None)
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


@torch.no_grad()
def pack_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` in `model`, one by one, so that the peak is one layer more."""
    for parent in list(model.modules()):
        for names in TOGETHER:
            join(parent, names)
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child.weight, child.bias))


def join(parent: nn.Module, names: Sequence[str]) -> None:
    """Replace layers of `parent` by parts of one, where it has them and they can be joined."""
    layers = [getattr(parent, name, None) for name in names]
    plain = [layer for layer in layers if type(layer) is nn.Linear]
    alike = {(layer.in_features, layer.bias is None) for layer in plain}
    if len(plain) < len(names) or len(alike) > 1:
        return
    joined = Joined(plain)
    ends = accumulate((layer.out_features for layer in plain), initial=0)
    for name, (start, end) in zip(names, pairwise(ends), strict=True):
        setattr(parent, name, Part(joined, slice(start, end), last=name == names[-1]))
