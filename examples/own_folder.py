"""Learn from a folder of images, then find the images that are most like the last of them.

python examples/own_folder.py photos
"""

import sys

import ocssl


def main(folder: str, size: int = 64, width: int = 16) -> list[str]:
    learner = ocssl.Learner("solar-c", image_size=size, fit="crop", settings={"encoder.width": width})
    paths: list[str] = []
    for batch in ocssl.images(folder, size=size):
        info = learner.partial_fit(batch.images, ids=batch.ids)
        paths += batch.paths
        print(f"{info.seen} images, loss {info.loss:.3f}")
    learner.save("my-learner")
    encoder = ocssl.load_encoder("my-learner")
    vectors = encoder(paths)
    similar = (vectors @ vectors[-1]) / (vectors.norm(dim=1) * vectors[-1].norm())
    nearest = [paths[row] for row in similar.argsort(descending=True)[:6].tolist()]
    print("most like", nearest[0], "are", ", ".join(nearest[1:]))
    return nearest


if __name__ == "__main__":
    main(sys.argv[1])
