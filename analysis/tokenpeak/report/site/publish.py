"""Putting a built site where others see it: a folder, a host by rsync, a branch for GitHub Pages, a bucket.

Only kinds of files that a site is made of leave, each named by the allowlist; anything else stops the publication. The
pages are made from cleaned copies of archives; a site whose data could still be cleaned stops it too. What is sent
is a copy of those files alone: what is put into the site meanwhile does not leave, nor does what a link leads to.
"""

import fnmatch
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tokenpeak.errors import ReportError, suggestion
from tokenpeak.files import delete
from tokenpeak.node.machine.root_files import OpenFolder, open_folder
from tokenpeak.own_place import git_environment, make_own, require_own_entries, require_unmoved
from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published
from tokenpeak.store.archive import Archive

GIT_WITHOUT_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Options of a git that runs no hook of the user's, which is meant for his own commits."""
_QUOTED = r"\"[^\"]*\"|'[^']*'"
_ELEMENT = re.compile(rf"<(a|script|link|img)(?=[\s/>])((?:[^>\"']+|{_QUOTED})*+)>", re.IGNORECASE)
_ADDRESS = re.compile(rf"\s(?:href|src)\s*=\s*({_QUOTED}|[^\s\"'>]+)", re.IGNORECASE)
_ID = re.compile(rf"\sid\s*=\s*({_QUOTED})", re.IGNORECASE)


def _page(text: str) -> tuple[list[str], list[str], set[str]]:
    """A page's links, the addresses that a browser loads by itself, and its identifiers.

    Pages escape quotes in their text, so an attribute is found without parsing the elements, most of which are a
    figure's; an HTML parser takes fifteen times as long.
    """
    links: list[str] = []
    loaded: list[str] = []
    for element, attributes in _ELEMENT.findall(text):
        addresses = [unescape(address.strip("\"'")) for address in _ADDRESS.findall(attributes)]
        (links if element.lower() == "a" else loaded).extend(addresses)
    return links, loaded, {unescape(name[1:-1]) for name in _ID.findall(text)}


