"""The linear probe against scikit-learn's logistic regression on features of real photographs."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from conftest import REAL_DATA
from ocssl.evaluate.linear_classifiers import linear_probe

pytestmark = pytest.mark.data

CIFAR = REAL_DATA / "cifar100"
CLASSES, FILTERS, WIDTH, TRAIN = 20, 32, 64, 4000


def photographs(name):
    """Images [n, 3, 32, 32] of the first classes, and their labels."""
    parquet = pytest.importorskip("pyarrow.parquet")
    if not (CIFAR / name).exists():
        pytest.skip(f"needs shared/data/cifar100/{name}, which is not here")
    table = parquet.read_table(CIFAR / name, columns=["image", "label"])
    labels = table["label"].to_numpy()
    coded = table["image"].combine_chunks().field("bytes")
    wanted = np.flatnonzero(labels < CLASSES)
    images = [np.asarray(Image.open(io.BytesIO(coded[int(i)].as_py())).convert("RGB")) for i in wanted]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255, labels[wanted]


def patch_features(images, filters):
    """How much each patch is found in each quarter of the image: [n, 4 filters]."""
    found = torch.relu(torch.conv2d(images - images.mean((1, 2, 3), keepdim=True), filters, stride=2))
    return torch.nn.functional.adaptive_avg_pool2d(found, 2).flatten(1)


def test_linear_probe_agrees_with_tuned_logistic_regression_on_photographs():
    (images, y), (test_images, test_y) = (
        photographs(f"{name}.parquet") for name in ("train-00000-of-00002", "test-00000-of-00001")
    )
    generator = torch.Generator().manual_seed(0)
    corners = torch.randint(0, 26, (FILTERS, 2), generator=generator).tolist()
    filters = torch.stack([images[i, :, r : r + 6, c : c + 6] for i, (r, c) in enumerate(corners)])
    filters -= filters.mean((1, 2, 3), keepdim=True)
    filters /= torch.linalg.vector_norm(filters, dim=(1, 2, 3), keepdim=True)
    raw, test_raw = (torch.cat([patch_features(b, filters) for b in part.split(500)]) for part in (images, test_images))
    # Whitened: on few samples in skewed directions the paper's schedule stops long before the optimum.
    _, spread, directions = torch.linalg.svd(raw[:TRAIN] - raw[:TRAIN].mean(0), full_matrices=False)
    whiten = (directions[:WIDTH] / spread[:WIDTH, None]).T
    x, test_x = (((part - raw[:TRAIN].mean(0)) @ whiten).numpy() for part in (raw, test_raw))

    result = linear_probe(x[:TRAIN], y[:TRAIN], test_x, test_y, val_x=x[TRAIN:], val_y=y[TRAIN:])
    best = (0.0, 0.0)
    for strength in (0.1, 1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=300).fit(normalize(x[:TRAIN]), y[:TRAIN])
        val, test = (100 * model.score(normalize(a), b) for a, b in ((x[TRAIN:], y[TRAIN:]), (test_x, test_y)))
        best = max(best, (val, test))
    assert best[1] > 30  # 5 by chance
    assert result.accuracy == pytest.approx(best[1], abs=1)
    assert result.scored == len(test_y) == 2000
