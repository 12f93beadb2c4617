"""The text inside drawings: charts (titles, categories, series, the values that were last drawn) and SmartArt."""

from __future__ import annotations

from typing import Final

from loom.formats.office import text_marks
from loom.formats.office.number_formats import display_number, is_date_code
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_rows import row_line
from loom.formats.office.xml_reader import XmlNode, whole_number

_MAX_POINTS: Final = 500
_MAX_SERIES: Final = 60
_MAX_DEPTH: Final = 30
_CHART_TAGS: Final = (
    "c:date1904", "c:title", "c:ser", "c:tx", "c:cat", "c:xVal", "c:val", "c:yVal", "c:lvl", "c:pt", "a:p", "cx:title",
    "cx:data", "cx:strDim", "cx:numDim", "cx:lvl", "cx:series", "cx:tx",
)  # fmt: skip
_CHART_WORDS: Final = ("a:t", "c:v", "c:formatCode", "cx:v", "cx:pt")
_DIAGRAM_TAGS: Final = ("dgm:pt", "a:p", "dgm:cxn")


def chart_lines(package: Package, part: str) -> list[str]:
    """Return a chart as a small table: one row for each category, one column for each series."""
    root = package.tree(part, tags=_CHART_TAGS, words=_CHART_WORDS)
    titles = [text for node in (*root.all("c:title"), *root.all("cx:title")) if (text := _paragraphs(node))]
    series = (root.all("c:ser") or root.all("cx:series"))[:_MAX_SERIES]
    head = text_marks.one_line(": ".join(("chart", *titles[:1])))
    axes = [f"[axis: {text_marks.one_line(title)}]" for title in titles[1:]]
    is_1904 = any(node.get("val") not in ("0", "false") for node in root.all("c:date1904"))
    rows = _classic_rows(series, is_1904=is_1904) if root.all("c:ser") else _extended_rows(root)
    return [f"[{head}]", *text_marks.table(rows), *axes]


def _classic_rows(series: list[XmlNode], *, is_1904: bool) -> list[list[str]]:
    names = [text_marks.cell(_words(node.first("c:tx"))) for node in series]
    values = [_points(node.first("c:val") or node.first("c:yVal"), is_1904=is_1904) for node in series]
    labels: dict[int, str] = {}
    for node in series:
        labels |= _points(node.first("c:cat") or node.first("c:xVal"), is_1904=is_1904)
    places = sorted({place for points in (labels, *values) for place in points})[:_MAX_POINTS]
    rows = [[labels.get(place, ""), *(points.get(place, "") for points in values)] for place in places]
    return [["", *names], *rows] if any(names) or rows else []


def _points(node: XmlNode | None, *, is_1904: bool) -> dict[int, str]:
    """Return the values by position. Labels may have several levels, stored innermost first and joined as `2024 /
    Q1`."""
    if node is None:
        return {}
    code = node.first("c:formatCode")
    kind = code.text if code and is_date_code(code.text) else ""
    points, *outer = [_level(found, kind, is_1904=is_1904) for found in node.all("c:lvl") or [node]]
    for level in outer:
        points = _merge_labels(points, level)
    return points


def _level(node: XmlNode, kind: str, *, is_1904: bool) -> dict[int, str]:
    points: dict[int, str] = {}
    for point in node.all("c:pt"):
        text = text_marks.cell(point.text)
        shown = _moment(text, kind, is_1904=is_1904) if kind else _number(text)
        points.setdefault(whole_number(point.get("idx")), shown)
    return points


def _merge_labels(inner: dict[int, str], outer: dict[int, str]) -> dict[int, str]:
    """Add the outer labels: each applies to all positions up to the next one."""
    above, points = "", dict[int, str]()
    for place in sorted({*inner, *outer}):
        above = outer.get(place, above)
        if place in inner:
            points[place] = " / ".join(filter(None, (above, inner[place])))
    return points


def _moment(text: str, kind: str, *, is_1904: bool) -> str:
    try:
        return row_line([display_number(float(text), kind, is_1904=is_1904)])
    except ValueError:
        return text


def _extended_rows(root: XmlNode) -> list[list[str]]:
    """Return the rows of a chart of the newer kind (waterfall, treemap): each dimension of its data is a column."""
    columns = [
        [text_marks.cell(point.text) for point in level.all("cx:pt")][:_MAX_POINTS]
        for data in root.all("cx:data")
        for dimension in data.children
        for level in dimension.all("cx:lvl")
    ][:_MAX_SERIES]
    names = [text_marks.cell(_words(node.first("cx:tx"))) for node in root.all("cx:series")][:_MAX_SERIES]
    height = max(map(len, columns), default=0)
    rows = [[column[at] if at < len(column) else "" for column in columns] for at in range(height)]
    return [names, *rows] if any(names) else rows


def diagram_lines(package: Package, part: str) -> list[str]:
    """Return SmartArt as an indented list, in the order of its outline."""
    root = package.tree(part, tags=_DIAGRAM_TAGS, words=("a:t",))
    texts = {node.get("modelId"): _paragraphs(node) for node in root.all("dgm:pt")}
    roots = [node.get("modelId") for node in root.all("dgm:pt") if node.get("type") == "doc"]
    children: dict[str, list[tuple[int, str]]] = {}
    for node in root.all("dgm:cxn"):
        if node.get("type") in ("", "parOf"):
            children.setdefault(node.get("srcId"), []).append((whole_number(node.get("srcOrd")), node.get("destId")))
    lines: list[str] = []
    waiting = [(point, 0) for point in reversed(roots)]
    while waiting:
        point, depth = waiting.pop()
        text = texts.pop(point, None)
        if text is None:
            continue
        if text:
            lines.append(f"{'  ' * (depth - 1)}- {text}")
        inner = sorted(children.get(point, ()), reverse=True)
        waiting.extend((child, min(depth + 1, _MAX_DEPTH)) for _, child in inner)
    lines.extend(f"- {text}" for text in texts.values() if text)
    return ["[diagram]", *lines] if lines else []


def _paragraphs(node: XmlNode) -> str:
    return text_marks.one_line(" ".join(child.text for child in node.children)) if node.children else node.text.strip()


def _words(node: XmlNode | None) -> str:
    return " ".join(child.text for child in node.children) if node else ""


def _number(text: str) -> str:
    """Return the shortest form of a number: `4.2999999999999998` is how the file stores 4.3."""
    if len(text) < 12 or len(text) > 40:
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return f"{number:.12g}"
