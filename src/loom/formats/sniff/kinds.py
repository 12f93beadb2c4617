"""The kinds of files that Loom can name: media type, category, a word for people, and the usual extensions."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.content.media import Category

UNKNOWN: Final = "application/octet-stream"
SVG: Final = "image/svg+xml"
DELIMITED: Final = frozenset({"text/csv", "text/tab-separated-values"})
"""Text that is a table."""

_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_MS: Final = "application/vnd.ms-"
_ODF: Final = "application/vnd.oasis.opendocument."


class Kind(msgspec.Struct, frozen=True):
    category: Category
    label: str
    extensions: str = ""


KINDS: Final[dict[str, Kind]] = {
    # pictures
    "image/png": Kind("image", "PNG", "png apng"),
    "image/jpeg": Kind("image", "JPEG", "jpg jpeg jpe jfif"),
    "image/gif": Kind("image", "GIF", "gif"),
    "image/webp": Kind("image", "WebP", "webp"),
    "image/bmp": Kind("image", "BMP", "bmp dib"),
    "image/tiff": Kind("image", "TIFF", "tif tiff"),
    "image/x-icon": Kind("image", "ICO", "ico cur"),
    "image/heic": Kind("image", "HEIC", "heic heics heif heifs hif"),
    "image/avif": Kind("image", "AVIF", "avif avifs"),
    "image/vnd.adobe.photoshop": Kind("unsupported", "a Photoshop picture", "psd psb"),
    "image/jp2": Kind("unsupported", "a JPEG 2000 picture", "jp2 j2k jpx jpf"),
    "image/jxl": Kind("unsupported", "a JPEG XL picture", "jxl"),
    "image/x-canon-cr2": Kind("unsupported", "a Canon raw picture", "cr2"),
    "image/x-canon-cr3": Kind("unsupported", "a Canon raw picture", "cr3"),
    "image/vnd.djvu": Kind("unsupported", "a DjVu document", "djvu djv"),
    "image/x-xcf": Kind("unsupported", "a GIMP picture", "xcf"),
    "image/qoi": Kind("unsupported", "a QOI picture", "qoi"),
    "image/x-exr": Kind("unsupported", "an OpenEXR picture", "exr"),
    "image/x-portable-anymap": Kind("unsupported", "a Netpbm picture", "pbm pgm ppm pnm"),
    "image/emf": Kind("unsupported", "a Windows metafile picture", "emf"),
    "image/wmf": Kind("unsupported", "a Windows metafile picture", "wmf"),
    "image/x-icns": Kind("unsupported", "an Apple icon", "icns"),
    # documents
    "application/pdf": Kind("pdf", "PDF", "pdf"),
    _OOXML + "wordprocessingml.document": Kind("office", "a Word document", "docx"),
    _OOXML + "wordprocessingml.template": Kind("office", "a Word template", "dotx"),
    _MS + "word.document.macroenabled.12": Kind("office", "a Word document with macros", "docm dotm"),
    _OOXML + "presentationml.presentation": Kind("office", "a PowerPoint presentation", "pptx"),
    _OOXML + "presentationml.slideshow": Kind("office", "a PowerPoint show", "ppsx"),
    _OOXML + "presentationml.template": Kind("office", "a PowerPoint template", "potx"),
    _MS + "powerpoint.presentation.macroenabled.12": Kind(
        "office", "a PowerPoint presentation with macros", "pptm ppsm potm"
    ),
    _OOXML + "spreadsheetml.sheet": Kind("office", "an Excel workbook", "xlsx"),
    _OOXML + "spreadsheetml.template": Kind("office", "an Excel template", "xltx"),
    _MS + "excel.sheet.macroenabled.12": Kind("office", "an Excel workbook with macros", "xlsm xltm xlam"),
    _MS + "excel.sheet.binary.macroenabled.12": Kind("office", "a binary Excel workbook", "xlsb"),
    _ODF + "text": Kind("office", "an OpenDocument text", "odt ott"),
    _ODF + "presentation": Kind("office", "an OpenDocument presentation", "odp otp"),
    _ODF + "spreadsheet": Kind("office", "an OpenDocument spreadsheet", "ods ots"),
    "application/msword": Kind("office", "a Word 97 document", "doc dot"),
    _MS + "powerpoint": Kind("office", "a PowerPoint 97 presentation", "ppt pps pot"),
    _MS + "excel": Kind("office", "an Excel 97 workbook", "xls xlt"),
    _MS + "outlook": Kind("unsupported", "an Outlook message", "msg"),
    "application/vnd.visio": Kind("unsupported", "a Visio drawing", "vsd vsdx"),
    "application/x-ole-storage": Kind("unsupported", "an OLE container"),
    _ODF + "graphics": Kind("unsupported", "an OpenDocument drawing", "odg"),
    "application/epub+zip": Kind("unsupported", "an EPUB book", "epub"),
    # sound
    "audio/wav": Kind("audio", "WAV", "wav wave"),
    "audio/mpeg": Kind("audio", "MP3", "mp3 mp2"),
    "audio/flac": Kind("audio", "FLAC", "flac"),
    "audio/ogg": Kind("audio", "Ogg audio", "ogg oga opus spx"),
    "audio/mp4": Kind("audio", "M4A", "m4a m4b"),
    "audio/aac": Kind("unsupported", "AAC audio without a container", "aac"),
    "audio/aiff": Kind("unsupported", "AIFF audio", "aif aiff aifc"),
    "audio/amr": Kind("unsupported", "AMR audio", "amr"),
    "audio/midi": Kind("unsupported", "MIDI", "mid midi"),
    "audio/basic": Kind("unsupported", "Sun audio", "au snd"),
    # moving pictures
    "video/mp4": Kind("unsupported", "an MP4 video", "mp4 m4v"),
    "video/quicktime": Kind("unsupported", "a QuickTime video", "mov qt"),
    "video/3gpp": Kind("unsupported", "a 3GPP video", "3gp 3g2"),
    "video/webm": Kind("unsupported", "a WebM video", "webm"),
    "video/matroska": Kind("unsupported", "a Matroska video", "mkv mka"),
    "video/x-msvideo": Kind("unsupported", "an AVI video", "avi"),
    "video/ogg": Kind("unsupported", "an Ogg video", "ogv"),
    "video/x-flv": Kind("unsupported", "a Flash video", "flv"),
    "video/mpeg": Kind("unsupported", "an MPEG video", "mpg mpeg vob"),
    "video/x-ms-asf": Kind("unsupported", "a Windows Media file", "wmv wma asf"),
    # archives
    "application/zip": Kind("unsupported", "a ZIP archive", "zip"),
    "application/java-archive": Kind("unsupported", "a Java archive", "jar war ear"),
    "application/vnd.android.package-archive": Kind("unsupported", "an Android package", "apk"),
    "application/gzip": Kind("unsupported", "a gzip archive", "gz tgz svgz"),
    "application/x-bzip2": Kind("unsupported", "a bzip2 archive", "bz2"),
    "application/x-xz": Kind("unsupported", "an xz archive", "xz"),
    "application/zstd": Kind("unsupported", "a Zstandard archive", "zst"),
    "application/x-lz4": Kind("unsupported", "an LZ4 archive", "lz4"),
    "application/x-7z-compressed": Kind("unsupported", "a 7-Zip archive", "7z"),
    "application/vnd.rar": Kind("unsupported", "a RAR archive", "rar"),
    "application/x-tar": Kind("unsupported", "a tar archive", "tar"),
    "application/vnd.ms-cab-compressed": Kind("unsupported", "a Cabinet archive", "cab"),
    "application/x-archive": Kind("unsupported", "an ar archive", "a deb"),
    "application/x-rpm": Kind("unsupported", "an RPM package", "rpm"),
    # programs and data
    "application/x-elf": Kind("unsupported", "an ELF program", "so o elf"),
    "application/vnd.microsoft.portable-executable": Kind("unsupported", "a Windows program", "exe dll sys"),
    "application/x-mach-binary": Kind("unsupported", "a macOS program", "dylib"),
    "application/java-vm": Kind("unsupported", "a Java class", "class"),
    "application/wasm": Kind("unsupported", "a WebAssembly module", "wasm"),
    "application/vnd.sqlite3": Kind("unsupported", "a SQLite database", "sqlite sqlite3 db"),
    "application/vnd.apache.parquet": Kind("unsupported", "a Parquet table", "parquet"),
    "application/x-hdf5": Kind("unsupported", "HDF5 data", "h5 hdf5"),
    "application/x-npy": Kind("unsupported", "a NumPy array", "npy"),
    "application/vnd.tcpdump.pcap": Kind("unsupported", "a packet capture", "pcap"),
    "application/x-ms-shortcut": Kind("unsupported", "a Windows shortcut", "lnk"),
    "application/x-shockwave-flash": Kind("unsupported", "a Flash movie", "swf"),
    "application/x-python-code": Kind("unsupported", "compiled Python", "pyc"),
    "application/x-bplist": Kind("unsupported", "a binary property list", "plist"),
    "font/ttf": Kind("unsupported", "a TrueType font", "ttf ttc"),
    "font/otf": Kind("unsupported", "an OpenType font", "otf"),
    "font/woff": Kind("unsupported", "a WOFF font", "woff"),
    "font/woff2": Kind("unsupported", "a WOFF2 font", "woff2"),
    UNKNOWN: Kind("unsupported", "a file of unknown binary content"),
    # text
    "text/plain": Kind("text", "plain text", "txt text log ini cfg conf env rst tex sql"),
    "text/html": Kind("text", "HTML", "html htm xhtml"),
    "text/xml": Kind("text", "XML", "xml xsl xsd rss atom"),
    SVG: Kind("text", "SVG", "svg"),
    "text/rtf": Kind("text", "RTF", "rtf"),
    "application/postscript": Kind("text", "PostScript", "ps eps ai"),
    "application/json": Kind("text", "JSON", "json geojson ipynb"),
    "application/x-ndjson": Kind("text", "JSON lines", "jsonl ndjson"),
    "text/csv": Kind("text", "CSV", "csv"),
    "text/tab-separated-values": Kind("text", "TSV", "tsv tab"),
    "text/markdown": Kind("text", "Markdown", "md markdown mdown"),
    "text/x-python": Kind("text", "Python", "py pyi"),
    "text/x-shellscript": Kind("text", "a shell script", "sh bash zsh"),
    "text/javascript": Kind("text", "JavaScript", "js mjs cjs jsx"),
    "text/x-typescript": Kind("text", "TypeScript", "tsx mts"),
    "text/css": Kind("text", "CSS", "css"),
    "application/yaml": Kind("text", "YAML", "yaml yml"),
    "application/toml": Kind("text", "TOML", "toml"),
    "text/x-c": Kind("text", "C source", "c h cc cpp hpp"),
    "text/x-java": Kind("text", "Java source", "java"),
    "text/x-go": Kind("text", "Go source", "go"),
    "text/x-rust": Kind("text", "Rust source", "rs"),
    "text/calendar": Kind("text", "a calendar", "ics"),
    "text/vcard": Kind("text", "a contact card", "vcf"),
    "text/x-diff": Kind("text", "a patch", "diff patch"),
    "message/rfc822": Kind("text", "an e-mail", "eml"),
}

_BY_EXTENSION: Final = {
    extension: media_type for media_type, kind in KINDS.items() for extension in kind.extensions.split()
}


def category_of(media_type: str) -> Category:
    kind = KINDS.get(media_type)
    if kind is not None:
        return kind.category
    return "text" if media_type.startswith("text/") else "unsupported"


def label_of(media_type: str) -> str:
    """The word for people: `PNG`, `a ZIP archive`."""
    kind = KINDS.get(media_type)
    return media_type if kind is None else kind.label


def type_of_name(name: str) -> str | None:
    """The media type that a file name claims, if its extension is one that we know."""
    _, dot, extension = name.rpartition(".")
    return _BY_EXTENSION.get(extension.lower()) if dot else None
