"""The shape of the rows of a JSON array, and the brackets and commas of one row."""

from app.codec.json_arrays import pieces
from app.codec.json_arrays.split import Numbers

# Of a row; None is a free size.
FreeShape = tuple[int | None, ...]


def row_shape(
    numbers: Numbers, shape: FreeShape, *, is_bool: bool
) -> tuple[int, ...] | None:
    """Return the shape of a row, free sizes settled by the first; None: none can fit.

    The brackets of the first row have a period for each size. Words are none of them:
    true and false if `is_bool`, else NaN and infinities.
    """
    kind = "b" if is_bool else "f"
    brackets, rank = bytearray(), len(shape)
    if None in shape:
        for _, piece in pieces.cut(numbers, rank):
            begin = max(len(brackets) - rank, 0)
            brackets += pieces.brackets(pieces.without_words(piece, kind))
            if brackets.find(b"]" * rank, begin) >= 0:
                break
            brackets += b","
    settled: list[int] = []
    length = 0
    for level, size in reversed([*enumerate(shape)]):
        known = size
        if known is None:
            end = brackets.find(b"]" * (rank - level))
            if end < 0:
                return None
            # Below 0 if the first row is nested less than the next ones.
            known = max((end + rank - 2 * level - 1) // (length + 1), 0)
        settled.append(known)
        length = 2 + known * length + max(known - 1, 0)
    fits = length <= numbers.end - numbers.begin
    return tuple(settled[::-1]) if fits else None


def brackets_of(shape: tuple[int, ...]) -> bytes:
    """Return the brackets and commas of one row."""
    text = b""
    for size in reversed(shape):
        text = b"[%b]" % ((text + b",") * size)[:-1]
    return text
