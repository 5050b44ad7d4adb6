"""BeliefConv: its formula against loops, what must hold on any graph, and that it finds hidden groupings."""

import pytest
import torch
from gpu_kernels import compile_for, device_of_kernels, outside_only, run_in_interpreter

import graphcaps
from graphcaps import InputError, dgl, pyg
from graphcaps.beliefs import fit_rates
from graphcaps.kernels import dispatch
from graphcaps.nn import BeliefConv

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:graph. each parallel edge")]

F, D, K, T, N = 5, 4, 3, 3, 7
SRC = [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 6, 0, 2]  # a loop, and parallel edges
DST = [1, 0, 2, 1, 4, 3, 3, 6, 6, 5, 5, 2, 0]
REVERSE = [1, 0, 3, 2, 6, 5, 4, 9, 10, 7, 8, 12, 11]
GRAPH = dgl.graph((SRC, DST), num_nodes=N)


def layer_of(in_feats=F, iterations=T, kind=BeliefConv, **options):
    torch.manual_seed(0)
    layer = kind(in_feats, [D, D - 1, D], K, iterations, **options).double()
    for parameter in (layer.beliefs.bias, layer.beliefs.logarithms, layer.beliefs.log_rates):
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        layer.beliefs.table.add_(0.3 * torch.randn_like(layer.beliefs.table))
    return layer


def by_loops(layer, x, weight):
    """The docstring's formula, edge by edge: h (N, K, D) and c (E, K). Capsule 1 has no state 3."""
    beliefs, edges = layer.beliefs, list(enumerate(zip(SRC, DST, strict=True)))
    (epsilon, gain, nu), rho = beliefs.learned, beliefs.rates
    S = torch.stack([(table + table.T) / 2 for table in beliefs.table])
    A = torch.stack([((1 + rho[k] / epsilon) ** S[k] - 1) * epsilon / rho[k] for k in range(K)])
    z = torch.einsum("nf,fkd->nkd", x, beliefs.weight) + beliefs.bias
    z[:, 1, 3] = -torch.inf
    h, d = z.softmax(-1), sum(weight) / N
    degree = torch.stack([sum(weight[e] for e, (_, to) in edges if to == v) for v in range(N)]) / d
    m, f = [h[u] for u in SRC], torch.einsum("u,ukd->kd", degree, h) / N
    for _ in range(beliefs.iterations):
        a = [torch.einsum("kd,kdc,kc->k", m[e], A, m[REVERSE[e]]).clamp_min(0) for e, _ in edges]
        f = (torch.einsum("u,ukd->kd", degree, h) / N + f) / 2
        told = []
        for e, _ in edges:
            others = [sum(rho[other] * a[e][other] for other in range(K) if other != k) for k in range(K)]
            w = torch.stack([gain * torch.log(1 + rho[k] / (epsilon + others[k])) * weight[e] for k in range(K)])
            told.append(w[:, None] * torch.einsum("kd,kdc->kc", m[e], S))
        absent = torch.einsum("v,kd->vkd", degree, torch.einsum("kd,kdc->kc", f, A)) * d / (1 / D + 1 / (D - 1) + 1 / D)
        t = z - nu * rho[:, None] * absent
        t = torch.stack(
            [t[v] + sum([told[e] for e, (_, to) in edges if to == v], 0 * z[0].nan_to_num(neginf=0)) for v in range(N)]
        )
        h = t.softmax(-1)
        m = [0.7 * (t[u] - told[REVERSE[e]]).softmax(-1) + 0.3 * m[e] for e, (u, _) in edges]
    shares = rho * torch.stack(a)
    return h, shares / shares.sum(1, keepdim=True)


@pytest.fixture(params=["cpu", "cuda"])
def device(request, monkeypatch) -> str:
    """A device for tensors. On "cuda", engine fused is Triton's kernels, perhaps in the interpreter."""
    if request.param == "cpu":
        return "cpu"
    monkeypatch.setattr(dispatch, "on_gpu", lambda x: True)
    monkeypatch.setattr("graphcaps.kernels.on_gpu", lambda x: True)
    return device_of_kernels(monkeypatch)


@outside_only
@pytest.mark.long
def test_tests_of_cuda_hold_in_the_interpreter():
    run_in_interpreter(__file__, "-k", "cuda")


