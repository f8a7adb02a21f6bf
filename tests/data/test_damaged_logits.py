"""Files of logits that are damaged, pickled or something else: refused in words, and no code in them is run."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encouraging.data.logits import open_logits
from encouraging.errors import DataError
from logit_files import (
    LABELS,
    WRITERS,
    C,
    N,
    Writer,
    as_folder,
    as_npz,
    drawn,
    joined,
)


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_was_cut_off(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path, {"logits": drawn(), "labels": LABELS})
    file = path / "logits.npy" if path.is_dir() else path
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"cannot be read|cut off"):
        open_logits(path)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = as_folder(tmp_path, {"logits": drawn(), "labels": LABELS})
    found = open_logits(path)
    file = path / "logits.npy"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"logits.npy: cannot be read: 50 bytes are missing"):
        joined(found)


def test_a_damaged_member_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = as_npz(tmp_path, {"logits": drawn(), "labels": LABELS})
    content = bytearray(path.read_bytes())
    place = content.index(drawn().numpy().tobytes()[:40]) + 20
    content[place] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mine.npz: logits: cannot be read: Bad CRC"):
        joined(open_logits(path))


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("write", [as_npz, as_folder])
def test_pickled_arrays_are_refused_and_never_loaded(tmp_path: Path, write: Writer) -> None:
    sprung = tmp_path / "sprung"
    trap = np.empty(1, object)
    trap[0] = Trap(sprung)
    path = write(tmp_path, {"logits": drawn(), "labels": trap})
    with pytest.raises(DataError, match=r"labels.*pickled Python objects, which are never loaded"):
        open_logits(path)
    assert not sprung.exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl"])
def test_pickled_files_are_refused_with_a_way_out(tmp_path: Path, suffix: str) -> None:
    sprung, path = tmp_path / "sprung", tmp_path / f"mine{suffix}"
    path.write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(DataError, match=r"safetensors.torch.save_file"):
        open_logits(path)
    assert not sprung.exists()


@pytest.mark.parametrize(("name", "content", "says"), [
    ("mine.csv", b"1,2", "expected .safetensors, .npz"),
    ("mine", b"1,2", "got a name without a suffix."),
    ("logits.npy", b"", "Give the folder"),
    ("mine.safetensors", b"", "the file is empty"),
    ("mine.safetensors", b"\xff" * 64, "cannot be read"),
    ("mine.safetensors", (2).to_bytes(8, "little") + b"{}", "has no 'logits'; it holds nothing"),
    ("mine.npz", b"", "the file is empty"),
    ("mine.npz", b"PK\x03\x04 and no more", "cannot be read"),
])
def test_what_is_no_such_file_is_refused(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as refused:
        open_logits(tmp_path / name)
    assert says in str(refused.value)
    assert name in str(refused.value)


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        open_logits(tmp_path / "none.safetensors")
    with pytest.raises(DataError, match="it holds nothing"):
        open_logits(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"logits.safetensors of a finished run; it holds config.json"):
        open_logits(tmp_path)


@pytest.mark.parametrize("broken", [b"not numpy", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x03\x00\x10\x00\x00\x00{}",
                                    b"\x93NUMPY\x01\x00\x08\x00{'a': 1}"])
def test_a_header_that_is_none(tmp_path: Path, broken: bytes) -> None:
    path = as_folder(tmp_path, {"labels": LABELS})
    (path / "logits.npy").write_bytes(broken)
    with pytest.raises(DataError, match=r"logits.npy: cannot be read"):
        open_logits(path)
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("logits.npy", broken)
    with pytest.raises(DataError, match=r"mine.npz: logits: cannot be read"):
        open_logits(tmp_path / "mine.npz")


def test_types_that_are_not_numbers_of_ours(tmp_path: Path) -> None:
    for values in (np.zeros((N, C), complex), np.full((N, C), "a"), np.zeros((N, C), bool), np.zeros((N, C), "M8[s]")):
        with pytest.raises(DataError, match="expected float16, bfloat16, float32 or float64"):
            open_logits(as_npz(tmp_path, {"logits": values, "labels": LABELS}))
    text = json.dumps({"logits": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]},
                       "labels": {"dtype": "I8", "shape": [2], "data_offsets": [4, 6]}}).encode()
    (tmp_path / "small.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(6))
    with pytest.raises(DataError, match="got F8_E4M3"):
        open_logits(tmp_path / "small.safetensors")
