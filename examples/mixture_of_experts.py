"""A mixture of experts on scikit-learn's digits: which expert gets which digits, and how many experts die.

    python mixture_of_experts.py --balance 0.1 --to gate.gif

A gate divides each digit among eight experts, by a softmax. Nothing makes it use all of them, so it may learn to use
few. ``--balance`` is the weight of a loss that is smallest if all experts get equally many digits (Shazeer et al. 2017,
arXiv 1701.06538). ``graphcaps.watch`` records the gate at several epochs of training.
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import graphcaps

EPOCHS = (0, 1, 2, 4, 8, 16, 32, 64)


class Mixture(nn.Module):
    def __init__(self, experts, pixels=64, classes=10):
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(pixels, experts), nn.Softmax(dim=-1))
        self.experts = nn.ModuleList(nn.Linear(pixels, classes) for _ in range(experts))

    def forward(self, x):
        share = self.gate(x)  # (digits, experts)
        answers = torch.stack([expert(x) for expert in self.experts], dim=1)  # (digits, experts, classes)
        return (share[..., None] * answers).sum(dim=1), share


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--balance", type=float, default=0.0, help="weight of the loss that balances loads")
    parser.add_argument("--epochs", type=int, default=64)
    parser.add_argument("--to", default="gate.gif", help="file for the picture")
    args = parser.parse_args()
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    torch.manual_seed(0)
    test = torch.rand(len(y)) < 0.3
    net = Mixture(args.experts)
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    names = {"digit": [f"a {label}" for label in y[test].tolist()]}
    seen = graphcaps.watch(net, softmax={"gate": "digit -> expert"}, names={"gate": names})
    for epoch in range(args.epochs + 1):
        if epoch in EPOCHS:
            with seen, torch.no_grad():
                right = (net(x[test])[0].argmax(1) == y[test]).double().mean()
            seen.snapshot(epoch=epoch)
            numbers = ", ".join(f"{name} {number:.2f}" for name, number in seen.scalars().items())
            print(f"epoch {epoch:2}: {100 * right:.1f} % right, {numbers}", flush=True)
        for batch in (~test).nonzero()[:, 0][torch.randperm(int((~test).sum()))].split(64):
            answer, share = net(x[batch])
            load = share.mean(dim=0)
            loss = F.cross_entropy(answer, y[batch]) + args.balance * args.experts * load.square().sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
    print("picture:", seen.graph(args.to, over="epochs"))


if __name__ == "__main__":
    main()