CODE = """
from graphcaps.graph import Links
from graphcaps.kernels.gpu.beliefs import exchange

rows = Links(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), 2, 2).by_parent(True)
for K, D, dtype in [(8, 4, torch.float32), (3, 42, torch.float32), (1, 1, torch.float64), (1, 128, torch.float64)]:
    sizes = (2, K, D), (3, K, D), (3,), (K,), (3,), (D, K, D), (D, K, D)
    exchange(*(torch.ones(x, dtype=dtype, requires_grad=True) for x in sizes), *rows[::3], settings=[])
"""


@outside_only
@pytest.mark.long
@pytest.mark.parametrize("card", ["H200", "A100"])
def test_kernels_compile_and_fit_shared_memory(card, tmp_path):
    compile_for(card, CODE, {"beliefs_forward", "beliefs_backward"}, tmp_path)


@pytest.mark.parametrize("engine", ["torch", "fused"])
def test_a_layer_and_its_gradients_are_those_of_loops_over_edges(draw, engine, device):
    layer = layer_of().to(device)
    x, weight = draw(N, F).to(device).requires_grad_(), draw(len(SRC)).abs().to(device).requires_grad_()
    with graphcaps.engine(engine):
        got, c = layer(GRAPH, x, weight, get_coupling=True)
    wanted, couplings = by_loops(layer, x, weight)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(c.squeeze(1), couplings)
    slope, learned = draw(N, K, D).to(device), [x, weight, *layer.parameters()]
    for ours, theirs in zip(*(torch.autograd.grad(out, learned, slope) for out in (got, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("dims", "caps"), [(7, 1), (1, 3)])
def test_kernels_compute_what_torch_does_in_threads_for_graphs_of_a_batch(draw, device, dims, caps):
    """Capsules in float32, messages of 0 and 1, a node without edges, and a hub."""
    torch.set_num_threads(2)
    ends = torch.randint(30, (2, 100), generator=torch.Generator().manual_seed(0))
    ends[0, :30] = 3
    single = dgl.to_bidirected(dgl.graph(tuple(ends), num_nodes=31))
    graph, layer = dgl.batch([single, GRAPH]), BeliefConv(None, dims, caps, 3, allow_zero_in_degree=True).to(device)
    torch.nn.init.normal_(layer.beliefs.table, std=0.5)
    z = draw(31 + N, caps, dims).float().masked_fill(torch.arange(31 + N).view(-1, 1, 1) % 5 == 0, 0).to(device)
    z[::5, 0, dims // 3] = 200.0
    results = []
    for name in ("torch", "fused"):
        with graphcaps.engine(name):
            h, c = layer(graph, z.requires_grad_(), get_coupling=True)
        slopes = torch.autograd.grad(h.square().sum(), [z, *layer.parameters()], retain_graph=True)
        results.append([h, c, layer.beliefs.unexplained, *slopes])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_engine_auto_takes_kernels_for_large_graphs_and_they_state_what_they_cannot_do(draw, monkeypatch):
    layer, z = BeliefConv(None, D, K), draw(N, K, D).float().requires_grad_()
    with graphcaps.engine("fused"):
        h = layer(GRAPH, z)
    assert not torch.equal(layer(GRAPH, z), h)
    monkeypatch.setattr("graphcaps.beliefs.node_beliefs.WORTHWHILE", 1)
    assert torch.equal(layer(GRAPH, z), h)
    with pytest.raises(graphcaps.errors.GraphcapsError, match="second derivative: expected routing on engine torch"):
        torch.autograd.grad(h.sum(), z, create_graph=True)[0].sum().backward()
    with (
        graphcaps.engine("fused"),
        pytest.raises(InputError, match=r"got 'fused'. It needs num_caps \* out_feats <= 12"),
    ):
        BeliefConv(None, 65, 2)(GRAPH, torch.zeros(N, 2, 65))


def test_the_graphs_of_a_batch_share_nothing_and_pyg_gives_the_same(draw):
    other = dgl.graph(([0, 1, 2, 1], [1, 0, 1, 2]), num_nodes=3)
    layer, x, batch = layer_of(), draw(N + 3, F), dgl.batch([GRAPH, other])
    together = layer(batch, x)
    torch.testing.assert_close(together, torch.cat([layer(GRAPH, x[:N]), layer(other, x[N:])]))
    twin, edges = layer_of(kind=pyg.BeliefConv), torch.stack(batch.edges())
    twin.load_state_dict(layer.state_dict())
    got = twin(x, edges, batch=torch.tensor([0] * N + [1] * 3), return_coupling=True)
    torch.testing.assert_close(got, layer(batch, x, get_coupling=True))
    labels = torch.arange(N + 3).view(-1, 1) % 2
    counted = pyg.BeliefConv.from_labels(labels, edges)(labels, edges)
    torch.testing.assert_close(counted, BeliefConv.from_labels(batch, labels)(batch, labels))


def test_logits_may_be_given_and_sparse_features_do_as_dense_ones(draw):
    layer, x = layer_of(), draw(N, F)
    z = torch.einsum("nf,fkd->nkd", x, layer.beliefs.weight)
    bare = layer_of(in_feats=None)
    bare.load_state_dict(layer.state_dict(), strict=False)
    for other, feat in ((bare, z), (layer, x.to_sparse())):
        torch.testing.assert_close(other(GRAPH, feat), layer(GRAPH, x))


def test_labels_add_those_that_propagation_finds_by_the_share_of_edges_that_their_capsule_draws(draw):
    layer, weight = layer_of(in_feats=None), draw(len(SRC)).abs()
    labels = torch.tensor([[0, -1, 2], [-1, 2, 3], [-1, 1, -1], [2, -1, 1], [-1, -1, -1], [-1, -1, 0], [-1, -1, 0]])
    truth, bias = (labels.unsqueeze(2) == torch.arange(D)).double(), layer.beliefs.bias.detach().clone()
    bias[1, 3] = -torch.inf
    adjacency, h, f = torch.zeros(N, N).double(), truth, bias.softmax(1)
    for u, v, w in zip(SRC, DST, weight, strict=True):
        adjacency[v, u] += w
    scale = adjacency.sum(1) ** -0.5
    for _ in range(T):
        h = 0.9 * torch.einsum("v,vu,u,ukd->vkd", scale, adjacency, scale, h) + 0.1 * truth
    drawn, reached = layer.beliefs.rates * f.square().sum(1), h.sum(2, keepdim=True)  # no path from 3 to 5 and 6
    found = (h / reached + 0.01 * f + 1e-30).log().where(reached > 0, 0)
    z = 30 * truth + (drawn / (drawn.sum() + layer.beliefs.learned[0])).unsqueeze(1) * found
    torch.testing.assert_close(layer(GRAPH, labels, weight), layer(GRAPH, z, weight))
    wanted = layer.float()(GRAPH, labels)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(GRAPH, labels), wanted, atol=0.05, rtol=0)


def test_watching_it_records_beliefs_and_couplings_and_changes_nothing(draw):
    layer, x = layer_of(), draw(N, F)
    with graphcaps.watch(layer) as seen:
        h, c = layer(GRAPH, x, get_coupling=True)
    torch.testing.assert_close(h, layer(GRAPH, x))
    trace = seen["BeliefConv"]
    assert trace.c.shape == (1, T, 1, len(SRC) * K)
    torch.testing.assert_close(torch.from_numpy(trace.c[0, -1, 0]).double().view(-1, K), c[:, 0], atol=1e-3, rtol=0)
    assert trace.nodes[::K].tolist() == [list(ends) for ends in zip(SRC, DST, strict=True)]


def test_counted_rates_find_hidden_labels_and_causes_whatever_hubs_do():
    """A node has one of 4 states and one of 5, and edges join nodes that share one; half are known. Two hubs."""
    random, nodes = torch.Generator().manual_seed(0), 200
    states = torch.stack([torch.randint(size, (nodes,), generator=random) for size in (4, 5)], 1)
    same = (states[:, None] == states) & (torch.rand(nodes, nodes, 2, generator=random) < torch.tensor([0.15, 0.3]))
    pairs = [same.any(-1).triu(1).nonzero(), torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes, nodes + 2))]
    graph = dgl.to_bidirected(dgl.graph(tuple(torch.cat(pairs).T), num_nodes=nodes + 2))
    labels = torch.full((nodes + 2, 2), torch.nan)
    labels[: nodes // 2] = states[: nodes // 2].float()
    ends = torch.stack(graph.edges())
    layer = BeliefConv.from_labels(graph, labels)
    h, c = layer.eval()(graph, labels, get_coupling=True)
    assert (h[:nodes].argmax(-1) == states)[nodes // 2 :].float().mean() > 0.95
    assert torch.all(h[:, 0, 4] == 0) and 1.5 < layer.beliefs.rates[1] / layer.beliefs.rates[0] < 2.5
    plain = (ends < nodes).all(0)
    by = states[ends[0, plain]] == states[ends[1, plain]]
    one = by.sum(1) == 1
    assert (c[plain, 0][one].argmax(1) == by[one].int().argmax(1)).float().mean() > 0.95

    with pytest.raises(InputError, match="labels: expected whole numbers, or NaN"):
        BeliefConv.from_labels(graph, labels / 2)
    with pytest.raises(InputError, match="labels: expected classes from 0 to 999, got 4000. Number them: torch.unique"):
        BeliefConv.from_labels(graph, labels * 1000)
    with pytest.raises(InputError, match="graph: expected a reverse for each edge"):
        BeliefConv.from_labels(dgl.graph(tuple(pairs[0].T), num_nodes=nodes + 2), labels)
    with pytest.warns(UserWarning, match="Are they in the order of the graph's nodes"):
        BeliefConv.from_labels(graph, labels[torch.randperm(len(labels), generator=random)])
    counted, few = layer.beliefs.learned.clone(), labels.clone()
    few[9:] = torch.nan
    with pytest.warns(UserWarning, match="labels: 9 nodes are known, too few to hold any out"):
        assert not fit_rates(layer, graph, few)
    assert not fit_rates(layer, graph, labels) and torch.equal(layer.beliefs.learned, counted)  # nothing to gain
    with torch.no_grad():
        layer.beliefs.logarithms[0] = 2.0  # as if most edges had no cause
    torch.manual_seed(0)  # 20 nodes are held out: with two of eight seeds, the gain is within two standard errors
    assert fit_rates(layer, graph, labels, epochs=30) and layer.beliefs.learned[0] < 7


def test_edges_may_join_unlike_labels_and_degrees_may_tell_them_apart():
    """Edges join states 0 and 1, and 2 to itself. Nodes of state 3 have hardly any edges; state 4 is a star's."""
    random, states = torch.Generator().manual_seed(0), torch.arange(300) % 4
    rate = torch.zeros(4, 4)
    rate[0, 1] = rate[1, 0] = rate[2, 2] = 0.2
    pairs = (torch.rand(300, 300, generator=random) < rate[states][:, states]).triu(1).nonzero().T
    graph = dgl.to_bidirected(dgl.graph(tuple(pairs), num_nodes=300))
    labels = torch.where(torch.rand(300, generator=random) < 0.4, states, -1)
    layer = BeliefConv.from_labels(graph, labels)
    table = layer.beliefs.table[0]
    assert table[0, 1] > 0.8 and table[2, 2] > 0.8 and table[0, 0] < 0.2 and torch.equal(table, table.T)
    assert (layer(graph, labels).argmax(-1)[:, 0] == states).float().mean() > 0.98


@pytest.mark.filterwarnings("error")
def test_without_joined_known_nodes_half_of_the_edges_are_assumed_to_join_equal_labels():
    src, dst = torch.arange(20).roll(1), torch.arange(20)
    graph, labels = dgl.graph((torch.cat([src, dst]), torch.cat([dst, src]))), torch.full((20, 1), -1)
    with pytest.warns(UserWarning, match="one class at most is known"):
        assert torch.equal(BeliefConv.from_labels(graph, labels)(graph, labels), torch.ones(20, 1, 1))
    labels[5], labels[15] = 0, 1
    layer = BeliefConv.from_labels(graph, labels)
    assert torch.equal(layer.beliefs.table[0], torch.eye(2))
    h = layer(graph, labels)
    epsilon, _, _ = layer.beliefs.learned
    torch.testing.assert_close(epsilon * 0.1, torch.tensor(1 / (20 + 2)))  # one edge in 20 pairs, and two pairs without
    assert (h[1:10, 0, 0] > 0.52).all() and (h[11:20, 0, 1] > 0.52).all()  # each label spreads by four nodes


def test_nodes_that_are_sure_of_different_states_are_coupled_equally_and_half_precision_is_as_float32(draw):
    z = torch.zeros(2, K, D)
    z[0, :, 0] = z[1, :, 1] = 300.0
    graph, layer = dgl.graph(([0, 1], [1, 0])), BeliefConv(None, D, K)
    assert torch.equal(layer(graph, z, get_coupling=True)[1], torch.full((2, 1, K), 1 / K))
    layer, x = layer_of().float(), draw(N, F).float()
    got, wanted = layer.bfloat16()(GRAPH, x.bfloat16()), layer.float()(GRAPH, x.bfloat16().float())
    torch.testing.assert_close(got.float(), wanted, atol=0.02, rtol=0.02)


def test_unequal_frequencies_of_labels_decide_where_no_edge_does_and_equal_ones_do_not():
    graph, labels = dgl.graph(([0, 1], [1, 0]), num_nodes=50), torch.full((50, 2), -1)
    labels[:40, 0], labels[:40, 1] = (torch.arange(40) > 29).long() * 2, torch.arange(40) % 5
    layer = BeliefConv.from_labels(graph, labels)
    h = layer(graph, labels)[40:]
    assert (h[:, 0, 0] > 0.6).all() and (h[:, 0, 1] < 0.1).all()
    torch.testing.assert_close(h[:, 1], torch.full((10, 5), 0.2), atol=0.02, rtol=0)


def test_smoothing_improves_a_classifier_and_tells_which_edges_are_wrong():
    """Half of the edges join equal classes, half are drawn at random. A classifier is right at 60 % of the nodes."""
    random, classes = torch.Generator().manual_seed(0), torch.arange(400) % 4
    same = torch.arange(400) + 4 * torch.randint(1, 100, (3, 400), generator=random)
    dst = torch.cat([same % 400, torch.randperm(1200, generator=random).view(3, -1) % 400]).flatten()
    ends = torch.stack([torch.arange(400).repeat(6), dst])
    ends = torch.unique(torch.cat([ends, ends.flip(0)], 1), dim=1)
    guess = torch.where(torch.rand(400, generator=random) < 0.6, classes, torch.randint(4, (400,), generator=random))
    labels = torch.where(torch.rand(400, generator=random) < 0.3, classes, -1)
    log_p = (torch.nn.functional.one_hot(guess, 4) * 0.6 + 0.1).log()
    p, unexplained = graphcaps.smooth(ends, log_p, labels)
    unknown, right = labels < 0, classes[ends[0]] == classes[ends[1]]
    assert (guess == classes)[unknown].float().mean() < 0.75 < 0.9 < (p.argmax(1) == classes)[unknown].float().mean()
    assert unexplained[~right].mean() > 2 * unexplained[right].mean()
    with pytest.raises(InputError, match="log_p: expected one for each of 400 nodes, got 399"):
        graphcaps.smooth(ends, log_p[1:], labels)
    for wrong, got in (
        (log_p.exp(), "0.7.*Of probabilities, pass log_p.log"),
        (log_p.masked_fill((guess == 1)[:, None], -torch.inf), "-inf"),
    ):
        with pytest.raises(InputError, match=f"none above 0, got {got}"):
            graphcaps.smooth(ends, wrong, labels)
    assert graphcaps.smooth(ends[:, :0], log_p[:0], labels[:0]).p.shape == (0, 4)
    for message, wrong in {
        "numbers of columns, got 'b', 'c'. Pass the number": [["b", "c", None, None][k] for k in classes.tolist()],
        "class numbers, got a mask. Pass labels.where": labels >= 0,
        "columns of log_p, from 0 to 3, got 5": torch.where(labels == 2, 5, labels),
    }.items():
        with pytest.raises(InputError, match=f"labels: expected {message}"):
            graphcaps.smooth(ends, log_p, wrong)
    with pytest.raises(InputError, match="got a mask"):
        BeliefConv.from_labels(ends, (labels >= 0).tolist())
    with pytest.warns(UserWarning, match="all are known"):
        graphcaps.smooth(ends, log_p, classes)


def test_parallel_edges_are_warned_about_and_negative_weights_refused(draw):
    layer, x = layer_of(), draw(N, F)
    with pytest.warns(UserWarning, match="to_simple"), pytest.warns(UserWarning, match="remove_self_loop"):
        layer(dgl.graph(GRAPH.edges(), num_nodes=N), x)  # it is warned about once for each graph
    with pytest.raises(graphcaps.errors.InputError, match="edge_weight: expected numbers from 0, got -1"):
        layer(dgl.to_simple(GRAPH), x, -torch.ones(len({*zip(SRC, DST, strict=True)})))
