"""What the site has beside the pages of this folder: generated pages, formulas, pictures inside the page, notebooks.

The pages stay plain Markdown that also reads well on a code host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs imports this file by its path

import notebooks
import reference
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
COPIED = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
OUTSIDE = r"(?:\.\./|results/|src/|tests/|benchmarks/|LICENSE)"  # what the site has no page of
NAMED = re.compile(r"^:::", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages without an entry in the navigation get one; an entry without a page, or a second one, is an error."""
    docs = Path(config.docs_dir)
    there = {path.name for path in docs.glob("*.md")} | {*COPIED, *reference.PAGES}
    assert config.nav is not None
    named = list(_pages(config.nav))
    if wrong := {name for name in named if name not in there or named.count(name) > 1}:
        raise PluginError(f"the navigation of mkdocs.yml names pages that are missing, or twice: {sorted(wrong)}")
    more = [{_title(docs / name): name} for name in sorted(there - {*named})]
    next(entry for entry in config.nav if "How to" in entry)["How to"].extend(more)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that code writes, those of the repository's top folder, and the notebooks."""
    for name, make in reference.PAGES.items():
        files.append(File.generated(config, name, content=make()))
    for name, source in COPIED.items():
        files.append(File.generated(config, name, content=from_top((ROOT / source).read_text())))
    for name in notebooks.PAGES:
        text = (Path(config.docs_dir) / name).read_text()
        files.append(File.generated(config, notebooks.place(name), content=notebooks.notebook(text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, drawn pictures a part of the page; links to files that are not pages become names."""
    name = page.file.src_uri
    text = re.sub(r"^```math\n(.*?)^```$", lambda found: formula(found[1]), markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(
        r"^!\[(.*?)\]\((images/concepts/[\w-]+\.svg)\)$",
        lambda found: drawn(Path(config.docs_dir) / found[2], found[1]),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(rf"\[([^\]]+)\]\({OUTSIDE}[^)]*\)", r"\1", text)
    if name in notebooks.PAGES:
        text = f'[Notebook]({notebooks.place(name)}){{ .notebook download="" }}\n\n{text}'
    return text


def from_top(text: str) -> str:
    """A page of the top folder as a page of this one."""
    return re.sub(r"\]\(docs/", "](", text)


def formula(latex: str) -> str:
    return f'<div markdown="0">{convert(" ".join(latex.split()), display="block")}</div>'


def drawn(path: Path, words: str) -> str:
    svg = " ".join(path.read_text().split("\n")).replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    return f'<figure class="drawn">{svg}</figure>'


def _pages(entries: list[Any]) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    for entry in entries:
        for target in entry.values():
            yield from _pages(target) if isinstance(target, list) else [target]


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].lstrip("# ")
