"""An encoder as a step of a scikit-learn pipeline: `ocssl.sklearn.Encoder`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ocssl.errors import DataError, OcsslError, SettingError

if TYPE_CHECKING:
    from ocssl.embed.image_encoder import ImageEncoder
    from ocssl.learner import Learner

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise OcsslError("ocssl.sklearn needs scikit-learn: pip install scikit-learn") from None

__all__ = ["Encoder"]


class Encoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images to features: a run folder, a saved learner, an export, a `Learner` or an encoder as a transformer.

    Images are a list, or a table of one column, of PIL images or paths, or uint8 arrays [n, H, W, 3] or [n, 3, H, W].
    Nothing is learned in `fit`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> pipeline = make_pipeline(Encoder("runs/solar-photos-seed0"), LogisticRegression())
    """

    def __init__(self, source: str | Path | Learner | ImageEncoder | None = None, *, device: str = "cpu") -> None:
        self.source = source
        self.device = device

    def fit(self, X: Any = None, y: Any = None) -> Encoder:
        """Load the encoder. Images and labels are not looked at."""
        from ocssl.embed.image_encoder import ImageEncoder, load_encoder

        if self.source is None:
            raise SettingError("Encoder needs a source: a run folder, a saved learner, an export or a Learner.")
        given = self.source
        self.encoder_ = given if isinstance(given, ImageEncoder) else load_encoder(given, device=self.device)
        self.fingerprint_ = self.encoder_.fingerprint
        return self

    def transform(self, X: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Features of images, float32 [n, d]."""
        check_is_fitted(self)
        features: np.ndarray[Any, np.dtype[np.float32]] = self.encoder_(_listed(X)).cpu().numpy()
        return features

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """feature0, feature1, ..."""
        check_is_fitted(self)
        return np.array([f"feature{n}" for n in range(self.encoder_.dimension)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True  # paths
        tags.no_validation = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _listed(images: Any) -> Any:
    """A column of paths or PIL images, as pipelines hand it on, as a list; a table must have one column."""
    if hasattr(images, "to_numpy"):  # a DataFrame or a Series
        images = images.to_numpy()
    if isinstance(images, np.ndarray) and images.dtype.kind in "OUT":
        if images.ndim not in (1, 2) or images.shape[1:] not in ((), (1,)):
            raise DataError(f"wanted one column of paths or PIL images, got a table of shape {images.shape}.")
        return images.reshape(-1).tolist()
    return list(images) if hasattr(images, "tolist") and getattr(images, "ndim", 4) == 1 else images
