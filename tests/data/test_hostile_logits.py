"""Files of logits that are hostile, oddly named, binary, or hold probabilities."""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from encouraging.data.logits import open_logits
from encouraging.errors import DataError
from encouraging.metrics import Reader

CHUNK = 1 << 24


def npy_header(shape: tuple[int, ...], dtype: str, fortran: bool) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": fortran, "shape": shape})
    return file.getvalue()


def zeros_compressed(head: bytes, zeros: int) -> bytes:
    """A deflate stream of the head and so many zeros, without ever making them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    chunk = packer.compress(bytes(CHUNK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + chunk * (zeros // CHUNK) + packer.compress(bytes(zeros % CHUNK)) + packer.flush()


def write_bomb(path: Path, arrays: dict[str, tuple[tuple[int, ...], str, bool]]) -> None:
    """An .npz file of zeros, written by hand: a few megabytes that unpack to as much as the shapes say."""
    directory = b""
    with path.open("wb") as file:
        for key, (shape, dtype, fortran) in arrays.items():
            head = npy_header(shape, dtype, fortran)
            zeros = int(np.prod(shape)) * np.dtype(dtype).itemsize
            packed, name, offset = zeros_compressed(head, zeros), f"{key}.npy".encode(), file.tell()
            check = zlib.crc32(head + bytes(zeros)) if zeros < CHUNK else 0
            about = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, check, len(packed), len(head) + zeros, len(name), 0)
            file.write(b"PK\3\4" + about + name + packed)
            directory += b"PK\1\2" + struct.pack("<H", 20) + about + struct.pack("<HHHII", 0, 0, 0, 0, offset) + name
        start = file.tell()
        file.write(directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(arrays), len(arrays), len(directory),
                                                       start, 0))


def test_a_small_file_that_unpacks_to_four_gigabytes_in_fortran_order_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    write_bomb(path, {"logits": ((1_000_000, 1020), "<f4", True), "labels": ((1_000_000,), "|i1", False)})
    assert path.stat().st_size < 10 << 20
    with pytest.raises(DataError, match=r"bomb.npz: logits: 4080000128 bytes in Fortran order.*memory at once; "
                                        r"expected at most 1073741824. Save it in C order"):
        open_logits(path)


def test_labels_that_unpack_to_more_than_memory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    write_bomb(path, {"logits": ((400_000_000, 2), "<f2", False), "labels": ((400_000_000,), "|i1", False)})
    with pytest.raises(DataError, match=r"labels: has 400000000 numbers, which have to be in memory at once"):
        open_logits(path)


def test_a_row_that_unpacks_to_more_than_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    write_bomb(path, {"logits": ((2, 500_000_000), "<f4", False), "labels": ((2,), "|i1", False)})
    with pytest.raises(DataError, match=r"logits: one row has 2000000000 bytes; expected at most"):
        open_logits(path)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are Unicode on this system")
@pytest.mark.parametrize("form", ["npz", "safetensors", "folder"])
def test_names_that_are_not_utf_8_are_read_and_can_be_printed(tmp_path: Path, form: str) -> None:
    content = {"logits": torch.randn(9, 3), "labels": torch.arange(9) % 3}
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9." + form.encode()))
    arrays = {key: value.numpy() for key, value in content.items()}
    if form == "npz":
        np.savez(path, **arrays)
    elif form == "safetensors":
        plain = tmp_path / "plain"
        save_file(content, plain)
        plain.rename(path)
    else:
        path.mkdir()
        for key, array in (arrays | {os.fsdecode(b"ood_logits.caf\xe9"): arrays["logits"]}).items():
            np.save(path / f"{key}.npy", array)
    logits = open_logits(path)
    assert torch.equal(next(iter(logits.blocks()))[1], content["logits"])
    for printed in (logits.logits.where, *logits.outside, *(array.where for array in logits.outside.values())):
        printed.encode()
        if form == "folder" or printed == logits.logits.where:
            assert r"caf\xe9" in printed
    with pytest.raises(DataError) as refused:
        open_logits(Path(os.fsdecode(b"/nowhere/caf\xe9.npz")))
    str(refused.value).encode()


def binary(folder: Path, column: Tensor, labels: Tensor, **more: Tensor) -> Path:
    save_file({"logits": column, "labels": labels, **more}, folder / "mine.safetensors")
    return folder / "mine.safetensors"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_single_column_is_the_logit_of_class_1(tmp_path: Path, dtype: torch.dtype) -> None:
    column, labels = (4 * torch.randn(50, 1)).to(dtype), torch.randint(2, (50,))
    source = open_logits(binary(tmp_path, column, labels, ood_logits=column[:7] - 1))
    assert (source.binary_column, source.classes, source.examples) == (True, 2, 50)
    reader = Reader(source.classes)
    for first, block, part in source.blocks(8):
        torch.testing.assert_close(block.softmax(1)[:, 1], column[first : first + len(part), 0].sigmoid())
        reader.update(block, part, first=first)
    for block in source.outside["outside"].blocks():
        reader.update_outside(block)
    found = reader.diagnosis()
    right = (column[:, 0] > 0) == labels.bool()
    assert found["accuracy"] == pytest.approx(100 * float(right.double().mean()))
    assert found["ood"]["outside"]["examples"] == 7


def test_the_labels_of_a_single_column_are_0_and_1(tmp_path: Path) -> None:
    for labels in (torch.tensor([0, 1, 2]), torch.tensor([-1, 1, 1])):
        with pytest.raises(DataError, match="expected 0 to 1; a single column of logits is a binary classifier's"):
            open_logits(binary(tmp_path, torch.randn(3, 1), labels))
    with pytest.raises(DataError, match="has 2 classes where logits has 1"):
        open_logits(binary(tmp_path, torch.randn(3, 1), torch.tensor([0, 1, 1]), ood_logits=torch.randn(3, 2)))


@pytest.mark.parametrize(("logits", "expected"), [
    (torch.randn(200, 4).softmax(1), True), (torch.randn(200, 4).softmax(1).half(), True), (torch.randn(200, 4), False),
    (torch.randn(200, 4).log_softmax(1), False), (torch.rand(200, 4), False), (torch.randn(200, 1).sigmoid(), True),
    (torch.randn(200, 1), False), (torch.full((3, 2), torch.nan), False), (100 * torch.randn(200, 4).softmax(1), True),
    (10 * torch.randn(200, 4).softmax(1), False),
])
def test_probabilities_are_noticed_before_any_number_is_computed(tmp_path: Path, logits: Tensor,
                                                                 expected: bool) -> None:
    path = binary(tmp_path, logits, torch.arange(len(logits)) % 2)
    assert open_logits(path).probabilities is expected
