"""Embed a folder with a run or a saved learner, and write a page of the pictures most like an image.

python examples/search.py my-learner photos photos/cat.jpg
"""

import subprocess
import sys

import ocssl


def main(run: str, folder: str, image: str) -> list[str]:
    ocssl_command = [sys.executable, "-m", "ocssl"]
    subprocess.run([*ocssl_command, "embed", run, folder, "-o", "vectors.parquet", "--update"], check=True)
    subprocess.run([*ocssl_command, "search", "vectors.parquet", image, "--html", "page.html"], check=True)
    index = ocssl.Index.load("vectors.parquet")  # the same in Python
    return [match.path for match in index.search([image], top=5)[0]]


if __name__ == "__main__":
    print(main(*sys.argv[1:4]))
