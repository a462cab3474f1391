"""Writer of the site's pages from their templates, and the options of a site that is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpeak.names import inside
from tokenpeak.report.former_trials import FormerTrials
from tokenpeak.report.pages import SITE_PAGES, Page
from tokenpeak.report.render import environment

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """How a site is made, and in which folder."""

    folder: Path
    pages: tuple[Page, ...]
    """Those of each sweep."""
    given: Mapping[str, object]
    """Parameters for the notebooks that declare them."""
    node_names: bool
    texts: bool
    """Engine logs and free text are in it."""
    live: bool
    documented: bool
    former: Path
    """The site that this one replaces."""
    notes: Path
    """The folder of what is noted on the former site's trials, by sweep."""
    new_notes: Path
    """That of what is noted on this one's."""
    origins_of_trials: Mapping[str, tuple[str, str]]
    """What the trials of each sweep are made of besides their files: their copies; their rows and pages."""

    def former_trials(self, sweep_id: str) -> FormerTrials:
        """The trials of a sweep that may be reused."""
        made_of, judged_by = self.origins_of_trials[sweep_id]
        return FormerTrials(
            former=inside(self.former, sweep_id),
            folder=inside(self.folder, sweep_id),
            notes=inside(self.notes, sweep_id),
            new_notes=inside(self.new_notes, sweep_id),
            made_of=made_of,
            judged_by=judged_by,
        )


class PageWriter:
    """Writes pages into the site's folder."""

    def __init__(self, options: SiteOptions) -> None:
        self._options = options
        self._env = environment()

    def page(self, path: str, template: str, **context: Any) -> None:
        """Write one page from its template."""
        target = inside(self._options.folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        live, documented = self._options.live, self._options.documented
        html = self._env.get_template(template).render(
            live=live, documented=documented, site_pages=SITE_PAGES, path=path, **context
        )
        target.write_text(html)
