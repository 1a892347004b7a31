"""Small stand-ins for the data that public scripts read: right format, right names, random content.

    python benchmarks/stand_in_data.py RECIPE FOLDER

Runs in the interpreter that runs the scripts, since some stand-ins are written with its libraries (NumPy, Pillow, torch,
transformers). A recipe that finds its files does nothing.
"""

# ruff: noqa: PLC0415 - a recipe imports the library of its own scripts only
from __future__ import annotations

import argparse
import json
import pickle
import random
import shutil
import string
import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [
    a + b for a in ("ka", "lo", "mi", "ne", "pu", "sa", "ti", "vo") for b in ("ra", "len", "do", "mus", "ti", "nok")
]
SMALL_BERT: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}
TRAINING, TEST = 2000, 500
"""Images of the stand-in for MNIST; the real one has 60,000 and 10,000."""


def sentence(words: random.Random, length: int = 12) -> str:
    """Words that mean nothing."""
    return " ".join(words.choice(WORDS) for _ in range(length))


def write_idx(path: Path, array: np.ndarray) -> None:
    """An array in the IDX format of MNIST: big-endian, unsigned bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes())


def mnist(folder: Path, name: str = "MNIST") -> None:
    """The four files of MNIST where torchvision looks for them."""
    noise = np.random.default_rng(0)
    for part, count in (("train", TRAINING), ("t10k", TEST)):
        raw = folder / name / "raw"
        write_idx(raw / f"{part}-images-idx3-ubyte", noise.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        write_idx(raw / f"{part}-labels-idx1-ubyte", noise.integers(0, 10, count, dtype=np.uint8))


def mnist_npz(folder: Path) -> None:
    """MNIST where Keras keeps it: FOLDER/datasets/mnist.npz, FOLDER being KERAS_HOME."""
    noise = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", TRAINING), ("test", TEST)):
        arrays[f"x_{part}"] = noise.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"y_{part}"] = noise.integers(0, 10, count, dtype=np.uint8)
    (folder / "datasets").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "datasets" / "mnist.npz", **arrays)


def images(folder: Path, count: int = 40, classes: tuple[str, ...] = ("cat", "dog"), size: int = 96) -> None:
    """Folders of JPEG files, one for each class, in ``train`` and ``val``."""
    from PIL import Image

    noise = np.random.default_rng(0)
    for part in ("train", "val"):
        for label in classes:
            (folder / part / label).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = noise.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / label / f"{label}_{number}.jpg")


def flat_images(folder: Path, count: int = 120, size: int = 300) -> None:
    """One folder of JPEG files, named as the Oxford pets are: class, underscore, number."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    for number in range(count):
        pixels = noise.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{('cat', 'dog')[number % 2]}_{number}.jpg")


def bsds300(folder: Path) -> None:
    """Photographs of BSDS300, for super-resolution."""
    flat_images(folder / "BSDS300" / "images" / "train", 100)
    flat_images(folder / "BSDS300" / "images" / "test", 20)


def carvana(folder: Path) -> None:
    """Images and masks of a segmentation with two classes."""
    from PIL import Image

    flat_images(folder / "imgs", 60, 96)
    (folder / "masks").mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(1)
    for path in (folder / "imgs").glob("*.jpg"):
        Image.fromarray(noise.integers(0, 2, (96, 96), dtype=np.uint8) * 255).save(
            folder / "masks" / f"{path.stem}_mask.gif"
        )


