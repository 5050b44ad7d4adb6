"""Group what a user did into interests, by routing on a bipartite graph of behaviours and interests.

    python interests.py
    python interests.py --dim 8

The tastes are planted: each user likes 1 to 4 of 40 topics, with 25 items each; one in ten behaviours is at random. A
matrix turns an item's features into a vote, which a user's K = 4 interests share. The best interest scores an item.
"capsules" starts from max-min seeds: the behaviour nearest to the mean, then always the one furthest from all seeds.
The others: the mean of the history, by equal couplings (uniform); attention with K queries; dynamic routing from random
logits; the seeds without iterations.

"tastes" is the adjusted mutual information of interests and topics, over 200 users with several tastes: 100 at best, 0
by chance. "Recall@50" is the share of 5 hidden behaviours per user among the 50 best items, in %.
"""

from argparse import ArgumentParser
from statistics import fmean
from types import SimpleNamespace

import torch
from sklearn.metrics import adjusted_mutual_info_score
from torch import nn
from torch.nn import functional as F

from graphcaps import bipartite_graph, route, watch
from graphcaps.routing import Dynamic, Spherical, Uniform

TOPICS, PER_TOPIC, K, HIDDEN, BATCH, SCALE, NOISE = 40, 25, 4, 5, 250, 15, 1.0
NETWORKS = "uniform", "attention", "random logits", "start alone", "capsules"


def draw(users, dim, seed):
    """Return users' behaviours, sorted by user: the user, the item, and whether it is hidden; and whether by taste."""
    torch.manual_seed(seed)
    count = torch.randint(10, 41, (users,)) + HIDDEN
    user = torch.arange(users).repeat_interleave(count)
    tastes, number = torch.rand(users, TOPICS).argsort(1)[:, :K], torch.randint(1, K + 1, (users,))
    topic = tastes[user, (torch.rand(len(user)) * number[user]).long()]
    by_taste = torch.rand(len(user)) < 0.9
    topic = torch.where(by_taste, topic, torch.randint(TOPICS, topic.shape))
    item = topic * PER_TOPIC + torch.randint(PER_TOPIC, topic.shape)
    hidden = torch.arange(len(user)) - (count.cumsum(0) - count)[user] < HIDDEN
    x = F.normalize(torch.randn(TOPICS, 1, dim) + NOISE * torch.randn(TOPICS, PER_TOPIC, dim), dim=2).flatten(0, 1)
    return SimpleNamespace(user=user, item=item, hidden=hidden, by_taste=by_taste, several=number > 1, users=users, x=x)


def first_of_best(score, user, users):
    """Return for each user the first behaviour with the highest score."""
    best = score.new_full((users,), -torch.inf).scatter_reduce(0, user, score, "amax")
    place = torch.where(score == best[user], torch.arange(len(user)), len(user))
    return torch.full((users,), len(user)).scatter_reduce(0, user, place, "amin")


def max_min(z, user, users):
    """Return the cosines (N, K) of each behaviour with its user's seeds, without a gradient."""
    unit = F.normalize(z.detach(), dim=-1)
    centre = F.normalize(torch.zeros(users, z.shape[1]).index_add(0, user, unit), dim=-1)
    cosines, score = [], (unit * centre[user]).sum(-1)
    for _ in range(K):
        seed = first_of_best(score, user, users)
        cosines.append((unit * unit[seed][user]).sum(-1))
        score = -torch.stack(cosines).amax(0)
    return torch.stack(cosines, 1)


