"""The published data themselves, where a copy lies beside the project: counts, order, and a short run that learns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from conftest import REAL_DATA
from ocssl.cli import main
from ocssl.data import Benchmark, load_benchmark
from ocssl.data.sources.cifar import CLASS_ORDER
from ocssl.settings import DataSettings, StreamSettings

pytestmark = pytest.mark.data

DATA = REAL_DATA


def needed(name: str) -> Path:
    if not (DATA / name).is_dir():
        pytest.skip(f"needs shared/data/{name} beside the project, which is not here")
    return DATA / name


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def cifar(cache: Path) -> Benchmark:
    data = DataSettings(path=str(needed("cifar100")), cache=str(cache), bad_images="stop")
    return load_benchmark("cifar100", StreamSettings(image_size=16), data)


def test_every_image_of_cifar100_comes_once_in_the_authors_order(cifar: Benchmark) -> None:
    seen, labels, tasks = [], [], []
    for batch in cifar.stream(10, seed=0).batches():
        seen.append(batch.ids)
        labels.append(batch.labels)
        tasks += [batch.task] * len(batch.ids)
    ids, classes = torch.cat(seen), torch.cat(labels)
    assert len(ids) == len(ids.unique()) == 45000
    assert len(cifar.val) == 5000
    assert not torch.isin(cifar.val.ids, ids).any()
    assert torch.equal(torch.cat([ids, cifar.val.ids]).sort().values, torch.arange(50000))
    assert torch.bincount(cifar.val.labels).tolist() == [50] * 100
    assert torch.bincount(cifar.test.labels).tolist() == [100] * 100
    for experience in range(20):
        wanted = set(CLASS_ORDER[5 * experience : 5 * experience + 5])
        part = slice(2250 * experience, 2250 * (experience + 1))
        assert set(classes[part].tolist()) == wanted
        assert set(tasks[part]) == {experience}
    assert not cifar.faults()


def test_pixels_and_labels_of_cifar100_belong_together(cifar: Benchmark) -> None:
    """A nearest class mean on raw pixels is far above chance only if images and labels match."""
    train, test = cifar.train.all().flatten(1).float(), cifar.test.all().flatten(1).float()
    means = torch.stack([train[cifar.train.labels == label].mean(0) for label in range(100)])
    right = torch.cdist(test, means).argmin(1) == cifar.test.labels
    assert float(right.float().mean()) > 0.07


def test_solar_on_a_part_of_cifar100_improves_over_its_start(cifar: Benchmark, cache: Path, tmp_path: Path) -> None:
    settings = {
        "stream.image_size": 16,
        "stream.fraction": 0.1,
        "stream.stop": 3,
        "encoder.width": 8,
        "objective.projection": 256,
        "memory.capacity": 200,
        "schedule.passes": 3,
        "terms.overlap.k": 50,
        "views.crop_scale": [0.4, 1.0],  # at 16 px smaller crops leave little to see
        "optimizer.lr": 0.1,
        "evaluate.probe": "ridge",
        "evaluate.every": 1000,
        "evaluate.latent_samples": 100,
        "evaluate.latent_views": 4,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    data = ["--data", str(DATA / "cifar100"), "--cache", str(cache)]
    with pytest.raises(SystemExit) as end:
        main(["run", "solar", "cifar100", "--quiet", "--out", str(tmp_path / "run"), *data, *words])
    assert end.value.code == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["seen"] == 3 * 220  # 225 images an experience in minibatches of 10
    assert metrics["final_accuracy"] > metrics["start_accuracy"] + 0.5  # 2.6 to 3.4 with three seeds


def test_domains_of_pacs_come_one_after_another(cache: Path) -> None:
    data = DataSettings(path=str(needed("pacs-96")), cache=str(cache))
    options = {"image_size": 16, "order": "domain", "domain": "domain", "test_share": 0.2}
    benchmark = load_benchmark("parquet", StreamSettings.model_validate(options), data)
    assert len(benchmark.tasks) == 4
    assert len(benchmark.train) + len(benchmark.val) + len(benchmark.test) == 9991
    for batch in benchmark.stream(50, seed=0).batches():
        rows = torch.isin(benchmark.train.ids, batch.ids)
        assert set(benchmark.train.tasks[rows].tolist()) == {batch.task}
    assert set(benchmark.test.tasks.tolist()) == {0, 1, 2, 3}


def test_photographs_come_by_their_place_in_a_taxonomy(cache: Path) -> None:
    folder = needed("mini-imagenet-64")
    options = {"image_size": 16, "order": "taxonomy", "taxonomy": str(folder / "taxonomy.json"), "level": "kingdom"}
    benchmark = load_benchmark(
        "parquet", StreamSettings.model_validate(options), DataSettings(path=str(folder), cache=str(cache))
    )
    assert len(benchmark.train) + len(benchmark.val) == 20000
    assert len(benchmark.test) == 5000
    animals = list(benchmark.tasks).index("animal")
    assert len(benchmark.test.labels[benchmark.test.tasks == animals].unique()) == 35