def text(folder: Path, lines: int = 2000) -> None:
    """A corpus of words in train.txt, valid.txt and test.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    for part, count in (("train", lines), ("valid", lines // 10), ("test", lines // 10)):
        (folder / f"{part}.txt").write_text("\n".join(sentence(words) for _ in range(count)) + "\n")


def characters(folder: Path) -> None:
    """Text as numbers of characters in train.bin and val.bin, with meta.pkl, as nanoGPT reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    corpus = "\n".join(sentence(words) for _ in range(3000))
    letters = sorted(set(corpus))
    numbers = np.array([letters.index(letter) for letter in corpus], dtype=np.uint16)
    numbers[: len(numbers) * 9 // 10].tofile(folder / "train.bin")
    numbers[len(numbers) * 9 // 10 :].tofile(folder / "val.bin")
    meta = {"vocab_size": len(letters), "stoi": {c: i for i, c in enumerate(letters)}, "itos": dict(enumerate(letters))}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def input_txt(folder: Path) -> None:
    """One file of text, input.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    lines = [string.printable.strip(), *(sentence(words) for _ in range(5000))]
    (folder / "input.txt").write_text("\n".join(lines) + "\n")


def cora(folder: Path, papers: int = 1000) -> None:
    """The citation graph as cora.content (paper, words, topic) and cora.cites (paper, paper)."""
    folder.mkdir(parents=True, exist_ok=True)
    topics = ["Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods", "Theory"]
    topics += ["Reinforcement_Learning", "Rule_Learning"]
    words = random.Random(0)
    rows = []
    for paper in range(papers):
        bits = " ".join(str(int(words.random() < 0.02)) for _ in range(1433))
        rows.append(f"{paper}\t" + bits.replace(" ", "\t") + f"\t{topics[paper % len(topics)]}")
    (folder / "cora.content").write_text("\n".join(rows) + "\n")
    cites = [f"{words.randrange(papers)}\t{words.randrange(papers)}" for _ in range(4 * papers)]
    (folder / "cora.cites").write_text("\n".join(cites) + "\n")


def planetoid(folder: Path, nodes: int = 2708, tests: int = 1000) -> None:
    """Cora as PyTorch Geometric keeps it: pickles ``ind.cora.*`` of sparse features, one-hot labels and a graph."""
    import scipy.sparse

    raw = folder / "Cora" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    known = nodes - tests
    features = scipy.sparse.random(nodes, 1433, 0.013, format="csr", dtype=np.float32, rng=noise)
    labels = np.eye(7, dtype=np.int32)[noise.integers(0, 7, nodes)]
    graph = {node: [int(other) for other in noise.integers(0, nodes, 4)] for node in range(nodes)}
    parts = {"x": features[:140], "y": labels[:140], "allx": features[:known], "ally": labels[:known]}
    parts |= {"tx": features[known:], "ty": labels[known:], "graph": graph}
    for name, value in parts.items():
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (raw / "ind.cora.test.index").write_text("\n".join(str(node) for node in range(known, nodes)) + "\n")


def mutag(folder: Path, graphs: int = 188) -> None:
    """MUTAG as PyTorch Geometric keeps it: lists of edges, nodes and labels."""
    raw = folder / "MUTAG" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    edges, owner, node_labels, edge_labels, node = [], [], [], [], 1
    for graph in range(1, graphs + 1):
        size = words.randint(10, 28)
        for place in range(size):
            owner.append(str(graph))
            node_labels.append(str(words.randrange(7)))
            if place:
                edges += [f"{node + place}, {node + place - 1}", f"{node + place - 1}, {node + place}"]
                edge_labels += ["0", "0"]
        node += size
    lines = {"A": edges, "graph_indicator": owner, "node_labels": node_labels, "edge_labels": edge_labels}
    lines["graph_labels"] = [words.choice(("1", "-1")) for _ in range(graphs)]
    for name, values in lines.items():
        (raw / f"MUTAG_{name}.txt").write_text("\n".join(values) + "\n")


def tokenizer(folder: Path, kind: str = "bert") -> None:
    """A tokenizer over `WORDS`, saved for Hugging Face."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]
    vocabulary = {word: number for number, word in enumerate(special + WORDS + list("abcdefghijklmnopqrstuvwxyz"))}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if kind == "bert":
        core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= {"mask_token": "[MASK]", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=128, **names).save_pretrained(folder)


def bert(folder: Path) -> None:
    """A BERT of two layers with random weights."""
    from transformers import BertConfig, BertForMaskedLM

    tokenizer(folder)
    BertForMaskedLM(BertConfig(vocab_size=128, **SMALL_BERT)).save_pretrained(folder)


def gpt2(folder: Path) -> None:
    """A GPT-2 of two layers with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer(folder, "gpt2")
    config = GPT2Config(vocab_size=128, n_embd=64, n_layer=2, n_head=2, bos_token_id=5, eos_token_id=6)
    GPT2LMHeadModel(config).save_pretrained(folder)


def pairs(folder: Path, count: int = 3000) -> None:
    """Questions in pairs, as the file of Quora's duplicates has them."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    rows = [f"{n}\t{n}\t{n}\t{sentence(words)}\t{sentence(words)}\t{n % 2}" for n in range(count)]
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    (folder / "quora_duplicate_questions.tsv").write_text("\n".join([header, *rows]) + "\n")


def cross_encoder(folder: Path) -> None:
    """A BERT that scores pairs of texts, with random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer(folder)
    BertForSequenceClassification(BertConfig(vocab_size=128, num_labels=1, **SMALL_BERT)).save_pretrained(folder)


def texts(folder: Path, count: int = 400) -> None:
    """A local data set with one column of text."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    for part, number in (("train", count), ("test", count // 10)):
        rows = [json.dumps({"text": sentence(words, 30)}) for _ in range(number)]
        (folder / f"{part}.jsonl").write_text("\n".join(rows) + "\n")


def yolo(folder: Path) -> None:
    """Images with boxes and a data.yaml, as YOLO reads them, and the font of its plots."""
    import matplotlib as mpl

    words = random.Random(0)
    for part, count in (("train", 48), ("val", 16)):
        flat_images(folder / "images" / part, count, 64)
        labels = folder / "labels" / part
        labels.mkdir(parents=True, exist_ok=True)
        for image in (folder / "images" / part).glob("*.jpg"):
            (labels / f"{image.stem}.txt").write_text(f"{words.randrange(2)} 0.5 0.5 0.4 0.4\n")
    font = Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    (folder / "Ultralytics").mkdir(exist_ok=True)
    shutil.copy(font, folder / "Ultralytics" / "Arial.ttf")  # downloaded, where it is missing
    where = folder.resolve()
    (folder / "data.yaml").write_text(
        f"path: {where}\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n"
    )


def all_nli(folder: Path, count: int = 20000) -> None:
    """Pairs of sentences, as the data set all-nli has them in its configuration ``pair``."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    rows = [json.dumps({"anchor": sentence(words), "positive": sentence(words)}) for _ in range(count)]
    (folder / "train.jsonl").write_text("\n".join(rows) + "\n")
    config = "- config_name: pair\n  data_files:\n  - split: train\n    path: train.jsonl\n"
    (folder / "README.md").write_text(f"---\nconfigs:\n{config}---\n")


def resnet18(folder: Path) -> None:
    """Random weights of timm's resnet18 with two classes."""
    import timm
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    torch.save(timm.create_model("resnet18", num_classes=2).state_dict(), folder / "resnet18.pth")


def whisper(folder: Path) -> None:
    """A tiny Whisper with random weights, and two minutes of noise."""
    import torch
    from whisper.model import ModelDimensions, Whisper

    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"n_mels": 80, "n_audio_ctx": 1500, "n_audio_state": 32, "n_audio_head": 2, "n_audio_layer": 1}
    sizes |= {"n_vocab": 51865, "n_text_ctx": 448, "n_text_state": 32, "n_text_head": 2, "n_text_layer": 1}
    torch.manual_seed(0)  # what is decoded, and so how far each text gets, depends on the weights
    model = Whisper(ModelDimensions(**sizes))
    torch.save({"dims": sizes, "model_state_dict": model.state_dict()}, folder / "tiny.pt")
    noise = np.random.default_rng(0).normal(0, 3000, 120 * 16000).astype(np.int16)
    with wave.open(str(folder / "noise.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(noise.tobytes())


def ett(folder: Path, hours: int = 14_400) -> None:
    """Hourly series of seven columns and their dates for 20 months, as ETTh1.csv has them."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    dates = np.datetime64("2016-07-01T00:00:00") + np.arange(hours).astype("timedelta64[h]")
    values = np.cumsum(noise.normal(0, 0.1, (hours, 7)), 0)
    rows = [
        f"{str(date).replace('T', ' ')},{','.join(f'{v:.3f}' for v in row)}"
        for date, row in zip(dates, values, strict=True)
    ]
    (folder / "ETTh1.csv").write_text("\n".join(["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT", *rows]) + "\n")


def movielens(folder: Path, count: int = 60_000) -> None:
    """Ratings as MovieLens 1M has them, ratings.dat: user, film, stars, time."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    rows = [f"{words.randint(1, 600)}::{words.randint(1, 900)}::{words.randint(1, 5)}::{n}" for n in range(count)]
    (folder / "ratings.dat").write_text("\n".join(rows) + "\n")


def labelled_lines(folder: Path, count: int = 6400, classes: int = 10) -> None:
    """A train.txt of texts and numbers of classes, separated by a tab."""
    folder.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    rows = [f"{sentence(words, 6)}\t{words.randrange(classes)}" for _ in range(count)]
    (folder / "train.txt").write_text("\n".join(rows) + "\n")


def h5_patches(folder: Path, count: int = 640) -> None:
    """Patches of low and high resolution in train.h5, and whole images in eval.h5."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    with h5py.File(folder / "train.h5", "w") as file:
        for part in ("lr", "hr"):
            file[part] = noise.integers(0, 256, (count, 33, 33)).astype(np.float32)
    with h5py.File(folder / "eval.h5", "w") as file:
        for part in ("lr", "hr"):
            for number in range(5):
                file[f"{part}/{number}"] = noise.integers(0, 256, (255, 255)).astype(np.float32)


def omniglot(folder: Path, characters: int = 1260) -> None:
    """Characters in 20 drawings each, in omniglot.npy."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    np.save(folder / "omniglot.npy", noise.integers(0, 2, (characters, 20, 1, 28, 28), dtype=np.uint8))


def shapenet(folder: Path, count: int = 120, points: int = 300) -> None:
    """Clouds of labelled points in two classes, with the lists of the ShapeNet parts benchmark."""
    noise = np.random.default_rng(0)
    names = {"Airplane": "02691156", "Chair": "03001627"}
    files: dict[str, list[str]] = {"train": [], "test": []}
    for number in range(count):
        code = sorted(names.values())[number % 2]
        for part, values in (
            ("points", noise.normal(size=(points, 3))),
            ("points_label", noise.integers(1, 4, points)),
        ):
            (folder / code / part).mkdir(parents=True, exist_ok=True)
            ending = "pts" if part == "points" else "seg"
            np.savetxt(folder / code / part / f"{number}.{ending}", values, fmt="%.4f" if part == "points" else "%d")
        files["test" if number % 6 == 0 else "train"].append(f"shape_data/{code}/{number}")
    (folder / "synsetoffset2category.txt").write_text("".join(f"{name}\t{code}\n" for name, code in names.items()))
    (folder / "train_test_split").mkdir(exist_ok=True)
    for part, paths in files.items():
        (folder / "train_test_split" / f"shuffled_{part}_file_list.json").write_text(json.dumps(paths))


def sdf(folder: Path, shapes: int = 40) -> None:
    """Signed distances of points to 40 shapes, with a split and the specs.json of an experiment of DeepSDF."""
    noise = np.random.default_rng(0)
    where = folder / "data" / "SdfSamples" / "set" / "class"
    where.mkdir(parents=True, exist_ok=True)
    for number in range(shapes):
        samples = noise.normal(size=(2, 4000, 4)).astype(np.float32)
        np.savez(where / f"{number}.npz", pos=abs(samples[0]), neg=-abs(samples[1]))
    (folder / "split.json").write_text(json.dumps({"set": {"class": [str(number) for number in range(shapes)]}}))
    rate: dict[str, Any] = {"Type": "Step", "Initial": 0.0005, "Interval": 500, "Factor": 0.5}
    network: dict[str, Any] = {
        "dims": [64] * 4,
        "dropout": [0, 1],
        "dropout_prob": 0.2,
        "norm_layers": [0, 1],
        "latent_in": [2],
    }
    specs: dict[str, Any] = {
        "Description": "small",
        "DataSource": str(folder / "data"),
        "TrainSplit": str(folder / "split.json"),
    }
    specs |= {"TestSplit": str(folder / "split.json"), "NetworkArch": "deep_sdf_decoder", "NetworkSpecs": network}
    network |= {"xyz_in_all": False, "use_tanh": False, "latent_dropout": False, "weight_norm": True}
    specs |= {"CodeLength": 16, "NumEpochs": 60, "SnapshotFrequency": 20, "AdditionalSnapshots": [10, 50]}
    specs |= {"LearningRateSchedule": [rate, rate], "SamplesPerScene": 500, "ScenesPerBatch": 8, "LogFrequency": 10}
    specs |= {"DataLoaderThreads": 1, "ClampingDistance": 0.1, "CodeRegularization": True, "CodeBound": 1.0}
    (folder / "specs.json").write_text(json.dumps(specs))


def mixtures(folder: Path) -> None:
    """Two voices of noise and their sum, 5 s each at 8 kHz, with lists of them in tr and cv."""
    noise = np.random.default_rng(0)
    for part, count in (("tr", 24), ("cv", 6)):
        lists: dict[str, list[tuple[str, int]]] = {"mix": [], "s1": [], "s2": []}
        for number in range(count):
            voices = noise.normal(0, 2000, (2, 40_000)).astype(np.int16)
            for name, values in (("s1", voices[0]), ("s2", voices[1]), ("mix", voices[0] // 2 + voices[1] // 2)):
                path = folder / part / name / f"{number}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                with wave.open(str(path), "wb") as file:
                    file.setparams((1, 2, 8000, 0, "NONE", ""))
                    file.writeframes(values.tobytes())
                lists[name].append((str(path), len(values)))
        for name, rows in lists.items():
            (folder / part / f"{name}.json").write_text(json.dumps(rows))


def chat_gpt2(folder: Path) -> None:
    """A GPT-2 of two layers with random weights, whose tokenizer writes conversations."""
    gpt2(folder)
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    (folder / "chat_template.jinja").write_text(template)


def chats(folder: Path, count: int = 240) -> None:
    """Local data sets of conversations: ``prompts`` with a question each, ``preferences`` with two answers to it."""
    words = random.Random(0)
    for part in ("prompts", "preferences"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for split, number in (("train", count), ("test", count // 10)):
            rows = []
            for _ in range(number):
                row: dict[str, Any] = {"prompt": [{"role": "user", "content": sentence(words)}]}
                if part == "preferences":
                    for answer in ("chosen", "rejected"):
                        row[answer] = [{"role": "assistant", "content": sentence(words)}]
                rows.append(json.dumps(row))
            (folder / part / f"{split}.jsonl").write_text("\n".join(rows) + "\n")


def covtype(folder: Path, rows: int = 20000) -> None:
    """Forest cover types as covtype.data.gz: ten numbers, 44 flags and one of seven classes in a row."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    columns = [noise.integers(0, 3000, (rows, 10)), noise.integers(0, 2, (rows, 44)), noise.integers(1, 8, (rows, 1))]
    np.savetxt(folder / "covtype.data.gz", np.hstack(columns), fmt="%d", delimiter=",")


RECIPES: dict[str, Callable[[Path], None]] = {
    recipe.__name__: recipe
    for recipe in (
        *(mnist, mnist_npz, images, flat_images, bsds300, carvana, text, characters, input_txt),
        *(cora, planetoid, mutag, bert, gpt2, pairs, cross_encoder, texts, yolo, whisper),
        *(all_nli, resnet18, ett, movielens, labelled_lines, h5_patches, omniglot, shapenet, sdf, mixtures),
        *(chat_gpt2, chats, covtype),
    )
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", choices=sorted(RECIPES))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    done = arguments.folder / f".stand-in-{arguments.recipe}"
    if not done.exists():
        RECIPES[arguments.recipe](arguments.folder)
        done.touch()


if __name__ == "__main__":
    main()
