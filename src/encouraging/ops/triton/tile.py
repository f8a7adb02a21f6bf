"""A tile of whole rows that stays on chip: how it is loaded, its maxima and its exponentials."""

import triton
import triton.language as tl

from .maths import LOG2E, LOWEST

FEW_CLASSES = tl.constexpr(8)  # columns of a tile whose exponentials are exact, see maths.exp_of_distance


@triton.jit
def first_column(z, o_c, value, n_classes):
    """The first column that holds this value (the last column where a NaN hides it)."""
    return tl.minimum(tl.min(tl.where(z == value[:, None], o_c, n_classes), axis=1), n_classes - 1)


@triton.jit
def exponentials(rivals):
    """The largest of every row, and exp of every element's distance to it: exactly 1 for the largest."""
    top = tl.maximum(tl.max(rivals, axis=1), LOWEST)
    return top, tl.exp2((rivals - top[:, None]) * LOG2E)


# A tile put together from pieces of PIECE columns side by side. The compiler lays a piece out over the threads so that
# each has one vector of it, and of the tile then many columns of few rows: the sums of a row take few exchanges, and
# its own mathematics is done by the threads of that row alone.
@triton.jit
def load_in_pieces(row, first, m_r, n_classes, stride_class, other, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    if PIECE >= BLOCK:
        o_c = first + tl.arange(0, BLOCK)[None, :]
        return tl.load(row + o_c.to(tl.int64) * stride_class, mask=m_r[:, None] & (o_c < n_classes), other=other)
    else:
        LEFT: tl.constexpr = BLOCK // 2
        left = load_in_pieces(row, first, m_r, n_classes, stride_class, other, PIECE, LEFT)
        right = load_in_pieces(row, first + LEFT, m_r, n_classes, stride_class, other, PIECE, LEFT)
        return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (left.shape[0], BLOCK))


@triton.jit
def load_tile(source, start, m_r, n_classes, stride_class, other, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    """The tile in float32; ``other`` where there is no class."""
    tile = load_in_pieces(source + start[:, None], 0, m_r, n_classes, stride_class, other, PIECE, BLOCK)
    return tile.to(tl.float32)


@triton.jit
def store_tile(out, start, m_r, n_classes, stride_class, tile, BLOCK: tl.constexpr):
    """Write the tile to rows that begin at ``start``, in the type of ``out``."""
    o_c = tl.arange(0, BLOCK)[None, :]
    tl.store(out + start[:, None] + o_c.to(tl.int64) * stride_class, tile.to(out.dtype.element_ty),
             mask=m_r[:, None] & (o_c < n_classes))
