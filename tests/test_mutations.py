"""The tests are tested: wrong code, most of it from popular capsule repositories, must turn a named test red.

Each mutation is put into a copy of the package. At least one stands for each of the twelve facts and for each routing.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]


class Mutation(NamedTuple):
    """Wrong code: in ``file`` (of graphcaps/), ``old`` stands exactly once and becomes ``new``; ``tests`` see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str
    """The name of a test file, in any folder of tests/, and the expression for pytest's -k."""


MUTATIONS = [
    Mutation(
        "fact 1: softmax over the parents' in-edges",
        "engines/dgl.py",
        'norm_by="src"',
        'norm_by="dst"',
        "test_facts.py sum_to_one and dynamic-dgl",
    ),
    Mutation(
        "fact 2: mean of the agreement over the batch",
        "algorithms/dynamic.py",
        "b = b + edges.agreement(votes, v)",
        "b = b + edges.agreement(votes, v).mean(1, keepdim=True)",
        "test_facts.py does_not_see_the_batch and dynamic-torch",
    ),
    Mutation(
        "fact 3: logits that start at random",
        "routing.py",
        "return torch.zeros((), device=votes.device, dtype=dtype).expand(wanted)",
        "return torch.randn(wanted, device=votes.device, dtype=dtype)",
        "test_facts.py one_iteration_is_uniform and dynamic-torch",
    ),
    Mutation(
        "fact 4: logits that stay from call to call",
        "algorithms/dynamic.py",
        "        b = prior\n",
        "        b = self.__dict__.setdefault('last', prior)\n        self.last = votes.sum(-1)\n",
        "test_facts.py second_call and dynamic-torch",
    ),
    Mutation(
        "fact 5: squash without an end to the length",
        "functional.py",
        "return (x * (n / (1 + square))).to(s.dtype)",
        "return (x * n).to(s.dtype)",
        "test_facts.py squash_shrinks",
    ),
    Mutation(
        "fact 6: margin loss averaged over classes",
        "functional.py",
        "return loss.sum(dim=1).mean()",
        "return loss.mean()",
        "test_facts.py margin_loss",
    ),
    Mutation(
        "fact 7: edges of a complete graph taken for parent-major",
        "algorithms/votes.py",
        "return self.build(links).unflatten(0, (links.num_children, links.num_parents))",
        "return self.build(links).unflatten(0, (links.num_parents, links.num_children)).transpose(0, 1)",
        "test_facts.py equals_dense_routing and dynamic-torch",
    ),
    Mutation(
        "fact 8: channels of a capsule far apart",
        "nn/primary.py",
        "x.unflatten(1, (self.num_types, self.dim)).permute(1, 3, 4, 0, 2)",
        "x.unflatten(1, (self.dim, self.num_types)).permute(2, 3, 4, 0, 1)",
        "test_facts.py primary_capsule_holds",
    ),
    Mutation(
        "fact 9: labels at test time",
        "images/models/capsnet.py",
        "if labels is not None and self.training",
        "if labels is not None",
        "test_facts.py sees_no_labels and dynamic",
    ),
    Mutation(
        "fact 10: the last batch dropped",
        "images/data/batches.py",
        "for first in range(0, self.num_images, self.batch_size):",
        "for first in range(0, self.num_images - self.batch_size + 1, self.batch_size):",
        "test_evaluation.py all_images_are_counted",
    ),
    Mutation(
        "fact 11: the last epoch, not the best on validation",
        "images/training/saving.py",
        'return max(self.history, key=lambda row: (row["val_accuracy"], -row["val_loss"]))',
        "return self.history[-1]",
        "test_training.py best_epoch_on_validation",
    ),
    Mutation(
        "fact 12: no gradient along the direction of s, fused",
        "functional.py",
        "return (dv * (n / below)).addcmul_(s, slope * along)",
        "return dv * (n / below)",
        "test_facts.py equal_the_oracles and dynamic-fused",
    ),
    Mutation(
        "uniform: a prior that is not looked at",
        "algorithms/uniform.py",
        "c = edges.child_softmax(prior)",
        "c = edges.child_softmax(0 * prior)",
        "test_facts.py equal_the_oracles and uniform-dgl",
    ),
    Mutation(
        "attention: agreement not divided by sqrt(D)",
        "algorithms/attention.py",
        " * max(1, votes.shape[-1]) ** -0.5",
        "",
        "test_routings.py papers_self_attention and attention-torch",
    ),
    Mutation(
        "spherical: logits that grow with the votes",
        "algorithms/spherical.py",
        "per_root(squares / count.clamp_min(1))",
        "torch.ones_like(squares)",
        "test_routings.py longer_votes and spherical-torch",
    ),
    Mutation(
        "inverted: logits that add up over iterations",
        "algorithms/inverted.py",
        "b = prior + edges.agreement(votes, p)",
        "b = b + edges.agreement(votes, p)",
        "test_routings.py inverted_attention_is_the_papers and inverted-torch",
    ),
    Mutation(
        "em: couplings without the parents' activations",
        "algorithms/em.py",
        "log_normaliser = logsigmoid(logit) - 0.5",
        "log_normaliser = -0.5",
        "test_routings.py share_the_child_by_their_activations and em-torch",
    ),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the package and of its tests, which import the copy beside them."""
    folder = tmp_path_factory.mktemp("project")
    for source, copy in (("graphcaps", "graphcaps"), ("viz", "graphcaps/viz"), ("tests", "tests")):
        shutil.copytree(ROOT / source, folder / copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.what for each in MUTATIONS])
def test_wrong_code_turns_its_test_red(mutation, project):
    path, (file, _, selected) = project / "graphcaps" / mutation.file, mutation.tests.partition(" ")
    (tests,) = (project / "tests").rglob(file)
    text = path.read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"{mutation.file}: {mutation.old!r} must stand there one time"
    ours = {"PYTHONPATH": str(project), "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | ours
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests), "-k", selected]
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    finally:
        path.write_text(text, encoding="utf-8")
    # An assertion must fail: a NameError would turn any test red.
    red = re.search(r"^FAILED .+? - (AssertionError|assert |Failed: DID NOT RAISE)", done.stdout, re.MULTILINE)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and red, done.stdout[-4000:]
