"""A word-level LSTM language model with truncated backpropagation."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--tokens", type=int, default=500_000)
args = parser.parse_args()
vocabulary, width, batch_size, bptt = 5000, 256, 20, 35
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
corpus = torch.randint(0, vocabulary, (args.tokens // batch_size, batch_size)).to(device)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.2)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, words, state):
        output, state = self.lstm(self.embedding(words), state)
        return self.decoder(output), state


model = Words().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=20.0)
for epoch in range(1, args.epochs + 1):
    state = None
    for start in range(0, corpus.size(0) - 1, bptt):
        stop = min(start + bptt, corpus.size(0) - 1)
        words, targets = corpus[start:stop], corpus[start + 1 : stop + 1]
        if state is not None:
            state = tuple(part.detach() for part in state)
        output, state = model(words, state)
        loss = nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), "lstm.pt")
