"""A classifier on the features of a run or a saved learner, in scikit-learn; sub-folders are the classes.

python examples/sklearn_pipeline.py my-learner photos
"""

import sys
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ocssl.sklearn import Encoder


def main(run: str, folder: str, folds: int = 5) -> float:
    paths = sorted(path for path in Path(folder).glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    labels = [path.parent.name for path in paths]
    pipeline = make_pipeline(Encoder(run), StandardScaler(), LogisticRegression(max_iter=1000))
    accuracy = float(cross_val_score(pipeline, list(map(str, paths)), labels, cv=folds).mean())
    print(f"accuracy {100 * accuracy:.1f} %, {len(set(labels))} classes, {len(paths)} images")
    return accuracy


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
