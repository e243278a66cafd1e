"""Pages as notebooks: text becomes Markdown cells, Python becomes code cells."""

from __future__ import annotations

import json
import re
from typing import Any

PAGES = ("start.md", "concepts.md", "parts.md")


def place(page: str) -> str:
    return f"notebooks/{page.removesuffix('.md')}.ipynb"


def notebook(text: str) -> str:
    """The page as a notebook, without pictures: they lie beside the page."""
    text = re.sub(r"^!\[.*?\]\(images/.*?\)\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"```math\n(.*?)```", r"$$\n\1$$", text, flags=re.DOTALL)
    cells = []
    for number, part in enumerate(re.split(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        if part.strip():
            cells.append(_cell("code" if number % 2 else "markdown", part.strip("\n"), len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )


def script(text: str) -> str:
    """The code of a notebook, as a script."""
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": source.splitlines(keepends=True)}
