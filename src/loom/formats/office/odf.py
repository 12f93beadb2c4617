"""OpenDocument texts and presentations (.odt, .odp): the text of the content, the headers and the footers."""

from __future__ import annotations

from loom.formats.office import text_marks
from loom.formats.office.archive import encrypted_error
from loom.formats.office.odf_content import OdfContent
from loom.formats.office.ooxml import Package, Pictures

_CONTENT = "content.xml"
_STYLES = "styles.xml"
_MANIFEST = "META-INF/manifest.xml"


def check_not_encrypted(package: Package) -> None:
    """Raise if the document is encrypted. OpenDocument encrypts each part and records it in the manifest; the container
    itself is readable."""
    if _MANIFEST in package.archive and package.tree(_MANIFEST, tags=("manifest:encryption-data",)).children:
        raise encrypted_error(package.name)


def odt_text(package: Package, pictures: Pictures) -> str:
    body = _body(package, "text", pictures)
    margins = _content(package, _STYLES, pictures).margins if _STYLES in package.archive else []
    sections = [text_marks.join_blocks(body.blocks), "\n".join(body.notes), "\n".join(body.comments)]
    sections.append("\n".join(dict.fromkeys(margins)))
    return "\n\n".join(section for section in sections if section)


def odp_slides(package: Package, pictures: Pictures) -> list[str]:
    """Return one text per slide, each under its marker."""
    return _body(package, "presentation", pictures).slides


def _body(package: Package, kind: str, pictures: Pictures) -> OdfContent:
    if _CONTENT not in package.archive:
        raise package.type_mismatch()
    content = _content(package, _CONTENT, pictures)
    if kind not in content.kinds:
        raise package.type_mismatch()
    return content


def _content(package: Package, part: str, pictures: Pictures) -> OdfContent:
    content = OdfContent(package, pictures)
    package.read(part, content.xml)
    return content
