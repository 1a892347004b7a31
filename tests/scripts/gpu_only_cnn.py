"""A small CNN written for a GPU and nothing else: .cuda() everywhere."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        noise = torch.cuda.FloatTensor(x.shape).normal_() * 0.01
        return self.fc((x + noise).flatten(1))


torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
torch.backends.cudnn.benchmark = True
train = TensorDataset(torch.randn(320, 1, 28, 28), torch.randint(0, 10, (320,)))
loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=0, pin_memory=True)
model = Net().cuda()
weights = torch.ones(10).type(torch.cuda.FloatTensor)
criterion = nn.CrossEntropyLoss(weight=weights).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(300):
    for images, labels in loader:
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        assert images.is_cuda and next(model.parameters()).is_cuda
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), torch.cuda.max_memory_allocated() / 1e9)
    torch.save(model.state_dict(), "net.pt")
