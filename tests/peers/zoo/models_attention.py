"""Attention as PyTorch 2 has it, one function instead of two products and a softmax, and as sums by indices."""
import torch
import torch.nn.functional as F
from torch import nn

from models import GPT, Attention, Family, classes, images, tokens


class Fused(Attention):
    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def fused_gpt():
    model = GPT()
    for block in model.blocks:
        block.attention = Fused(48, 4, 32, True)
    return model


class Contracted(nn.Module):
    """Attention, a product of weights and one of pairs, all written as torch.einsum."""

    def __init__(self, width=12, heads=2, number=5):
        super().__init__()
        part = width // heads

        def weight(*dims):
            return nn.Parameter(torch.randn(dims) * 0.3)

        self.into, self.q, self.k = weight(7, width), weight(heads, width, part), weight(heads, width, part)
        self.v, self.mix, self.out = weight(width, heads, part), weight(heads, part, part), weight(heads, part, width)
        self.down, self.up = weight(width, 2), weight(2, width)
        self.pairs, self.gated = weight(number, width, width), weight(number, width, width)

    def forward(self, x):
        x = torch.einsum("...c,cd->...d", x, self.into)
        q, k = (torch.einsum("btc,hcd->bhtd", x, w) for w in (self.q, self.k))
        v = torch.einsum("chd,btc->bthd", self.v, x)
        shares = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        y = torch.einsum("bhij,bjhd->bihd", shares, v)
        y = torch.einsum("bihd,hde->bihe", y, self.mix)
        x = x + torch.einsum("bihd,hdk", y, self.out)
        x = x + torch.einsum("btc,cd->btd", x, torch.einsum("ck,kd->cd", self.down, self.up))
        first, last = x[:, 0], torch.einsum("btc->bc", x)
        gate = torch.einsum("bi,bj->bij", first, last).tanh()
        return torch.einsum("bi,oij,bj->bo", first, self.pairs, last) + torch.einsum("bij,oij->bo", gate, self.gated)


FAMILIES = {"einsum": Family(Contracted, images(6, 7), classes(5), rate=0.01)}
if hasattr(F, "scaled_dot_product_attention"):
    FAMILIES["gpt-fused"] = Family(fused_gpt, tokens(40, 32), classes(40, 32))
