"""Configuration of Sphinx for the documentation site: `make docs` builds docs/ with it into build/site.

Sphinx, MyST and Furo render the Markdown, which is also readable in the repository. Text that follows from the code
(commands, signatures, routes, defaults) is inserted by `reference.py` while pages are read.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import links
import reference

import pumice

project = "Pumice"
author = "The Pumice authors"
copyright = "The Pumice authors"
version = release = pumice.__version__
html_title = f"Pumice {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4  # anchors for Markdown links: `python.md#errors`
myst_links_external_new_tab = False
# Markup in docstrings is no error (plain text is readable); broken links are.
suppress_warnings = ["myst.header", "docutils", "autodoc", "ref.python", "misc.highlighting_failure"]
smartquotes = False  # `--option` keeps its hyphens

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # list attributes once, with their class
add_module_names = False

html_theme = "furo"
html_static_path = []
html_copy_source = False
html_show_sourcelink = False
highlight_language = "sh"  # default of code blocks: commands
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_permalinks_icon = "#"

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")
REVISION = os.environ.get("GITHUB_REF_NAME", "main")


KEYWORDS = "Keyword Args:"  # heading of the options in a docstring


def setup(app):
    def read(app, name, source):
        text = reference.fill(name, source[0])
        source[0] = links.outside(text, app.env.doc2path(name), ROOT, REPOSITORY, REVISION)

    def write_options_shortly(app, function, bound_method):
        """Show ``**options`` in signatures: the list of keywords describes each."""
        if "__signature__" in vars(function):
            del function.__signature__

    def list_options_once(app, what, name, obj, options, lines):
        """List the keywords of generate, chat and load alone; functions like them take the same."""
        if KEYWORDS in lines and name.rpartition(".")[2] not in ("__init__", "generate", "chat", "load"):
            lines[lines.index(KEYWORDS) :] = []

    app.connect("source-read", read)
    app.connect("autodoc-before-process-signature", write_options_shortly)
    app.connect("autodoc-process-docstring", list_options_once, priority=0)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
