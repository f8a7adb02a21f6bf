"""Arrays in files, read some rows at a time.

Files are read, not memory-mapped. With numpy's memory maps and safetensors' slices the pages of the file count as
memory of the process (1.29 instead of 0.42 GB for a file of 1 GB), one pass takes 2.8 times as long, and a file that
shrinks while it is read kills the process instead of raising an error. No code in a file is ever run: pickled arrays
are refused by their header.
"""

from __future__ import annotations

import io
import json
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import DataError

BLOCK = 1 << 22  # numbers per block
HELD = 1 << 30  # the largest size in bytes of an array that has to be in memory at once
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SAFETENSORS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "I8": "int8", "I16": "int16",
               "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64"}


@dataclass(frozen=True)
class Array:
    """An array in a file, of which only the header has been read."""

    where: str
    shape: tuple[int, ...]
    dtype: str
    start: Callable[[], AbstractContextManager[IO[bytes]]]  # a stream, positioned at the first number
    swapped: bool = False  # the other byte order
    fortran: bool = False  # the first index changes fastest

    @property
    def row_bytes(self) -> int:
        return int(getattr(torch, self.dtype).itemsize) * math.prod(self.shape[1:])

    def whole(self) -> Tensor:
        """The complete array; refused if it is too large, as even a small compressed file can be."""
        if 8 * math.prod(self.shape) > HELD:
            raise DataError(f"{self.where}: has {math.prod(self.shape)} numbers, which have to be in memory at once; "
                            f"expected at most {HELD // 8}. Split the file.")
        return next(self.blocks(self.shape[0]))

    def blocks(self, rows: int | None = None) -> Iterator[Tensor]:
        """Some rows at a time, while the next ones are read. A block is valid until the next one is requested."""
        if 2 * self.row_bytes > HELD:
            raise DataError(f"{self.where}: one row has {self.row_bytes} bytes; expected at most {HELD // 2}.")
        total = self.shape[0]
        step = max(1, min(rows or BLOCK // max(1, math.prod(self.shape[1:])), total))
        lengths = [min(step, total - first) for first in range(0, total, step)]
        with naming(self.where):
            stores = [torch.empty(step * self.row_bytes, dtype=torch.uint8) for _ in lengths[:2]]
        with naming(self.where), self.start() as file, ThreadPoolExecutor(1) as reader:
            begin = file.tell() if self.fortran else 0

            def fetch(number: int) -> Tensor:
                store = stores[number % 2][: lengths[number] * self.row_bytes]
                if not self.fortran:
                    return self._numbers(_fill(file, store), lengths[number])
                columns = math.prod(self.shape[1:])
                width = self.row_bytes // columns
                for column, piece in enumerate(store.view(columns, -1)):
                    file.seek(begin + (column * total + number * step) * width)
                    _fill(file, piece)
                return self._numbers(store, lengths[number])

            coming = reader.submit(fetch, 0)
            for number in range(len(lengths)):
                block = coming.result()
                if number + 1 < len(lengths):
                    coming = reader.submit(fetch, number + 1)
                yield block

    def _numbers(self, store: Tensor, rows: int) -> Tensor:
        dtype: torch.dtype = getattr(torch, self.dtype)
        if self.swapped:
            store = store.view(-1, dtype.itemsize).flip(1).view(-1)
        numbers = store.view(dtype)
        if self.fortran:
            return numbers.view(*self.shape[:0:-1], rows).permute(*reversed(range(len(self.shape))))
        return numbers.view(rows, *self.shape[1:])


def shown(path: str | Path) -> str:
    """A path that can be printed and encoded: bytes that are not UTF-8 become ``\\xff`` and the like."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")


def in_folder(path: Path, keys: Collection[str]) -> dict[str, Array]:
    """The ``.npy`` files of a folder. Only those whose name begins with one of the keys are opened."""
    files = {shown(file.stem): file for file in sorted(path.glob("*.npy")) if file.is_file()}
    return {key: in_npy(file) if _family(key) in keys else _unread(f"{shown(path)}: {key}")
            for key, file in files.items()}


def in_npz(path: Path, keys: Collection[str]) -> dict[str, Array]:
    """The members of an ``.npz`` file, stored or compressed. They are streamed, except those in Fortran order."""
    with naming(shown(path)), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        return {key: _member(path, archive, info, key) if _family(key) in keys else _unread(f"{shown(path)}: {key}")
                for key, info in members.items()}


def in_safetensors(path: Path) -> dict[str, Array]:
    with naming(shown(path)):
        with safe_open(path, "numpy"):  # the library checks header, offsets and length
            pass
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {key: Array(f"{shown(path)}: {key}", tuple(entry["shape"]), SAFETENSORS.get(entry["dtype"], entry["dtype"]),
                       partial(_from, path, 8 + length + entry["data_offsets"][0])) for key, entry in header.items()}


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Turn errors while reading a file into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, MemoryError, SafetensorError,
            tokenize.TokenError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{where}: cannot be read: {error}.") from error


def _family(key: str) -> str:
    return key.partition(".")[0]


def _unread(where: str) -> Array:
    return Array(where, (), "unknown", io.BytesIO)


def in_npy(path: Path) -> Array:
    """The array of an ``.npy`` file."""
    where = shown(path)
    with naming(where), open(path, "rb") as file:
        shape, dtype, swapped, fortran = _header(file)
        begin, size = file.tell(), path.stat().st_size
    return _sized(Array(where, shape, dtype, partial(_from, path, begin), swapped, fortran), size - begin)


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str) -> Array:
    where = f"{shown(path)}: {key}"
    with naming(where), archive.open(info) as file:
        shape, dtype, swapped, fortran = _header(file)
        begin = file.tell()
    if fortran and info.file_size > HELD:
        raise DataError(f"{where}: {info.file_size} bytes in Fortran order in an .npz have to be in memory at once; "
                        f"expected at most {HELD}. Save it in C order (np.ascontiguousarray), or as logits.npy in a "
                        "folder.")

    @contextmanager
    def start() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(info) as file:
            file.read(begin)
            yield io.BytesIO(file.read()) if fortran else file

    return _sized(Array(where, shape, dtype, start, swapped, fortran), info.file_size - begin)


@contextmanager
def _from(path: Path, offset: int) -> Iterator[IO[bytes]]:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        yield file


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], str, bool, bool]:
    """Shape, type, whether bytes are swapped and whether it is in Fortran order; arrays of objects are refused unread.
    """
    version = npy.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = npy.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = npy.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the format, which is for named fields")
    if dtype.hasobject:
        raise ValueError("it holds pickled Python objects, which are never loaded; save plain numbers")
    return shape, dtype.name, not dtype.isnative, bool(fortran) and len(shape) > 1 and 0 not in shape


def _sized(array: Array, size: int) -> Array:
    """Refuse an array whose header does not match the number of bytes after it."""
    if array.dtype in FLOATS + INTEGERS and array.shape:
        expected = array.shape[0] * array.row_bytes
        if expected != size:
            raise DataError(f"{array.where}: the header promises {expected} bytes {array.shape} of {array.dtype} and "
                            f"{size} follow: the file is cut off or damaged.")
    return array


def _fill(file: IO[bytes], store: Tensor) -> Tensor:
    view = memoryview(store.numpy())  # type: ignore[arg-type]
    while len(view):
        got = file.readinto(view)  # type: ignore[attr-defined]
        if not got:
            raise EOFError(f"{len(view)} bytes are missing at the end")
        view = view[got:]
    return store