def broken_links(site: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and for anything that a page would load from elsewhere."""
    pages = {path.resolve(): _page(path.read_text()) for path in sorted(site.rglob("*.html"))}

    @cache
    def target_of(folder: Path, path: str) -> tuple[Path, bool]:
        target = (folder / unquote(path)).resolve()
        return target, target.is_file()

    found = []
    for path, (links, loaded, _) in pages.items():
        name = path.relative_to(site.resolve()).as_posix()
        for address in [*links, *loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in loaded:
                    found.append(f"{name} loads {address} from elsewhere")
                continue
            target, is_there = target_of(path.parent, parts.path) if parts.path else (path, True)
            if not is_there:
                found.append(f"{name} links to {address}, which is not there")
            elif _is_place(parts.fragment) and target in pages and parts.fragment not in pages[target][2]:
                found.append(f"{name} links to {address}, which has no such place")
    return found


def _is_place(fragment: str) -> bool:
    """Whether a fragment names an element; one with an equals sign holds a page's state."""
    return bool(fragment) and "=" not in fragment


ALLOWED = (
    "index.html",
    "live.html",
    "compare.html",
    "methodology.html",
    "feed.atom",
    "static/*.css",
    "static/*.js",
    "static/*.svg",
    "docs/*/*.html",
    "docs/search-index.js",
    "*/*.html",
    "*/compare.js",
    "*/trials/*.html",
    "*/data/index.html",
    "*/data/SHA256SUMS",
    "*/data/csv/*.csv",
    "*/data/frames/*.csv",
    "*/data/frames/*.parquet",
    "*/data/notebooks/*.ipynb",
    "*/data/raw/sweep.json",
    "*/data/raw/end.json",
    "*/data/raw/claims.yml",
    "*/data/raw/quality.json",
    "*/data/raw/applies/*.json",
    "*/data/raw/trials/*.json",
    "*/data/raw/trials/*.requests.parquet",
    "*/data/raw/trials/*.engine.log.zst",
)

PAPERMILL = b'"papermill": {'
"""Metadata of a notebook that says where it lay."""

Say = Callable[[str], None]


def leaving(site: Path) -> list[str]:
    """The files that would leave, by path; a link, or a file that no entry of the allowlist names, is an error."""
    if not (site / "index.html").is_file():
        raise ReportError(f"{site} holds no site. Build one first: tokenpeak report.")
    kinds = {path.relative_to(site).as_posix(): path.lstat().st_mode for path in site.rglob("*")}
    if links := sorted(name for name, mode in kinds.items() if stat.S_ISLNK(mode)):
        raise ReportError(f"{site / links[0]} is a link to somewhere else. Remove it, or build the site again.")
    files = sorted(name for name, mode in kinds.items() if not stat.S_ISDIR(mode))
    strangers = [
        name
        for name in files
        if not (stat.S_ISREG(kinds[name]) and any(_matches(name, pattern) for pattern in ALLOWED))
    ]
    if strangers:
        named = ", ".join(strangers[:5]) + (" …" if len(strangers) > 5 else "")
        raise ReportError(f"{site} holds {len(strangers)} files that no site is made of: {named}. Remove them.")
    return files


@contextmanager
def _copied(site: Path, files: Sequence[str]) -> Iterator[Path]:
    """A copy of these files alone, where nobody else can write."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "site"
        make_own(copy)
        try:
            with open_folder(site) as folder:
                for name in files:
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    _copy(folder, name, copy / name)
        except OSError as error:
            raise ReportError(f"{site} could not be copied: {error}. Build it again, then publish it.") from error
        yield copy


def _copy(folder: OpenFolder, name: str, target: Path) -> None:
    """Copy a file below a folder, through no link; its time stays, by which rsync and aws see what is new."""
    first, _, rest = name.partition("/")
    if rest:
        with folder.below(first) as inner:
            _copy(inner, rest, target)
        return
    with os.fdopen(folder.reading(first), "rb") as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy)
        facts = os.fstat(source.fileno())
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _matches(name: str, pattern: str) -> bool:
    """Whether a path matches, part by part: a star does not cross a slash."""
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(fnmatch.fnmatchcase(a, b) for a, b in zip(parts, wanted, strict=True))


def sensitive(site: Path, *, texts: bool = False) -> list[str]:
    """Findings of machines, people or secrets in the data that the site's pages are made of, a line for each kind.

    So are engine logs and free text, unless `texts`.
    The data are cleaned again, which finds nothing in what has been cleaned.
    """
    found = []
    for path in sorted(site.glob("*/data/raw/sweep.json")):
        archive = Archive(path.parent)
        with tempfile.TemporaryDirectory() as scratch:
            named = is_published(archive.read_sweep())
            findings = cleaned_copy(archive.path, Path(scratch), node_names=named, texts=texts)
        found += [f"{path.parent.relative_to(site)}: {line}" for line in findings.lines()]
    for path in sorted(site.glob("*/data/notebooks/*.ipynb")):
        if PAPERMILL in path.read_bytes():
            found.append(f"{path.relative_to(site)}: where it was executed")
    return found


def publish(
    site: Path,
    target: str,
    destination: str,
    *,
    dry_run: bool,
    say: Say,
    texts: bool = False,
    keep_everything: bool = False,
) -> None:
    """Check the site, then send it; with `dry_run` only say what would leave and by which command.

    A site that names machines, people or secrets, or without `texts` has logs and free text, is refused, or with
    `keep_everything` sent as it is.
    """
    if target not in TARGETS:
        raise ReportError(f"No target {target!r}. {suggestion(target, TARGETS)}")
    files = leaving(site)
    # A dry run sends nothing, and its commands name the site.
    with nullcontext(site) if dry_run else _copied(site, files) as copy:
        _require_clean(site, copy, say, texts=texts, keep_everything=keep_everything)
        size = sum((copy / name).stat().st_size for name in files)
        say(f"{len(files)} files, {size / 1e6:.1f} MB, every link leads somewhere")
        if dry_run:
            for name in files:
                say(f"  {name}")
        TARGETS[target](copy, destination, dry_run, say)


def _require_clean(site: Path, copy: Path, say: Say, *, texts: bool, keep_everything: bool) -> None:
    """ReportError where links of the copy lead nowhere, or it names what only leaves with `keep_everything`."""
    broken = broken_links(copy)
    if broken:
        more = f"\n  … and {len(broken) - 10} more" if len(broken) > 10 else ""
        raise ReportError("The site has broken links:\n  " + "\n  ".join(broken[:10]) + more)
    if found := sensitive(copy, texts=texts):
        if not keep_everything:
            listed = "\n  ".join(found[:20])
            raise ReportError(
                f"{site} names machines, people or secrets:\n  {listed}\n"
                "Build it again without --node-names and --texts: tokenpeak report. Or send logs and free text too, "
                "cleaned: --texts; or all as it is: --keep-everything."
            )
        say("The site names machines, people or secrets, and is sent as it is:")
        for line in found[:20]:
            say(f"  {line}")


def _to_folder(site: Path, destination: str, dry_run: bool, say: Say) -> None:
    place = Path(destination).absolute()
    if place.exists() and any(place.iterdir()) and not (place / "static" / "site.css").is_file():
        raise ReportError(f"{place} exists and is no site. Choose another folder, or empty it.")
    require_unmoved(place.parent, "site", "Run it as that user, or publish by rsync as that user.")
    fresh = place.with_name(f".{place.name}.publishing")
    require_own_entries(place, fresh)
    if dry_run:
        say(f"Would replace {place}")
        return
    delete(fresh)
    make_own(fresh)
    shutil.copytree(site, fresh, dirs_exist_ok=True)
    delete(place)
    fresh.rename(place)
    say(f"Published to {place}")


def _to_rsync(site: Path, destination: str, dry_run: bool, say: Say) -> None:
    # --delay-updates swaps files in at the end: readers see the former site or the new one.
    _run(["rsync", "--recursive", "--times", "--delete", "--delay-updates", f"{site}/", destination], dry_run, say)


def _to_bucket(site: Path, destination: str, dry_run: bool, say: Say) -> None:
    if not destination.startswith("s3://"):
        raise ReportError(f"DEST is {destination!r}; a bucket is written s3://NAME/FOLDER.")
    _run(["aws", "s3", "sync", "--delete", "--no-follow-symlinks", str(site), destination], dry_run, say)


def _to_branch(site: Path, destination: str, dry_run: bool, say: Say) -> None:
    """Push the site as the only commit of branch gh-pages of the repository at `destination`."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "site"
        if dry_run:
            say(f"Would push one commit to branch gh-pages of {destination}")
            return
        shutil.copytree(site, work)
        # Pages would otherwise leave out what Jekyll does not like.
        (work / ".nojekyll").touch()
        author = ["-c", "user.name=TokenPeak", "-c", "user.email=tokenpeak@localhost"]
        git = ["git", "-C", str(work), *GIT_WITHOUT_HOOKS]
        _run([*git, "init", "--quiet", "--initial-branch=gh-pages"], dry_run, say)
        _run([*git, "add", "--all"], dry_run, say)
        _run([*git, *author, "commit", "--quiet", "--message", "Publish the site"], dry_run, say)
        _run([*git, "push", "--force", destination, "gh-pages"], dry_run, say)


def _run(command: Sequence[str], dry_run: bool, say: Say) -> None:
    if dry_run:
        say("Would run: " + " ".join(command))
        return
    if shutil.which(command[0]) is None:
        raise ReportError(f"{command[0]} is not installed. Install it, or publish to a folder: tokenpeak publish dir.")
    done = subprocess.run(command, env=git_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReportError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.strip()}")


TARGETS: dict[str, Callable[[Path, str, bool, Say], None]] = {
    "dir": _to_folder,
    "rsync": _to_rsync,
    "ghpages": _to_branch,
    "s3": _to_bucket,
}
