"""Small models with a norm in them: torch's, ours in its place, or a spoiled one."""

import torch
import torch.nn.functional as F
from torch import nn

from impls.inhouse.model import layer_norm, rms_norm

TOKENS = 64


class OurLayerNorm(nn.LayerNorm):
    def forward(self, x):
        return layer_norm(x, self.weight, self.bias, self.eps)


class OurRMSNorm(nn.RMSNorm):
    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


class FlatLayerNorm(nn.LayerNorm):
    """The planted fault: dx without its part for the spread of a row."""

    def forward(self, x):
        y = super().forward(x)
        rstd = (x.var(-1, keepdim=True, correction=0) + self.eps).rsqrt().detach()
        without = (x - x.mean(-1, keepdim=True)) * rstd * self.weight + self.bias
        return without + (y - without).detach()


TORCHS = (nn.LayerNorm, nn.RMSNorm)
OURS = (OurLayerNorm, OurRMSNorm)
SPOILED = (FlatLayerNorm, nn.RMSNorm)


class Block(nn.Module):
    """A residual block around one norm function."""

    def __init__(self, norm, cols):
        super().__init__()
        self.norm = norm
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, cols))
        self.bias = nn.Parameter(torch.linspace(-1, 1, cols))

    def forward(self, x):
        return x + torch.tanh(self.norm(2 * x, self.weight, self.bias))


class Layer(nn.Module):
    def __init__(self, width, norm):
        super().__init__()
        self.norms = nn.ModuleList([norm(width), norm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    """Two layers, which learn a rule in a few steps."""

    def __init__(self, width, norms):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.layers = nn.Sequential(*(Layer(width, norms[0]) for _ in range(2)))
        self.norm, self.head = norms[1](width, eps=1e-6), nn.Linear(width, TOKENS)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.embedding(tokens))))


def losses(norms, *, dtype, device, width, batch, length, steps):
    """The loss of every step; each token follows from the one before."""
    torch.manual_seed(11)
    model = Transformer(width, norms).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    start = torch.randint(TOKENS, (steps, batch, 1), generator=torch.Generator().manual_seed(12))
    tokens = [start]
    for _ in range(length):
        tokens.append((3 * tokens[-1] + 1) % TOKENS)
    found = []
    for step in torch.cat(tokens, -1).to(device):
        loss = F.cross_entropy(model(step[:, :-1]).float().flatten(0, 1), step[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return torch.stack(found).tolist()
