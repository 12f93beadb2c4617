"""A link as a QR code for a phone's camera: up to 134 bytes, at the lowest level of correction (ISO/IEC 18004)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from loom.errors import TooLarge

Matrix = list[list[int]]

_DATA: Final = {1: 19, 2: 34, 3: 55, 4: 80, 5: 108, 6: 136}
"""Version → codewords that carry data."""
_CORRECTION: Final = {1: (7, 1), 2: (10, 1), 3: (15, 1), 4: (20, 1), 5: (26, 1), 6: (18, 2)}
"""Version → codewords of correction in each block, and blocks."""
_QUIET: Final = 4
_FORMAT_MASK: Final = 0b101010000010010
_LEVEL_LOW: Final = 0b01


def draw_qr(text: str) -> str:
    """Two rows of modules in one of characters, dark on light whatever the terminal's colours are."""
    matrix = qr_matrix(text)
    size = len(matrix)
    side = range(-_QUIET, size + _QUIET)

    def dark(row: int, column: int) -> bool:
        return 0 <= row < size and 0 <= column < size and matrix[row][column] == 1

    glyphs = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    lines = ["".join(glyphs[dark(row, column), dark(row + 1, column)] for column in side) for row in side[::2]]
    return "\n".join(f"\x1b[30;107m{line}\x1b[0m" for line in lines)


def qr_matrix(text: str) -> Matrix:
    """Rows of 1 (dark) and 0 (light), without the quiet zone."""
    data = text.encode()
    version = next((version for version, size in _DATA.items() if len(data) + 2 <= size), 0)
    if not version:
        raise TooLarge(f"{len(data)} bytes are too much for a QR code of this kind.")
    words = _codewords(data, version)
    candidates = [_apply_mask(words, version, mask) for mask in range(8)]
    return min(candidates, key=_penalty)


def _codewords(data: bytes, version: int) -> list[int]:
    size = _DATA[version]
    bits = f"0100{len(data):08b}" + "".join(f"{byte:08b}" for byte in data) + "0000"
    bits = bits[: size * 8].ljust(-(-min(len(bits), size * 8) // 8) * 8, "0")
    words = [int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)]
    words += [(0xEC, 0x11)[at % 2] for at in range(size - len(words))]
    count, blocks = _CORRECTION[version]
    length = size // blocks
    parts = [words[at * length : (at + 1) * length] for at in range(blocks)]
    checks = [_remainder(part, count) for part in parts]
    return [word for rows in (zip(*parts, strict=True), zip(*checks, strict=True)) for row in rows for word in row]


def _multiply(a: int, b: int) -> int:
    """In GF(256) with x⁸ + x⁴ + x³ + x² + 1."""
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = a << 1 ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return product


def _remainder(data: list[int], count: int) -> list[int]:
    """Reed and Solomon: what is left when the data are divided by (x - 1)(x - 2)(x - 4)…"""
    divisor = [1]
    root = 1
    for _ in range(count):
        divisor = [a ^ _multiply(b, root) for a, b in zip([*divisor, 0], [0, *divisor], strict=True)]
        root = _multiply(root, 2)
    rest = [*data, *[0] * count]
    for at in range(len(data)):
        factor = rest[at]
        for offset, value in enumerate(divisor):
            rest[at + offset] ^= _multiply(value, factor)
    return rest[-count:]


def _apply_mask(words: list[int], version: int, mask: int) -> Matrix:
    matrix, fixed = _patterns(version)
    bits = [word >> shift & 1 for word in words for shift in range(7, -1, -1)]
    for at, (row, column) in enumerate(_places(len(matrix), fixed)):
        bit = bits[at] if at < len(bits) else 0
        matrix[row][column] = bit ^ _inverts(mask, row, column)
    _write_format(matrix, mask)
    return matrix


def _patterns(version: int) -> tuple[Matrix, list[list[bool]]]:
    """What every code of this size has, and where no data may go."""
    size = 17 + 4 * version
    matrix = [[0] * size for _ in range(size)]
    fixed = [[False] * size for _ in range(size)]

    def put(row: int, column: int, value: int) -> None:
        if 0 <= row < size and 0 <= column < size:
            matrix[row][column] = value
            fixed[row][column] = True

    for at in range(size):
        put(6, at, 1 - at % 2)
        put(at, 6, 1 - at % 2)
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        for row in range(-1, 8):
            for column in range(-1, 8):
                ring = max(abs(row - 3), abs(column - 3))
                put(top + row, left + column, int(ring in (0, 1, 3)))
    if version > 1:
        for row in range(-2, 3):
            for column in range(-2, 3):
                put(size - 7 + row, size - 7 + column, int(max(abs(row), abs(column)) != 1))
    for at in range(9):
        for row, column in ((8, at), (at, 8), (8, size - 1 - at), (size - 1 - at, 8)):
            fixed[row][column] = fixed[row][column] or at < 8 or row == column
    put(size - 8, 8, 1)
    return matrix, fixed


def _places(size: int, fixed: list[list[bool]]) -> Iterator[tuple[int, int]]:
    """Two columns at a time from the right, up and down in turn, past the column of the timing pattern."""
    upwards = True
    for right in (*range(size - 1, 6, -2), *range(5, 0, -2)):
        for row in range(size - 1, -1, -1) if upwards else range(size):
            for column in (right, right - 1):
                if not fixed[row][column]:
                    yield row, column
        upwards = not upwards


def _inverts(mask: int, row: int, column: int) -> int:
    product = row * column
    rules = (
        (row + column) % 2,
        row % 2,
        column % 3,
        (row + column) % 3,
        (row // 2 + column // 3) % 2,
        product % 2 + product % 3,
        (product % 2 + product % 3) % 2,
        ((row + column) % 2 + product % 3) % 2,
    )
    return int(rules[mask] == 0)


def _write_format(matrix: Matrix, mask: int) -> None:
    size = len(matrix)
    value = _LEVEL_LOW << 3 | mask
    rest = value << 10
    for shift in range(4, -1, -1):
        if rest >> (shift + 10) & 1:
            rest ^= 0b10100110111 << shift
    bits = (value << 10 | rest) ^ _FORMAT_MASK
    for at in range(15):
        bit = bits >> at & 1
        row = at if at < 6 else at + 1 if at < 8 else size - 15 + at
        column = size - 1 - at if at < 8 else 7 if at == 8 else 14 - at
        matrix[row][8] = bit
        matrix[8][column] = bit
    matrix[size - 8][8] = 1


def _penalty(matrix: Matrix) -> int:
    """How hard it is to read: long runs, full squares, what looks like a corner, much more of one colour."""
    size = len(matrix)
    lines = ["".join(map(str, line)) for line in (*matrix, *zip(*matrix, strict=True))]
    points = 0
    for line in lines:
        points += sum(len(run) - 2 for run in line.replace("01", "0 1").replace("10", "1 0").split() if len(run) >= 5)
        points += 40 * sum(line[at : at + 11] in ("10111010000", "00001011101") for at in range(size - 10))
    for row in range(size - 1):
        for column in range(size - 1):
            square = matrix[row][column : column + 2] + matrix[row + 1][column : column + 2]
            points += 3 if sum(square) in (0, 4) else 0
    share = 100 * sum(map(sum, matrix)) / size**2
    return points + 10 * int(abs(share - 50) // 5)
