"""Linear layers whose weights oneDNN has laid out once, for processors.

Decoding multiplies a handful of rows by every weight. For float32, torch hands that to a routine
that is quick for one row and lays the weight out anew at every call for several, so that on a
processor without AVX-512 a forward of five rows takes nearly twice as long as one of one row. The
layout is worth making once, here: it replaces the plain weight, so it costs no memory (but for a
head that shares its weight with the embedding, which then exists twice).

The layout is opaque: a packed model can neither be trained nor saved.
"""

from __future__ import annotations

import torch
from torch import nn

# the number of rows the layout is made for: a window, not a single token
WINDOW_ROWS = 4


class PackedLinear(nn.Module):
    """Does what the given layer does, up to rounding."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        self.nbytes = linear.weight.nbytes
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight, WINDOW_ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in features) -> (..., out features)."""
        product = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return torch.as_tensor(product)


@torch.no_grad()
def pack_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` in `model`, one by one, so that the peak is one layer more."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child))
