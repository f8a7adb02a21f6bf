"""Logits from any file, block by block; what is malformed is refused in words."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from encouraging.data import arrays
from encouraging.data.logits import open_logits
from encouraging.errors import DataError
from logit_files import (
    COUNTS,
    LABELS,
    WRITERS,
    C,
    N,
    Writer,
    as_deflated,
    as_folder,
    as_npz,
    as_safetensors,
    drawn,
    joined,
)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [None, 1, 5, N, 1000])
def test_what_was_written_is_read(tmp_path: Path, write: Writer, dtype: torch.dtype, rows: int | None) -> None:
    content = {"logits": drawn(dtype), "labels": LABELS, "ood_logits": drawn(dtype, 9), "ood_logits.far": drawn(n=3),
               "class_counts": COUNTS}
    found = open_logits(write(tmp_path, content))
    assert (found.examples, found.classes, found.unused) == (N, C, ())
    assert joined(found, rows).dtype == dtype
    assert torch.equal(joined(found, rows), content["logits"])
    assert torch.equal(found.labels, LABELS)
    assert set(found.outside) == {"outside", "far"}
    assert torch.equal(torch.cat([b.clone() for b in found.outside["outside"].blocks(4)]), content["ood_logits"])
    assert found.counts is not None
    assert found.counts.tolist() == COUNTS.tolist()


def test_bfloat16_in_safetensors(tmp_path: Path) -> None:
    found = open_logits(as_safetensors(tmp_path, {"logits": drawn(torch.bfloat16), "labels": LABELS}))
    assert torch.equal(joined(found), drawn(torch.bfloat16))
    assert found.counts is None
    assert found.outside == {}


def test_the_suffix_may_be_written_in_capitals(tmp_path: Path) -> None:
    written = as_safetensors(tmp_path, {"logits": drawn(), "labels": LABELS})
    assert torch.equal(joined(open_logits(written.rename(tmp_path / "MINE.SAFETENSORS"))), drawn())


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_labels_of_any_integer_type(tmp_path: Path, write: Writer, kind: str) -> None:
    found = open_logits(write(tmp_path, {"logits": drawn(), "labels": LABELS.numpy().astype(kind)}))
    assert found.labels.dtype == torch.int64
    assert torch.equal(found.labels, LABELS)


@pytest.mark.parametrize("write", [as_npz, as_deflated, as_folder])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8", ">f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_first_and_bytes_swapped(tmp_path: Path, write: Writer, dtype: str, order: str) -> None:
    values = np.asarray(drawn().half().numpy().astype(dtype), order=order)
    found = open_logits(write(tmp_path, {"logits": values, "labels": LABELS.numpy().astype(">i2")}))
    for rows in (None, 1, 7):
        np.testing.assert_array_equal(joined(found, rows).double().numpy(), values.astype(float))
    assert torch.equal(found.labels, LABELS)


def test_a_run_directory_and_its_file(tmp_path: Path) -> None:
    run = tmp_path / "seed0"
    run.mkdir()
    save_file({"logits": drawn(), "labels": LABELS, "ood_logits": drawn(n=3)}, run / "logits.safetensors")
    (run / "final.json").write_text("{}")
    for path in (run, run / "logits.safetensors"):
        assert torch.equal(joined(open_logits(str(path))), drawn())


def test_a_second_pass_and_one_that_stops_half_way(tmp_path: Path) -> None:
    found = open_logits(as_safetensors(tmp_path, {"logits": drawn(), "labels": LABELS}))
    next(iter(found.blocks(2)))
    assert torch.equal(joined(found, 2), joined(found, 7))


def test_blocks_have_a_size_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK", 10 * C)
    found = open_logits(as_npz(tmp_path, {"logits": drawn(), "labels": LABELS}))
    assert [len(block) for _, block, _ in found.blocks()] == [10, 10, 3]


def test_what_is_not_used_is_named(tmp_path: Path) -> None:
    content = {"logits": drawn(), "labels": LABELS, "features": drawn(n=2), "ood_logit": drawn(n=2)}
    for write in WRITERS[:1] + WRITERS[2:]:
        assert open_logits(write(tmp_path, content)).unused == ("features", "ood_logit")


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("change", "says"), [
    ({"labels": None}, "has no 'labels'; it holds logits. Add under this name the right class of each example"),
    ({"logits": None, "logit": drawn()}, "has no 'logits'; it holds labels, logit. Did you mean 'logit'?"),
    ({"labels": None, "targets": LABELS}, "has no 'labels'; it holds logits, targets"),
    ({"logits": drawn()[:, 0]}, "got (23,). Make a column of it: logits[:, None]."),
    ({"logits": drawn()[:, :0]}, "(examples, 1) for a binary classifier with one logit, got (23, 0)"),
    ({"logits": drawn()[0]}, "expected the shape (examples, classes)"),
    ({"logits": drawn()[:0], "labels": LABELS[:0]}, "at least one example"),
    ({"logits": LABELS[:, None].repeat(1, C)},
     "expected float16, bfloat16, float32 or float64, got int64. Convert them: logits.astype('float32'), in torch "
     "logits.float()."),
    ({"labels": LABELS[:-1]}, "expected the shape (23,), one label per row of the logits, got (22,)"),
    ({"labels": torch.nn.functional.one_hot(LABELS)}, "got (23, 4). Take labels.argmax(1) of one-hot rows."),
    ({"labels": LABELS[:, None]}, "got (23, 1). Take labels[:, 0]."),
    ({"labels": LABELS.float()}, "got float32. Convert them: labels.astype(int), in torch labels.long()."),
    ({"labels": LABELS > 1}, "Convert them: labels.astype(int), in torch labels.long()."),
    ({"logits": drawn().T.contiguous()}, "got (23,). Take logits.T: a row is an example."),
    ({"labels": LABELS - 1}, "row 0 has -1, expected 0 to 3"),
    ({"labels": LABELS + 1}, "row 3 has 4, expected 0 to 3; the labels seem to count from 1: subtract it."),
    ({"labels": LABELS + 2}, "expected 0 to 3; number the classes from 0, in the order of the columns."),
    ({"labels": LABELS - 100}, "expected 0 to 3; leave out rows without a label."),
    ({"logits": drawn()[:, :2], "labels": 2 * (LABELS > 1).long() - 1},
     "row 0 has -1, expected 0 to 1; the labels seem to be -1 and 1: take (labels + 1) // 2."),
    ({"logits": drawn()[:, :1], "labels": 2 * (LABELS > 1).long() - 1}, "take (labels + 1) // 2."),
    ({"logits": LABELS.clone()}, "got (23,). These seem to be the predicted classes; give the logits of all classes."),
    ({"ood_logits": drawn()[:, :3]}, "has 3 classes where logits has 4"),
    ({"ood_logits.far": LABELS.clone()}, "expected the shape (examples, classes)"),
    ({"class_counts": COUNTS[:2]}, "expected 4 numbers, one per class, got the shape (2,)"),
    ({"class_counts": -COUNTS}, "class 0 has -100"),
    ({"class_counts": COUNTS * torch.tensor([1.0, torch.inf, 1.0, 1.0])}, "class 1 has inf"),
])
def test_what_does_not_fit_is_refused_with_file_and_key(tmp_path: Path, write: Writer, change: dict[str, Any],
                                                        says: str) -> None:
    content = {"logits": drawn(), "labels": LABELS, **change}
    path = write(tmp_path, {key: value for key, value in content.items() if value is not None})
    with pytest.raises(DataError) as refused:
        open_logits(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_folder_of_runs_is_answered_with_one_of_them(tmp_path):
    for seed in ("seed1", "seed0"):
        run = tmp_path / "runs" / "digits" / "ce" / seed
        run.mkdir(parents=True)
        save_file({"logits": drawn(), "labels": LABELS}, run / "logits.safetensors")
    for folder in (run.parent, run.parent.parent):
        with pytest.raises(DataError, match=f"Finished runs are below it, such as {run}"):
            open_logits(folder)
    for number in range(10):
        (tmp_path / "many" / f"file{number}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "many" / f"file{number}.txt").touch()
    with pytest.raises(DataError, match=r"file7.txt and 2 more\.$"):
        open_logits(tmp_path / "many")


def test_a_table_of_columns_is_answered_with_the_line_that_converts_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.parquet").touch()
    with pytest.raises(DataError, match="Convert it once") as refused:
        open_logits("mine.parquet")

    class Table(dict):  # as much of a DataFrame as the line needs: pandas is not installed with the package
        def drop(self, columns: str) -> Table:
            return Table({name: values for name, values in self.items() if name != columns})

        def to_numpy(self, dtype: str) -> np.ndarray:
            return np.array(list(self.values()), dtype).T

    table = Table(cat=[1.5, 0], dog=[-1, 2], label=SimpleNamespace(to_numpy=lambda: np.array([0, 1])))
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(read_parquet={"mine.parquet": table}.__getitem__))
    exec("import numpy" + str(refused.value).partition("import numpy")[2], {})
    found = open_logits("mine.npz")
    assert torch.equal(next(found.blocks())[1], torch.tensor([[1.5, -1], [0, 2]]))
    assert torch.equal(found.labels, torch.tensor([0, 1]))


@pytest.mark.parametrize("shape", [(6,), (6, 1), (4,)])
def test_labels_that_are_names_are_to_be_numbered_whatever_their_shape(tmp_path, shape):
    path = tmp_path / "named.npz"
    np.savez(path, logits=np.random.randn(6, 3), labels=np.full(shape, "cat"))
    with pytest.raises(DataError, match="Number the classes"):
        open_logits(path)
