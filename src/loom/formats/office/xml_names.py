"""Names in office XML. The prefixes are ours: files may use any; transitional and strict namespaces are equivalent."""

from __future__ import annotations

from functools import cache
from typing import Final, TypeAlias

Attributes: TypeAlias = dict[str, str]
AttributeKeys: TypeAlias = tuple[str, ...]

_SCHEMA: Final = "http://schemas.openxmlformats.org/"
_STRICT: Final = "http://purl.oclc.org/ooxml/"
_MICROSOFT: Final = "http://schemas.microsoft.com/office/"
_OASIS: Final = "urn:oasis:names:tc:opendocument:xmlns:"
NAMESPACES: Final[dict[str, tuple[str, ...]]] = {
    "w": (f"{_SCHEMA}wordprocessingml/2006/main", f"{_STRICT}wordprocessingml/main"),
    "p": (f"{_SCHEMA}presentationml/2006/main", f"{_STRICT}presentationml/main"),
    "x": (f"{_SCHEMA}spreadsheetml/2006/main", f"{_STRICT}spreadsheetml/main"),
    "a": (f"{_SCHEMA}drawingml/2006/main", f"{_STRICT}drawingml/main"),
    "pic": (f"{_SCHEMA}drawingml/2006/picture", f"{_STRICT}drawingml/picture"),
    "wp": (f"{_SCHEMA}drawingml/2006/wordprocessingDrawing", f"{_STRICT}drawingml/wordprocessingDrawing"),
    "xdr": (f"{_SCHEMA}drawingml/2006/spreadsheetDrawing", f"{_STRICT}drawingml/spreadsheetDrawing"),
    "c": (f"{_SCHEMA}drawingml/2006/chart", f"{_STRICT}drawingml/chart"),
    "cx": (f"{_MICROSOFT}drawing/2014/chartex",),
    "dgm": (f"{_SCHEMA}drawingml/2006/diagram", f"{_STRICT}drawingml/diagram"),
    "m": (f"{_SCHEMA}officeDocument/2006/math", f"{_STRICT}officeDocument/math"),
    "r": (f"{_SCHEMA}officeDocument/2006/relationships", f"{_STRICT}officeDocument/relationships"),
    "rel": (f"{_SCHEMA}package/2006/relationships",),
    "mc": (f"{_SCHEMA}markup-compatibility/2006",),
    "v": ("urn:schemas-microsoft-com:vml",),
    "p188": (f"{_MICROSOFT}powerpoint/2018/8/main",),
    "office": (f"{_OASIS}office:1.0",),
    "text": (f"{_OASIS}text:1.0",),
    "table": (f"{_OASIS}table:1.0",),
    "draw": (f"{_OASIS}drawing:1.0",),
    "presentation": (f"{_OASIS}presentation:1.0",),
    "style": (f"{_OASIS}style:1.0",),
    "svg": (f"{_OASIS}svg-compatible:1.0",),
    "manifest": (f"{_OASIS}manifest:1.0",),
    "math": ("http://www.w3.org/1998/Math/MathML",),
    "xlink": ("http://www.w3.org/1999/xlink",),
    "dc": ("http://purl.org/dc/elements/1.1/",),
}
PREFIXES: Final = {uri: prefix for prefix, uris in NAMESPACES.items() for uri in uris}


@cache
def keys(name: str) -> AttributeKeys:
    """Return every spelling of `w:val` that expat may report: unchanged, and with either namespace as prefix."""
    prefix, _, local = name.partition(":")
    return (name, *(f"{uri} {local}" for uri in NAMESPACES[prefix]))


def value(attributes: Attributes, names: AttributeKeys) -> str:
    """Return an attribute in either namespace, or an empty string if it is missing."""
    for name in names:
        if name in attributes:
            return attributes[name]
    return ""
