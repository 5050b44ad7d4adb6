"""The package accepts what users have: pictures to explain, trained networks for other classes, other graphs."""

import networkx
import pytest
import torch
from PIL import Image
from small import digits

import graphcaps
from graphcaps import InputError, TrainConfig
from graphcaps.cli import main
from graphcaps.images.training.run_folder import Run
from graphcaps.nn import BeliefConv, CapsuleConv, CapsuleReadout

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_trained_network_learns_other_classes_and_explains_a_picture(tmp_path, monkeypatch, capsys):
    images, pictures = digits(size=28).train, tmp_path / "pictures"
    for k, (pixels, label) in enumerate(zip(images.pixels[:, 0].numpy(), images.labels.tolist(), strict=True)):
        if label < 3:
            file = pictures / ("test" if k % 4 == 0 else "train") / f"class {label}" / f"{k}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
    monkeypatch.chdir(pictures)
    train = "train --dataset folder:. --from mnist --epochs 1 --batch-size 8 --device cpu --name run"
    assert main([*train.split(), "--routing", "uniform", "--out", str(tmp_path)]) == 0
    again = [*train.replace("mnist", "run").split(), "--name", "v1.2", "--out", str(tmp_path)]
    assert main([*again, "--routing", "dynamic"]) == 0  # a given flag counts, even with its default
    assert Run.open("v1.2", tmp_path).config.routing == "dynamic"
    assert main(["explain", "v1.2", "--out", str(tmp_path)]) == 0  # a name may look like a file's
    monkeypatch.chdir("/")  # folder:. is still the folder of the pictures
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    picture = next(pictures.glob("test/class 2/*.png"))
    assert main(["explain", str(tmp_path / "run"), str(picture)]) == 0
    assert (tmp_path / "run" / "explain" / f"{picture.stem}.png").exists()
    monkeypatch.chdir(tmp_path)
    assert main(["explain", str(picture), "--out", str(tmp_path)]) == 0  # of the newest run
    assert capsys.readouterr().out.count(f"{picture.name}: longest is class") == 2
    assert main(["explain", "gone.jpg", "--out", str(tmp_path)]) == 2


@pytest.mark.parametrize("name", ["mnist", "multimnist"])
def test_all_layers_but_the_last_are_taken(name):
    trained, other = graphcaps.load(name).state_dict(), graphcaps.load(name, num_classes=4).state_dict()
    new = {key for key in other if key not in trained or not torch.equal(trained[key], other[key])}
    assert {key.split(".")[0] for key in new} == {"capsules", "decoder"} and len(trained.keys() - new) > 8
    with pytest.raises(InputError, match="model: expected compact, as in the trained network, got parts"):
        graphcaps.train(TrainConfig(dataset="digits", model="parts", from_run="mnist"))


@pytest.mark.parametrize("graph", [networkx.path_graph(3), torch.zeros(2, 4).long()])
def test_something_else_than_a_graph_of_dgl_is_told_where_to_go(graph):
    x = torch.ones(3, 8)
    for call in (CapsuleConv(8, 2, 3), BeliefConv(8, 2, 3), CapsuleReadout(8, 2, 3), graphcaps.route):
        with pytest.raises(InputError, match=r"read_graph\(graph\)\.dgl.*bipartite_graph.*graphcaps\.pyg"):
            call(graph, x)
