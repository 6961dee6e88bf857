"""Adds the generated reference pages to the site that mkdocs builds."""

from __future__ import annotations

import reference  # mkdocs puts the directory of a hook on the path while it loads it
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Appends the pages of `reference.pages`."""
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files
