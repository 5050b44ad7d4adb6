"""Do stacked capsule layers learn? ``python -m experiments.tasks.stacks``: 1 to 8 layers on scikit-learn's digits.

A convolution and 32 primary capsules, then hidden layers of 16 capsules of 8 numbers, the last of 10 of 16. Adam at
0.003, margin loss, no augmentation; of 1797 images 1400 are trained on, in batches of 50, and the others test.
"""

from __future__ import annotations

from statistics import fmean

import torch
from sklearn.datasets import load_digits
from torch import nn

from graphcaps import margin_loss
from graphcaps.nn import CapsuleLayer, PrimaryCaps, scale_layers
from graphcaps.routing import Dynamic, Routing, Spherical

EPOCHS, SEEDS = 10, 2
ROWS: list[tuple[str, Routing | str, bool]] = [
    ("as drawn, dynamic, 3 iterations", Dynamic(3), False),
    ("scaled, dynamic, 3 iterations", Dynamic(3), True),
    ("scaled, dynamic, 2 iterations", Dynamic(2), True),
    ("scaled, spherical", Spherical(concentration=0.5), True),
]


def stack(depth: int, routing: Routing | str) -> tuple[nn.Sequential, nn.Sequential]:
    """Images (B, 1, 8, 8) to children (32, B, 8), and the layers above."""
    sizes, dims = [32] + [16] * (depth - 1) + [10], [8] * depth + [16]
    front = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), PrimaryCaps(32, num_types=8, dim=8, kernel_size=3, stride=2))
    layers = (CapsuleLayer(*sizes[k : k + 2], *dims[k : k + 2], routing) for k in range(depth))
    return front, nn.Sequential(*layers)


def trained(depth: int, routing: Routing | str, scaled: bool, seed: int, epochs: int = EPOCHS) -> tuple[float, float]:
    """Mean length of the last layer's capsules before training, and test accuracy in [0, 1] after it."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:1400], order[1400:]
    torch.manual_seed(seed)
    front, layers = stack(depth, routing)
    if scaled:
        scale_layers(layers, front(images[train[:200]]))
    net = nn.Sequential(front, layers)
    with torch.no_grad():
        start = float(net(images[test]).norm(dim=-1).mean())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    for _ in range(epochs):
        for some in train[torch.randperm(len(train))].split(50):
            loss = margin_loss(net(images[some]).norm(dim=-1).t(), labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        answers = net(images[test]).norm(dim=-1).argmax(dim=0)
    return start, float((answers == labels[test]).float().mean())


def main() -> None:
    """Print the table: mean accuracy in % (the lowest), and how long the last capsules were before training."""
    print("| start and routing | 1 layer | 2 | 4 | 8 |\n|---|---|---|---|---|")
    for name, routing, scaled in ROWS:
        cells = []
        for depth in (1, 2, 4, 8):
            found = [trained(depth, routing, scaled, seed) for seed in range(SEEDS)]
            accuracies = [100 * accuracy for _, accuracy in found]
            cells.append(f"{fmean(accuracies):.1f} ({min(accuracies):.1f}), {found[0][0]:.1g}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
