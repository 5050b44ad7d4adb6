"""Every number on transformed images is that of one image after the other."""

import pytest
import torch
from torch import nn
from torch.nn.functional import pad

from experiments.data.affnist import affnist_style
from experiments.tasks.robustness import TRANSFORMS, markdown, on_affnist, on_transform
from graphcaps.images.data import Batches, Images, to_float
from graphcaps.images.models import CapsNetOutput

from .. import small

pytestmark = pytest.mark.long


class Projected(nn.Module):
    """Lengths that are ten random projections of an image, so that answers differ without training; with dropout."""

    objects, class_names = 1, tuple("0123456789")

    def __init__(self, pixels: int):
        super().__init__()
        self.drop, weight = nn.Dropout(0.5), torch.randn(pixels, 10, generator=torch.Generator().manual_seed(0))
        self.weight = nn.Parameter((weight - weight.mean(dim=0)) / 10)

    def forward(self, images: torch.Tensor) -> CapsNetOutput:
        return CapsNetOutput((self.drop(images).flatten(1) @ self.weight).sigmoid(), None, None)


@pytest.mark.parametrize("name", ("rotated", "scrambled"))
def test_every_number_is_that_of_one_image_after_the_other(name):
    digits = small.digits().test
    images, model = Images(digits.pixels[:23], digits.labels[:23]), Projected(144).train()
    result, transform = on_transform(model, Batches(images, 5), name), TRANSFORMS[name]
    table = markdown(result | {"class_names": model.class_names})
    assert model.training and len(table.splitlines()) == 2 + len(transform.severities)
    model.eval()
    for row, severity in zip(result["rows"], transform.severities, strict=True):
        hits, lengths = [0] * 10, []
        for place, (pixels, label) in enumerate(zip(images.pixels, images.labels.tolist(), strict=True)):
            image = to_float(pixels[None])
            if severity != transform.clean:
                image = transform.apply(severity, image, torch.tensor([place]))
                assert image.min() >= 0 and image.max() <= 1 and not torch.equal(image, to_float(pixels[None]))
            output = model(image).lengths[0].detach()
            hits[label] += int(output.argmax()) == label
            lengths.append(float(output.max()))
        shown = images.labels.bincount(minlength=10).tolist()
        assert (row["correct"], row["accuracy"]) == (sum(hits), sum(hits) / 23)
        assert row["recall"] == [hit / count if count else None for hit, count in zip(hits, shown, strict=True)]
        assert row["winning_score"] == pytest.approx(sum(lengths) / 23, rel=1e-4)


def test_affnist_style_digits_keep_their_ink_and_have_a_row_for_each_part():
    blocks = torch.zeros(40, 1, 28, 28, dtype=torch.uint8)
    blocks[:, :, 4:24, 4:24] = 255
    styled, labels = affnist_style(Images(blocks, torch.arange(40) % 10)), torch.arange(40) % 10
    share = styled.pixels.double().sum((1, 2, 3)) / (255 * 400)  # a turn and a shear keep areas; no ink is cut off
    assert 0.64 < share.min() < share.max() < 1.45
    rows = on_affnist(Projected(1600), Batches(Images(pad(blocks, [6] * 4), labels), 10), styled)["rows"]
    assert [row["name"] for row in rows[2:]] == ["affNIST-style (within)", "affNIST-style (beyond)"]
    for key in ("images", "correct"):
        assert rows[1][key] == sum(row[key] for row in rows[2:])
