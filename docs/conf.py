"""How Sphinx makes the documentation: ``tox run -e docs``."""

from __future__ import annotations

import django
from django.conf import settings

import celery_reliable

# The models that are documented need apps.
settings.configure(
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "celery_reliable.contrib.django",
    ]
)
django.setup()

project = "celery-reliable"
author = "The celery-reliable contributors"
copyright = author  # noqa: A001
version = release = celery_reliable.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]

# Nothing is fetched: `tox run -e docs` works without a network.
html_theme = "furo"
html_title = project
html_static_path: list[str] = []
html_show_sphinx = False
html_copy_source = False

# A literal block without a language is text; single backquotes in docstrings are names.
highlight_language = "text"
default_role = "code"
# Two dashes are an option.
smartquotes = False
# Types in signatures are told, not linked: others' inventories would have to be fetched.
nitpick_ignore_regex = [(r"py:(class|obj|data|exc)", r".*")]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