class Net(nn.Module):
    def __init__(self, name, x):
        super().__init__()
        self.name, self.x, self.matrix = name, x, nn.Parameter(torch.eye(x.shape[1]))
        self.queries = nn.Parameter(torch.randn(x.shape[1], K) / x.shape[1] ** 0.5)
        self.routing = {"random logits": Dynamic(3), "capsules": Spherical(concentration=4.0)}.get(name, Uniform())

    def forward(self, user, item, users):
        """Return interests (users, k, dim), and the interest (N, k) to which each behaviour belongs."""
        z = self.x[item] @ self.matrix
        if self.name == "attention":  # a softmax over a user's behaviours, whose denominator the length below cancels
            logits = z.tanh() @ self.queries
            v = torch.zeros(users, K, z.shape[1]).index_add(0, user, logits.exp()[..., None] * z[:, None])
            return F.normalize(v, dim=-1), logits
        parents = (user[:, None] * K + torch.arange(K)).flatten()
        graph = bipartite_graph(torch.arange(len(user)).repeat_interleave(K), parents, len(user), users * K)
        prior = torch.randn(len(parents)) if self.name == "random logits" else 0.0
        prior = 4 * max_min(z, user, users).flatten() if self.name in ("capsules", "start alone") else prior
        routed = route(graph, z.repeat_interleave(K, 0), self.routing, prior=prior)
        return F.normalize(routed.pose.view(users, K, -1), dim=-1), routed.coupling.view(-1, K)


def train(name, data, steps, seed):
    torch.manual_seed(seed)
    net = Net(name, data.x)
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(steps):
        some = torch.randperm(data.users)[:BATCH].sort().values
        rows = torch.isin(data.user, some) & ~data.hidden
        of, did = torch.searchsorted(some, data.user[rows]), data.item[rows]
        target = first_of_best(torch.rand(len(of)), of, len(some))  # one of each user's behaviours
        rest = torch.ones(len(of), dtype=torch.bool).index_fill(0, target, False)
        v, wanted = net(of[rest], did[rest], len(some))[0], did[target]
        nearest = v[torch.arange(len(some)), (v @ net.x[wanted, :, None]).squeeze(2).argmax(1)]
        adam.zero_grad()
        F.cross_entropy(SCALE * nearest @ net.x.T, wanted).backward()
        adam.step()
    return net


@torch.no_grad()
def score(net, data):
    user, item = data.user[~data.hidden], data.item[~data.hidden]
    v, belongs = net(user, item, data.users)
    best = (v @ net.x.T).amax(1).topk(50).indices  # (users, 50)
    recall = (best[data.user[data.hidden]] == data.item[data.hidden, None]).any(1).float().mean()
    of_users = [data.by_taste[~data.hidden] & (user == one) for one in data.several.nonzero()[:200]]
    scores = [adjusted_mutual_info_score(item[rows] // PER_TOPIC, belongs[rows].argmax(1)) for rows in of_users]
    return 100 * fmean(scores), 100 * float(recall)


def show(net, data):
    """Print one user's behaviours with their interests after each iteration, and draw how they flow there."""
    one = int(data.several.nonzero()[0])
    rows = (data.user == one) & ~data.hidden
    item, user = data.item[rows], torch.zeros(int(rows.sum()), dtype=torch.int64)
    with torch.no_grad(), watch() as seen:
        among_all = net(data.user[~data.hidden], data.item[~data.hidden], data.users)[0][one]
        alone = net(user, item, 1)[0]  # watch keeps the last call
    rounds = torch.from_numpy(seen["route"].c[0, :, 0]).view(-1, len(item), K).argmax(2)
    print(f"user {one}: vectors alone and among all users differ by {float((alone - among_all).abs().max()):g}")
    for n in item.argsort().tolist():
        print(f"  item {item[n]} of topic {item[n] // PER_TOPIC}: {' -> '.join(map(str, rounds[:, n].tolist()))}")
    print(seen.graph("interests.gif"))


def main():
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    for name, number in (("users", 2000), ("dim", 64), ("steps", 60), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=number)
    args = parser.parse_args()
    data = draw(args.users, args.dim, args.seed)
    for name in NETWORKS:
        net = train(name, data, args.steps, args.seed)
        print("{:14} tastes {:5.1f}, Recall@50 {:.1f}".format(name, *score(net, data)), flush=True)
    show(net, data)


if __name__ == "__main__":
    main()
