"""Describe the distribution for package indexes: the README without links and pictures that lead nowhere there."""

import re
from pathlib import Path

from setuptools import setup

RELATIVE = r"\((?!https?:|#)([^)]*)\)"


def for_package_index(text: str) -> str:
    """Return Markdown without what needs the files beside it: pictures go, links become their text and path."""
    text = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL)
    text = re.sub(r":? ?!\[[^]]*\]" + RELATIVE, "", text)
    text = re.sub(
        r"\[([^]]*)\]" + RELATIVE,
        lambda link: link[1] if link[2].startswith(link[1]) else f"{link[1]} ({link[2]})",
        text,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


setup(
    long_description=for_package_index(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
