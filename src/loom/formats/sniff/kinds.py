"""The file types that Loom can name: media type, category, display name, and the usual extensions."""

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


class FileKind(msgspec.Struct, frozen=True):
    category: Category
    label: str
    extensions: str = ""


RAW_TYPES: Final = (
    *("image/x-canon-cr2", "image/x-canon-cr3", "image/x-adobe-dng", "image/x-nikon-nef", "image/x-sony-arw"),
    *("image/x-pentax-pef", "image/x-samsung-srw", "image/x-fuji-raf", "image/x-olympus-orf", "image/x-panasonic-rw2"),
    "image/x-dcraw",
)
KINDS: Final[dict[str, FileKind]] = {
    # images
    "image/png": FileKind("image", "PNG", "png apng"),
    "image/jpeg": FileKind("image", "JPEG", "jpg jpeg jpe jfif"),
    "image/gif": FileKind("image", "GIF", "gif"),
    "image/webp": FileKind("image", "WebP", "webp"),
    "image/bmp": FileKind("image", "BMP", "bmp dib"),
    "image/tiff": FileKind("image", "TIFF", "tif tiff"),
    "image/x-icon": FileKind("image", "ICO", "ico cur"),
    "image/heic": FileKind("image", "HEIC", "heic heics heif heifs hif"),
    "image/avif": FileKind("image", "AVIF", "avif avifs"),
    "image/vnd.adobe.photoshop": FileKind("image", "a Photoshop image", "psd psb"),
    "image/jp2": FileKind("image", "a JPEG 2000 image", "jp2 j2k jpx jpf"),
    "image/x-tga": FileKind("image", "a Targa image", "tga icb vda vst"),
    "image/jxl": FileKind("image", "JPEG XL", "jxl"),
    "image/x-canon-cr2": FileKind("image", "a Canon raw image", "cr2"),
    "image/x-canon-cr3": FileKind("image", "a Canon raw image", "cr3"),
    "image/x-adobe-dng": FileKind("image", "a DNG raw image", "dng"),
    "image/x-nikon-nef": FileKind("image", "a Nikon raw image", "nef nrw"),
    "image/x-sony-arw": FileKind("image", "a Sony raw image", "arw sr2"),
    "image/x-pentax-pef": FileKind("image", "a Pentax raw image", "pef"),
    "image/x-samsung-srw": FileKind("image", "a Samsung raw image", "srw"),
    "image/x-fuji-raf": FileKind("image", "a Fujifilm raw image", "raf"),
    "image/x-olympus-orf": FileKind("image", "an Olympus raw image", "orf"),
    "image/x-panasonic-rw2": FileKind("image", "a Panasonic raw image", "rw2"),
    "image/x-dcraw": FileKind("image", "a camera raw image", "3fr erf mef"),
    "image/vnd.djvu": FileKind("unsupported", "a DjVu document", "djvu djv"),
    "image/x-xcf": FileKind("unsupported", "a GIMP image", "xcf"),
    "image/qoi": FileKind("image", "a QOI image", "qoi"),
    "image/x-exr": FileKind("unsupported", "an OpenEXR image", "exr"),
    "image/x-portable-anymap": FileKind("image", "a Netpbm image", "pbm pgm ppm pnm"),
    "image/emf": FileKind("unsupported", "a Windows metafile image", "emf"),
    "image/wmf": FileKind("unsupported", "a Windows metafile image", "wmf"),
    "image/x-icns": FileKind("image", "an Apple icon", "icns"),
    "image/x-pcx": FileKind("image", "a PCX image", "pcx"),
    "image/x-sgi": FileKind("image", "an SGI image", "sgi rgb rgba bw"),
    "image/x-dds": FileKind("image", "a DirectDraw texture", "dds"),
    # documents
    "application/pdf": FileKind("pdf", "PDF", "pdf"),
    _OOXML + "wordprocessingml.document": FileKind("office", "a Word document", "docx"),
    _OOXML + "wordprocessingml.template": FileKind("office", "a Word template", "dotx"),
    _MS + "word.document.macroenabled.12": FileKind("office", "a Word document with macros", "docm dotm"),
    _OOXML + "presentationml.presentation": FileKind("office", "a PowerPoint presentation", "pptx"),
    _OOXML + "presentationml.slideshow": FileKind("office", "a PowerPoint show", "ppsx"),
    _OOXML + "presentationml.template": FileKind("office", "a PowerPoint template", "potx"),
    _MS + "powerpoint.presentation.macroenabled.12": FileKind(
        "office", "a PowerPoint presentation with macros", "pptm ppsm potm"
    ),
    _OOXML + "spreadsheetml.sheet": FileKind("office", "an Excel workbook", "xlsx"),
    _OOXML + "spreadsheetml.template": FileKind("office", "an Excel template", "xltx"),
    _MS + "excel.sheet.macroenabled.12": FileKind("office", "an Excel workbook with macros", "xlsm xltm xlam"),
    _MS + "excel.sheet.binary.macroenabled.12": FileKind("office", "a binary Excel workbook", "xlsb"),
    _ODF + "text": FileKind("office", "an OpenDocument text", "odt ott"),
    _ODF + "presentation": FileKind("office", "an OpenDocument presentation", "odp otp"),
    _ODF + "spreadsheet": FileKind("office", "an OpenDocument spreadsheet", "ods ots"),
    "application/msword": FileKind("office", "a Word 97 document", "doc dot"),
    _MS + "powerpoint": FileKind("office", "a PowerPoint 97 presentation", "ppt pps pot"),
    _MS + "excel": FileKind("office", "an Excel 97 workbook", "xls xlt"),
    _MS + "outlook": FileKind("office", "an Outlook message", "msg"),
    _MS + "visio.drawing": FileKind("office", "a Visio drawing", "vsdx vsdm vstx"),
    "application/vnd.apple.iwork": FileKind("office", "an iWork document", "pages numbers key"),
    "application/vnd.visio": FileKind("office", "a Visio drawing from before 2013", "vsd vst vss"),
    _MS + "publisher": FileKind("office", "a Publisher document", "pub"),
    _MS + "works": FileKind("office", "a Works document", "wps"),
    "application/x-mswrite": FileKind("office", "a Windows Write document", "wri"),
    "application/x-hwp": FileKind("office", "a Hangul 97 document"),
    "application/vnd.hancom.hwp": FileKind("unsupported", "a Hangul document", "hwp hwpx"),
    "application/vnd.wordperfect": FileKind("office", "a WordPerfect document", "wpd"),
    "application/vnd.lotus-1-2-3": FileKind("office", "a Lotus 1-2-3 workbook", "wk1 wk3 wk4 wks 123"),
    "application/x-quattro-pro": FileKind("office", "a Quattro Pro workbook", "wb1 wb2 wq1 wq2"),
    "application/x-dbf": FileKind("unsupported", "a dBASE table", "dbf"),
    "application/vnd.sun.xml.writer": FileKind("office", "an OpenOffice 1 text", "sxw stw"),
    "application/vnd.sun.xml.calc": FileKind("office", "an OpenOffice 1 spreadsheet", "sxc stc"),
    "application/vnd.sun.xml.impress": FileKind("office", "an OpenOffice 1 presentation", "sxi sti"),
    "application/vnd.sun.xml.draw": FileKind("office", "an OpenOffice 1 drawing", "sxd std"),
    _ODF + "text-flat-xml": FileKind("office", "a flat OpenDocument text", "fodt"),
    _ODF + "spreadsheet-flat-xml": FileKind("office", "a flat OpenDocument spreadsheet", "fods"),
    _ODF + "presentation-flat-xml": FileKind("office", "a flat OpenDocument presentation", "fodp"),
    "application/x-ipynb+json": FileKind("office", "a notebook", "ipynb"),
    "application/x-ole-storage": FileKind("unsupported", "an OLE container"),
    _ODF + "graphics": FileKind("office", "an OpenDocument drawing", "odg otg"),
    _MS + "access": FileKind("unsupported", "an Access database", "mdb accdb"),
    "application/onenote": FileKind("unsupported", "a OneNote section", "one onepkg"),
    _MS + "outlook-pst": FileKind("unsupported", "an Outlook mailbox", "pst ost"),
    _MS + "htmlhelp": FileKind("unsupported", "a compiled help file", "chm"),
    _MS + "tnef": FileKind("unsupported", "an Outlook winmail.dat file"),
    "image/vnd.dwg": FileKind("unsupported", "an AutoCAD drawing", "dwg"),
    "application/pkcs7-mime": FileKind("unsupported", "a signed or encrypted file (PKCS #7)", "p7m p7s p7c p7b"),
    "application/x-pkcs12": FileKind("unsupported", "a key store (PKCS #12)", "p12 pfx"),
    "application/pkix-cert": FileKind("unsupported", "a certificate", "cer crt der"),
    "application/epub+zip": FileKind("office", "an EPUB book", "epub"),
    # audio
    "audio/wav": FileKind("audio", "WAV", "wav wave"),
    "audio/mpeg": FileKind("audio", "MP3", "mp3 mp2"),
    "audio/flac": FileKind("audio", "FLAC", "flac"),
    "audio/ogg": FileKind("audio", "Ogg audio", "ogg oga opus spx"),
    "audio/mp4": FileKind("audio", "M4A", "m4a m4b"),
    "audio/aac": FileKind("audio", "AAC", "aac"),
    "audio/aiff": FileKind("unsupported", "AIFF audio", "aif aiff aifc"),
    "audio/amr": FileKind("unsupported", "AMR audio", "amr"),
    "audio/midi": FileKind("unsupported", "MIDI", "mid midi"),
    "audio/basic": FileKind("unsupported", "Sun audio", "au snd"),
    # video
    "video/mp4": FileKind("video", "an MP4 video", "mp4 m4v"),
    "video/quicktime": FileKind("video", "a QuickTime video", "mov qt"),
    "video/3gpp": FileKind("video", "a 3GPP video", "3gp 3g2"),
    "video/webm": FileKind("video", "a WebM video", "webm"),
    "video/matroska": FileKind("video", "a Matroska video", "mkv mka"),
    "video/x-msvideo": FileKind("video", "an AVI video", "avi"),
    "video/ogg": FileKind("video", "an Ogg video", "ogv"),
    "video/x-flv": FileKind("video", "a Flash video", "flv"),
    "video/mpeg": FileKind("video", "an MPEG video", "mpg mpeg vob"),
    "video/x-ms-asf": FileKind("video", "a Windows Media file", "wmv wma asf"),
    # archives
    "application/zip": FileKind("office", "a ZIP archive", "zip"),
    "application/java-archive": FileKind("office", "a Java archive", "jar war ear"),
    "application/vnd.android.package-archive": FileKind("office", "an Android package", "apk"),
    "application/gzip": FileKind("office", "a gzip archive", "gz tgz svgz"),
    "application/x-bzip2": FileKind("office", "a bzip2 archive", "bz2"),
    "application/x-xz": FileKind("office", "an xz archive", "xz"),
    "application/zstd": FileKind("unsupported", "a Zstandard archive", "zst"),
    "application/x-lz4": FileKind("unsupported", "an LZ4 archive", "lz4"),
    "application/x-7z-compressed": FileKind("unsupported", "a 7-Zip archive", "7z"),
    "application/vnd.rar": FileKind("unsupported", "a RAR archive", "rar"),
    "application/x-tar": FileKind("office", "a tar archive", "tar"),
    "application/vnd.ms-cab-compressed": FileKind("unsupported", "a Cabinet archive", "cab"),
    "application/x-archive": FileKind("unsupported", "an ar archive", "a deb"),
    "application/x-compress": FileKind("unsupported", "a compress archive", "z"),
    "application/x-cpio": FileKind("unsupported", "a cpio archive", "cpio"),
    "application/x-apple-diskimage": FileKind("unsupported", "a macOS disk image", "dmg"),
    "application/x-rpm": FileKind("unsupported", "an RPM package", "rpm"),
    # programs and data
    "application/x-elf": FileKind("unsupported", "an ELF program", "so o elf"),
    "application/vnd.microsoft.portable-executable": FileKind("unsupported", "a Windows program", "exe dll sys"),
    "application/x-mach-binary": FileKind("unsupported", "a macOS program", "dylib"),
    "application/java-vm": FileKind("unsupported", "a Java class", "class"),
    "application/wasm": FileKind("unsupported", "a WebAssembly module", "wasm"),
    "application/vnd.sqlite3": FileKind("office", "a SQLite database", "sqlite sqlite3 db"),
    "application/vnd.apache.parquet": FileKind("office", "a Parquet table", "parquet"),
    "application/x-hdf5": FileKind("unsupported", "HDF5 data", "h5 hdf5"),
    "application/x-hdf": FileKind("unsupported", "HDF4 data", "hdf hdf4"),
    "application/x-netcdf": FileKind("unsupported", "NetCDF data", "nc cdf"),
    "application/x-grib": FileKind("unsupported", "GRIB weather data", "grb grib grb2 grib2"),
    "application/fits": FileKind("unsupported", "FITS data", "fits fit fts"),
    "application/x-sas-data": FileKind("unsupported", "SAS data", "sas7bdat"),
    "application/x-matlab-data": FileKind("unsupported", "MATLAB data", "mat"),
    "application/x-npy": FileKind("unsupported", "a NumPy array", "npy"),
    "application/vnd.tcpdump.pcap": FileKind("unsupported", "a packet capture", "pcap"),
    "application/x-ms-shortcut": FileKind("unsupported", "a Windows shortcut", "lnk"),
    "application/x-shockwave-flash": FileKind("unsupported", "a Flash movie", "swf"),
    "application/x-python-code": FileKind("unsupported", "compiled Python", "pyc"),
    "application/x-bplist": FileKind("unsupported", "a binary property list", "plist"),
    "font/ttf": FileKind("unsupported", "a TrueType font", "ttf ttc"),
    "font/otf": FileKind("unsupported", "an OpenType font", "otf"),
    "font/woff": FileKind("unsupported", "a WOFF font", "woff"),
    "font/woff2": FileKind("unsupported", "a WOFF2 font", "woff2"),
    UNKNOWN: FileKind("unsupported", "a file of unknown binary content"),
    # text
    "text/plain": FileKind("text", "plain text", "txt text log ini cfg conf env rst tex sql"),
    "text/html": FileKind("text", "HTML", "html htm xhtml"),
    "text/xml": FileKind("text", "XML", "xml xsl xsd rss atom"),
    SVG: FileKind("text", "SVG", "svg"),
    "text/rtf": FileKind("office", "RTF", "rtf"),
    "application/postscript": FileKind("text", "PostScript", "ps eps ai"),
    "application/json": FileKind("text", "JSON", "json geojson"),
    "application/x-ndjson": FileKind("text", "JSON lines", "jsonl ndjson"),
    "text/csv": FileKind("text", "CSV", "csv"),
    "text/tab-separated-values": FileKind("text", "TSV", "tsv tab"),
    "text/markdown": FileKind("text", "Markdown", "md markdown mdown"),
    "text/x-python": FileKind("text", "Python", "py pyi"),
    "text/x-shellscript": FileKind("text", "a shell script", "sh bash zsh"),
    "text/javascript": FileKind("text", "JavaScript", "js mjs cjs jsx"),
    "text/x-typescript": FileKind("text", "TypeScript", "tsx mts"),
    "text/css": FileKind("text", "CSS", "css"),
    "application/yaml": FileKind("text", "YAML", "yaml yml"),
    "application/toml": FileKind("text", "TOML", "toml"),
    "text/x-c": FileKind("text", "C source", "c h cc cpp hpp"),
    "text/x-java": FileKind("text", "Java source", "java"),
    "text/x-go": FileKind("text", "Go source", "go"),
    "text/x-rust": FileKind("text", "Rust source", "rs"),
    "text/calendar": FileKind("text", "a calendar", "ics"),
    "text/vcard": FileKind("text", "a contact card", "vcf"),
    "application/vnd.jgraph.mxfile": FileKind("text", "a draw.io diagram", "drawio dio"),
    "text/x-diff": FileKind("text", "a patch", "diff patch"),
    "message/rfc822": FileKind("office", "an e-mail", "eml emlx"),
}

_BY_EXTENSION: Final = {
    extension: media_type for media_type, kind in KINDS.items() for extension in kind.extensions.split()
}


def category_of(media_type: str) -> Category:
    kind = kind_of(media_type)
    if kind is not None:
        return kind.category
    return "text" if media_type.startswith("text/") else "unsupported"


def label_of(media_type: str) -> str:
    """Return the display name: `PNG`, `a ZIP archive`."""
    kind = kind_of(media_type)
    return media_type if kind is None else kind.label


def kind_of(media_type: str) -> FileKind | None:
    """Return the kind of a media type, from Loom itself or an installed format."""
    found = KINDS.get(media_type)
    if found is not None and found.category != "unsupported":
        return found
    from loom.formats.registry import installed_kinds  # imported late: formats import this module

    return installed_kinds().get(media_type, found)


def type_of_name(name: str) -> str | None:
    """Return the media type of the extension of `name`, or None if it is unknown."""
    _, dot, extension = name.rpartition(".")
    return _BY_EXTENSION.get(extension.lower()) if dot else None
