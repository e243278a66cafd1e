"""The embedded benchmark: drawn from a seed when it is needed, nothing to download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from ocssl.errors import SettingError
from ocssl.settings import Size, StreamSettings
from ocssl.streams.benchmark import BENCHMARKS, Benchmark, Labelled, class_incremental, iid, split
from ocssl.streams.draw_shapes import CLASSES, render
from ocssl.weights import generator_for

TEST_KEYS = 2**40  # test images are numbered from here, so that no number of training images reaches them


@BENCHMARKS.add("synthetic")
@dataclass(kw_only=True)
class Synthetic:
    """Shapes with textures on cluttered grounds, class by class; drawn from a seed, no download."""

    classes: Annotated[int, Field(ge=2, le=CLASSES)] = 20
    train: Size = 250  # images a class, validation included
    test: Size = 50  # images a class

    def load(self, settings: StreamSettings) -> Benchmark:
        count = round(self.train * settings.fraction)
        if count - round(count * settings.validation) < 1:
            raise SettingError(
                f"stream.fraction {settings.fraction} of {self.train} images a class leaves none to learn."
            )
        whole = self._labelled(count, 0, settings)
        train, val = split(whole, settings.validation, settings.data_seed)
        if settings.order == "iid":
            experiences = iid(train.labels, settings.experiences, generator_for(settings.data_seed, "order"))
        else:
            experiences = class_incremental(train.labels, range(self.classes), settings.experiences)
        return Benchmark("synthetic", train, val, self._labelled(self.test, TEST_KEYS, settings), experiences)

    def _labelled(self, per_class: int, first: int, settings: StreamSettings) -> Labelled:
        labels = torch.arange(self.classes).repeat_interleave(per_class)
        keys: Tensor = first + torch.arange(len(labels))
        return Labelled(render(labels, keys, settings.image_size, settings.data_seed), labels, keys)
