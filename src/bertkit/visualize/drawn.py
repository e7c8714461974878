"""Results that can be seen: on a terminal, in a notebook, in a file."""

from __future__ import annotations

import html
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertkit.errors import ConfigError
from bertkit.system.atomic_files import write_atomically
from bertkit.visualize.figures import IMAGE_ENDINGS, image_of, save_figure
from bertkit.visualize.page import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Endings of the files that a result can be written to.
ENDINGS = (*IMAGE_ENDINGS, ".html", ".json")


class Drawn(ABC):
    """Numbers with a picture of them: ``save("name.png")``, ``.svg``, ``.pdf``, ``.html`` or ``.json``."""

    #: Heading of the HTML page.
    title: ClassVar[str]

    @abstractmethod
    def to_dict(self) -> Mapping[str, Any]:
        """The numbers behind the picture, as JSON has them."""

    @abstractmethod
    def render(self) -> str:
        """What a terminal shows."""

    @abstractmethod
    def figure(self) -> Figure:
        """A new matplotlib figure."""

    def page(self) -> str:
        """A self-contained HTML document: the figure, unless the kind of picture has a view of its own."""
        return document(self.title, f'<figure class="paper">{inline(self.figure())}</figure>')

    def save(self, path: str | Path) -> Path:
        """Write a file in the format that the name ends in, replacing one that is there.

        Raises:
            ConfigError: another ending than those of :data:`ENDINGS`.
            MissingExtraError: an image, or a page that holds one, without matplotlib (the extra ``plots``).
        """
        path = Path(path)
        if path.suffix not in ENDINGS:
            raise ConfigError(f"{path}: unknown format; the name must end in {', '.join(ENDINGS)}")
        if path.suffix in IMAGE_ENDINGS:
            return save_figure(self.figure(), path)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(path, self.page() if path.suffix == ".html" else text)
        return path

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame of its own, so that its scripts and styles stay inside."""
        content = html.escape(self.page(), quote=True)
        style = "width:100%;height:640px;border:0"
        return f'<iframe srcdoc="{content}" title="{html.escape(self.title)}" style="{style}"></iframe>'


def inline(figure: Figure) -> str:
    """A figure as an SVG element."""
    image = image_of(figure, "svg").decode("utf-8")
    return image[image.index("<svg") :]
