"""Where an imported archive's figures come from, and what they lack."""

from tokenpeak.report.blocks import Facts
from tokenpeak.report.view import SweepView


def provenance(view: SweepView) -> Facts | None:
    """The source, the mapping, and what is not known; None for a sweep of our own."""
    imported = view.record.imported
    if imported is None:
        return None
    pairs = [
        ("Measured by", imported.tool or "not known"),
        ("Measured", imported.measured or "date not known"),
        ("Title", imported.title or ""),
        ("Published", ", ".join(word for word in (imported.publisher, imported.published) if word)),
        ("Address", imported.url or ""),
        ("Read as", imported.format),
        ("Imported", f"{view.record.started_at:%Y-%m-%d}"),
        *(("File", f"{file.name} (SHA-256 {file.sha256[:16]}…)") for file in imported.files),
        *(("Differs", words) for words in imported.differences),
        *(("Not known", words) for words in imported.unknown),
        ("Not mapped", "; ".join(imported.unmapped)),
        ("Mapping", "; ".join(f"{field} from {source}" for field, source in imported.mapping.items())),
    ]
    return Facts(title="Where this is from", pairs=tuple((word, value) for word, value in pairs if value))
