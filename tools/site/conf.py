"""Configuration of Sphinx for the documentation site: `make docs` builds docs/ with it into build/site.

Sphinx, MyST and Furo render the Markdown that also reads well in the repository. Whatever the code already says
(commands, signatures, routes, defaults) is written into the pages by `reference.py` while they are read.
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
myst_heading_anchors = 4  # the anchors that links of Markdown name: `python.md#errors`
myst_links_external_new_tab = False
# The markup of docstrings is not an error here (plain text reads well enough); links that lead nowhere are.
suppress_warnings = ["myst.header", "docutils", "autodoc", "ref.python", "misc.highlighting_failure"]
smartquotes = False  # `--option` keeps its hyphens

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are listed once, with their class
add_module_names = False

html_theme = "furo"
html_static_path = []
html_copy_source = False
html_show_sourcelink = False
highlight_language = "sh"  # of blocks that name none: commands
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_permalinks_icon = "#"

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")
REVISION = os.environ.get("GITHUB_REF_NAME", "main")


def setup(app):
    def read(app, name, source):
        text = reference.fill(name, source[0])
        source[0] = links.outside(text, app.env.doc2path(name), ROOT, REPOSITORY, REVISION)

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
