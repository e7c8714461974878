"""The site of the documentation: ``make docs``. What each extension of ours does is said at its top."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from bertkit import __version__

project = "bertkit"
author = "the authors of bertkit"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "generated_pages",
    "block_outputs",
    "markdown_twins",
    "accessible_html",
]
exclude_patterns = ["_build", "_ext", "_generated", "data", "try", "images/*.py", "outputs"]
templates_path = ["_templates"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
smartquotes = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
napoleon_use_rtype = False
napoleon_use_param = False
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = "bertkit"
html_static_path = ["_static"]
html_css_files = ["bertkit.css"]
html_js_files = [("chooser.js", {"defer": "defer"}), ("site.js", {"defer": "defer"})]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_sidebars = {"*": []}  # pages without others beside them: wide tables and pictures get the room
html_theme_options = {
    "logo": {"text": "bertkit"},
    "navbar_end": ["version-switcher", "theme-switcher"],
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": ["sphinx-version"],
    "show_prev_next": True,
    "switcher": {"json_url": "_static/switcher.json", "version_match": version},
    "show_version_warning_banner": False,
    "check_switcher": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
