"""A page that stands alone: a heading, a few sentences, a table as text, and the figure inside it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from semifl.durable import replace_text

STYLE = """body{font-family:system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;line-height:1.5}
svg{width:100%;height:auto}pre{overflow-x:auto;background:#f5f5f5;padding:.8rem}"""


def write_page(directory: Path, title: str, sentences: Sequence[str], table: str, svg: str) -> Path:
    """index.html with the SVG inline, so that the one file can be sent to someone."""
    picture = svg[svg.index("<svg") :]  # what stands before it belongs to a file of its own
    paragraphs = "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    text = f"<pre>{html.escape(table)}</pre>" if table else ""
    path = directory / "index.html"
    replace_text(
        path,
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{paragraphs}\n{text}\n"
        f'<figure role="img" aria-label="{html.escape(title)}">{picture}</figure>\n</body>\n</html>\n',
    )
    return path
