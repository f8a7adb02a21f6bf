"""Advice for logits in a form that cannot be read: how to convert the file, or how to rename its arrays."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from .arrays import shown

# What others call the two arrays that are needed; numpy.savez calls those without a name arr_0 and arr_1.
OTHER_NAMES = {"logits": ("outputs", "output", "logit", "preds", "predictions", "scores", "y_pred", "x", "arr_0"),
               "labels": ("targets", "target", "label", "y", "y_true", "classes", "gt", "arr_1")}
NEEDED = {"logits": "the outputs of the last layer, a row per example and a column per class",
          "labels": "the right class of each example, an integer"}
EXPECTED = "expected .safetensors, .npz, a folder of .npy files or a run directory"
SEPARATORS = {".csv": "','", ".tsv": r"'\t'", ".txt": "None"}


def other_ending(path: Path) -> str:
    """Why a file of this ending is not read, and the line that converts it."""
    suffix = path.suffix.lower()
    if suffix in (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"):
        return ("a pickled file, which can run code when it is loaded. Save it with "
                "safetensors.torch.save_file({'logits': logits, 'labels': labels}, 'mine.safetensors').")
    if suffix == ".npy":
        return "one array alone. Give the folder that holds logits.npy and labels.npy."
    if suffix in SEPARATORS:
        return (f"{EXPECTED}, got a table of text. Convert it once (here the label is the last column, below one "
                f"line of names): import numpy as np; a = np.loadtxt({shown(path.name)!r}, "
                f"delimiter={SEPARATORS[suffix]}, skiprows=1); np.savez('mine.npz', logits=a[:, :-1], "
                "labels=a[:, -1].astype(int))")
    if suffix in (".parquet", ".feather"):
        return (f"{EXPECTED}, got a table. Convert it once (here the column of the labels is called label, and all "
                f"others are logits): import numpy as np; import pandas as pd; a = pd.read_{suffix[1:]}("
                f"{shown(path.name)!r}); np.savez('mine.npz', logits=a.drop(columns='label').to_numpy('float32'), "
                "labels=a['label'].to_numpy())")
    if suffix in (".json", ".jsonl"):
        return f"{EXPECTED}, got JSON. Convert it once (change the names to yours): {_json_words(path)}"
    return f"{EXPECTED}, got {suffix!r}." if suffix else f"{EXPECTED}, got a name without a suffix."


def _json_words(path: Path) -> str:
    """The line that converts an object of two lists, or a list (or lines) of objects, one per example."""
    a_list = False
    with suppress(OSError), open(path, "rb") as file:
        a_list = file.read(64).lstrip().startswith(b"[")
    text = f"pathlib.Path({shown(path.name)!r}).read_text()"
    if path.suffix.lower() == ".json" and not a_list:
        return (f"import numpy as np; import json, pathlib; a = json.loads({text}); np.savez('mine.npz', "
                "logits=np.array(a['logits'], 'float32'), labels=np.array(a['labels']))")
    rows = f"json.loads({text})" if a_list else f"[json.loads(line) for line in {text}.splitlines()]"
    return (f"import numpy as np; import json, pathlib; a = {rows}; np.savez('mine.npz', "
            "logits=np.array([row['logits'] for row in a], 'float32'), labels=np.array([row['label'] for row in a]))")


def probability_words(path: Path, binary_column: bool) -> str:
    """The line that makes logits of probabilities: their logarithms, or the log-odds of a single column.

    A probability of exactly 0 or 1 would become an infinite logit, so it is moved to a number beside it. Neighbours,
    trees and float32 have many of them.
    """
    log = "(lambda q: np.log(q / (1 - q)))(np.clip(p.astype(float), 1e-38, 1 - 1e-16))" if binary_column else \
        "np.log(np.maximum(p.astype(float), 1e-38))"
    file = shown(path.name)
    if path.is_dir():
        return ("import numpy as np; from pathlib import Path; Path('logs').mkdir(); [np.save(Path('logs', file.name), "
                f"{log} if 'logits' in file.name else p) for file in Path().glob('*.npy') for p in [np.load(file)]]")
    if path.suffix.lower() == ".npz":
        return (f"import numpy as np; np.savez('logs.npz', **{{name: {log} if 'logits' in name else p for name, p in "
                f"np.load({file!r}).items()}})")
    return (f"import numpy as np; from safetensors.numpy import load_file, save_file; save_file({{name: {log} if "
            f"'logits' in name else p for name, p in load_file({file!r}).items()}}, 'logs.safetensors')")


def lacking_words(key: str, path: Path, names: Collection[str]) -> str:
    """What to do about an array that is not in the file: rename another one, or add it.

    >>> lacking_words("labels", Path("mine.npz"), ["logits"])
    ' Add under this name the right class of each example, an integer.'
    """
    return rename_words(path, names) or f" Add under this name {NEEDED[key]}."


def rename_words(path: Path, names: Collection[str]) -> str:
    """The line that gives arrays of other names the right ones; nothing where no array could be meant.

    >>> print(rename_words(Path("mine.npz"), ["outputs", "targets"]))  # doctest: +NORMALIZE_WHITESPACE
     Rename them: import numpy as np; a = np.load('mine.npz'); np.savez('renamed.npz', logits=a['outputs'],
    labels=a['targets'])
    """
    meant = _meant(names)
    if meant is None:
        return ""
    if path.is_dir():
        files = [f"{name}.npy to {key}.npy" for key, name in meant.items() if name != key]
        return f" Rename {' and '.join(files)}."
    file = shown(path.name)
    if path.suffix.lower() == ".npz":
        pairs = ", ".join(f"{key}=a[{name!r}]" for key, name in meant.items())
        return f" Rename them: import numpy as np; a = np.load({file!r}); np.savez('renamed.npz', {pairs})"
    pairs = ", ".join(f"{key!r}: a[{name!r}]" for key, name in meant.items())
    return (f" Rename them: from safetensors.torch import load_file, save_file; a = load_file({file!r}); "
            f"save_file({{{pairs}}}, 'renamed.safetensors')")


def type_words(key: str, dtype: str) -> str:
    """How an array of this type becomes one that is read; nothing where it has no numbers that could be meant.

    >>> type_words("labels", "float64")
    ' Convert them: labels.astype(int), in torch labels.long().'
    >>> type_words("labels", "str672")
    ' Number the classes from 0, in the order of the columns: in scikit-learn, np.searchsorted(model.classes_, labels).'
    """
    if dtype.lower().startswith(("float", "bfloat", "int", "uint", "bool")):
        how = "labels.astype(int), in torch labels.long()" if key == "labels" else \
            "logits.astype('float32'), in torch logits.float()"
        return f" Convert them: {how}."
    if key == "labels" and dtype.startswith(("str", "bytes")):
        return (" Number the classes from 0, in the order of the columns: in scikit-learn, "
                "np.searchsorted(model.classes_, labels).")
    return ""


def _meant(names: Collection[str]) -> dict[str, str] | None:
    """Which arrays are probably the logits and the labels: by usual names, or else the remaining one of two arrays."""
    meant: dict[str, str] = {}
    for key, usual in OTHER_NAMES.items():
        candidates = [name for name in (key, *usual) if name in {*names} - {*meant.values()}]
        if candidates:
            meant[key] = candidates[0]
    left = [name for name in names if name not in meant.values()]
    lacking = [key for key in OTHER_NAMES if key not in meant]
    if len(lacking) == 1 and len(left) == 1:
        meant[lacking[0]] = left[0]
    return {key: meant[key] for key in OTHER_NAMES} if len(meant) == len(OTHER_NAMES) else None
