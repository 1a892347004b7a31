"""Loops over batches that a library drives: the package and its method are the arguments."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

package, way = sys.argv[1:]
net = torch.nn.Linear(64, 64)
data = DataLoader(TensorDataset(torch.randn(5000, 64), torch.randn(5000, 64)), batch_size=10)

if package == "lightning":
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def predict_step(self, batch, index):
            return self.net(batch[0])

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    getattr(lightning.Trainer(accelerator="cpu", enable_model_summary=False, **quiet), way)(Module(), data)
elif package == "transformers":
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x=None, labels=None):
            out = self.net(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    arguments = TrainingArguments("out", per_device_eval_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True)
    samples = [{"x": x, "labels": y} for x, y in zip(*data.dataset.tensors)]
    getattr(Trainer(Model(), arguments), way)(samples)
elif package == "pipeline":
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, pipeline

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    with open("vocab.txt", "w") as file:
        file.write("\n".join(words))
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(words), **shape))
    classify = pipeline("text-classification", model=model, tokenizer=BertTokenizerFast("vocab.txt"), device="cpu")
    scores = classify(["good film"] * 4000, batch_size=16)
