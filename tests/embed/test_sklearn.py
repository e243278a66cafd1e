"""The encoder in scikit-learn: the features of `transform`, in pipelines, clones and grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import odd_images, photos, saved

import ocssl
from conftest import random_images

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from ocssl.errors import DataError, SettingError
from ocssl.sklearn import Encoder


def test_features_are_those_of_transform(tmp_path: Path) -> None:
    run = saved(tmp_path / "run")
    learner = ocssl.Learner.load(run)
    for source in (run, str(run), learner, ocssl.load_encoder(run)):
        encoder = Encoder(source).fit()
        for given in (random_images(3), random_images(3).numpy(), odd_images()):
            np.testing.assert_allclose(encoder.transform(given), learner.transform(given), rtol=1e-5, atol=1e-7)
    assert list(encoder.get_feature_names_out())[:2] == ["feature0", "feature1"]
    assert encoder.transform([]).shape == (0, 16)


def test_a_pipeline_of_paths_is_fitted_cloned_and_scored(tmp_path: Path) -> None:
    run, folder = saved(tmp_path / "run"), photos(tmp_path / "photos", 20)
    paths = sorted(map(str, folder.rglob("*.png")))
    labels = [path.split("/")[-2] for path in paths]
    pipeline = make_pipeline(Encoder(run), LogisticRegression(max_iter=500))
    assert clone(pipeline).fit(np.array(paths), labels).score(paths, labels) > 0.5
    assert clone(pipeline).set_params(encoder__device="cpu").get_params()["encoder__source"] == run


def test_a_table_of_images_has_one_column(tmp_path: Path) -> None:
    encoder = Encoder(saved(tmp_path / "run")).fit()
    paths = sorted(map(str, photos(tmp_path / "photos", 4).rglob("*.png")))
    wanted = encoder.transform(paths)
    column = np.array(paths, dtype=object)
    for given in (column, column[:, None], np.array(paths)[:, None]):
        np.testing.assert_array_equal(encoder.transform(given), wanted)
    for table in (column.reshape(2, 2), column.reshape(1, 4), column.reshape(4, 1, 1), np.array(paths).reshape(2, 2)):
        with pytest.raises(DataError, match="one column"):
            encoder.transform(table)


def test_a_column_of_pandas_is_a_list_of_images(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    encoder = Encoder(saved(tmp_path / "run")).fit()
    paths = sorted(map(str, photos(tmp_path / "photos", 4).rglob("*.png")))
    table = pandas.DataFrame({"image": paths, "label": range(4)})
    for given in (table["image"], table[["image"]]):
        np.testing.assert_array_equal(encoder.transform(given), encoder.transform(paths))
    with pytest.raises(DataError, match=r"one column .* \(4, 2\)"):
        encoder.transform(table)


UNLOOKED = {"check_estimator_sparse_tag", "check_transformer_general"}  # they want `fit` to look at its input


class OfNumbers(Encoder):
    """Tables of numbers, which scikit-learn's checks are made of, drawn as images; all else is the encoder's."""

    def transform(self, X: Any) -> Any:
        X = np.asarray(X, np.float64)
        pixels = np.stack([np.resize(np.round(255 / (1 + np.exp(-line))), 192) for line in X])
        return super().transform(pixels.astype(np.uint8).reshape(-1, 3, 8, 8))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


@pytest.mark.slow
def test_scikit_learn_checks_it_as_far_as_images_allow(tmp_path: Path) -> None:
    results = check_estimator(OfNumbers(saved(tmp_path / "run")), on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    assert set(failed) <= UNLOOKED, failed
    assert sum(result["status"] == "passed" for result in results) >= 30


def test_without_a_source_the_error_says_so() -> None:
    with pytest.raises(SettingError, match="needs a source"):
        Encoder().fit()
