"""torch's other modes, layer by mode: each gives the layer's numbers, or is refused in a sentence: docs/export.md."""

import io

import pytest
import torch
from packaging.version import Version
from torch import func
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from graphcaps import dgl, engine, nn

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(Version(torch.__version__).release < (2, 9), reason="torch 2.4 fails; 2.14 was tried"),
    pytest.mark.filterwarnings("ignore"),
]
BOTH = dgl.graph(([0, 1, 1, 2, 0, 1, 2], [1, 0, 2, 1, 0, 1, 2]))
EDGES, BATCH, POSITIONS = torch.stack(BOTH.edges()), torch.tensor([0, 0, 1]), torch.rand(3, 2)
X, U = torch.rand(3, 4), torch.rand(6, 2, 8)


def poses(layer, u):
    return layer(nn.Poses(u, u[..., 0].sigmoid()))


def on_graph(layer, x):
    return layer(BOTH, x)


def pyg(name):
    return lambda *sizes: getattr(pytest.importorskip("graphcaps.pyg", reason="needs the extra pyg"), name)(*sizes)


# How each layer is made, its input, and how it is called if not by its input alone. One of each family is quick.
LAYERS = {
    "CapsuleLayer": (lambda: nn.CapsuleLayer(6, 2), U),
    "ConvCaps": (lambda: nn.ConvCaps((2, 3), 1, 2, 2), U),
    "PrimaryCaps": (lambda: nn.PrimaryCaps(2, 2, 4, 3), torch.rand(2, 2, 5, 5)),
    "DepthwisePrimaryCaps": (lambda: nn.DepthwisePrimaryCaps(16, (2, 2)), torch.rand(2, 16, 2, 2)),
    "MatrixClassCaps": (lambda: nn.MatrixClassCaps(2, POSITIONS, 2), torch.rand(6, 2, 16), poses),
    "Decoder": (lambda: nn.Decoder(3, 2, (1, 2, 2)), torch.rand(2, 3, 2), lambda layer, x: layer(x, BATCH[1:])),
    "CapsuleConv": (lambda: nn.CapsuleConv(4, 3, 2), X, on_graph),
    "CapsuleReadout": (lambda: nn.CapsuleReadout(4, 3, 2), X, on_graph),
    "BeliefConv": (lambda: nn.BeliefConv(4, 3, 2, 2), X, on_graph),
    "pyg.CapsuleConv": (lambda: pyg("CapsuleConv")(4, 3, 2), X, lambda layer, x: layer(x, EDGES)),
    "pyg.CapsuleReadout": (lambda: pyg("CapsuleReadout")(4, 3, 2), X, lambda layer, x: layer(x, BATCH, dim_size=2)),
    "pyg.BeliefConv": (lambda: pyg("BeliefConv")(4, 3, 2, 2), X, lambda layer, x: layer(x, EDGES)),
}
QUICK = "CapsuleLayer", "DepthwisePrimaryCaps", "CapsuleReadout", "pyg.CapsuleConv"


def firsts(result):
    return result[0] if isinstance(result, tuple) else result


class Whole(torch.nn.Module):
    def __init__(self, layer, call):
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, x):
        return firsts(self.call(self.layer, x))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in QUICK)) for n in LAYERS])
def test_torchs_modes_give_the_layers_numbers_or_say_why_not(name):
    torch.manual_seed(0)
    make, x, *called = LAYERS[name]
    layer, close = make().eval(), dict(rtol=1e-3, atol=1e-5)
    call = called[0] if called else lambda layer, x: layer(x)

    def first(x):
        return firsts(call(layer, x))

    def loss(x):
        return first(x).square().sum()

    variable = x.clone().requires_grad_()
    slope = torch.autograd.grad(loss(variable), variable)[0]
    assert_close(func.grad(loss)(x), slope, **close)
    assert_close(func.jvp(loss, (x,), (x,))[1], (slope * x).sum(), **close)
    jacobian = torch.autograd.functional.jacobian(first, x)
    assert_close(func.jacrev(first)(x), jacobian, **close)
    assert_close(func.jacfwd(first)(x), jacobian, **close)
    with forward_ad.dual_level():
        assert_close(forward_ad.unpack_dual(loss(forward_ad.make_dual(x, x))).tangent, (slope * x).sum(), **close)
    with engine("torch"):
        slope = torch.autograd.grad(loss(variable), variable, create_graph=True)[0]
        bend = torch.autograd.grad(slope, variable, x)[0]
    product = (func.hessian(loss)(x).flatten(x.dim()).flatten(0, -2) * x.flatten()).sum(1).view_as(x)
    assert_close(product, bend, rtol=1e-2, atol=1e-4)

    whole, file = Whole(layer, call), io.BytesIO()
    torch.export.save(torch.export.export(whole, (x,), strict=False), file)
    file.seek(0)
    assert_close(torch.export.load(file).module()(x), whole(x), **close)
    assert_close(torch.jit.trace(whole, (x,), check_trace=False)(x), whole(x), **close)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert first(mode.from_tensor(x)).shape == jacobian.shape[: -x.dim()]
    wanted = first(x)
    with torch.device("meta"):
        assert next(make().parameters()).is_meta
        assert_close(first(x), wanted)
    assert_close(first(torch._neg_view(-x)), wanted)
    again = checkpoint(first, variable, use_reentrant=False).square().sum()
    assert_close(torch.autograd.grad(again, variable)[0], slope)
