"""How good features are before and after learning, by a linear probe, from weights of your own.

    python examples/probe_before_and_after.py weights.safetensors

Without a file it starts from random weights. For weights of timm or transformers, see docs/encoders.md.
"""

import sys

import ocssl
from ocssl.data import load_benchmark
from ocssl.evaluate import ridge_probe
from ocssl.settings import StreamSettings


def main(weights: str | None = None, width: int = 16, images: int = 60, batches: int = 60) -> list[float]:
    stream = StreamSettings(image_size=16, classes=10, train=images, test=20)  # type: ignore[call-arg]
    benchmark = load_benchmark("synthetic", stream)
    start = {} if weights is None else {"encoder.weights": weights}
    learner = ocssl.Learner("solar", image_size=16, settings={"encoder.width": width, **start})
    train, test = benchmark.train, benchmark.test
    accuracies = []
    for moment in ("before", "after"):
        features = [learner.transform(part.all()) for part in (train, test)]
        found = ridge_probe(features[0], train.labels.numpy(), features[1], test.labels.numpy())
        accuracies.append(found.accuracy)
        print(f"{moment}: {found.accuracy:.1f} %")
        if moment == "before":
            for batch, _ in zip(benchmark.stream(batch=10, seed=0).batches(), range(batches), strict=False):
                learner.partial_fit(batch.images, ids=batch.ids)
    return accuracies


if __name__ == "__main__":
    main(*sys.argv[1:2])
