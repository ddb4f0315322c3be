#!/usr/bin/env python3
"""One rank skips a micro-batch that it cannot use: gradients of different batches are summed from there on, silently. All
calls are alike, so the streams stay equal until that rank is done, one call before the others.
"""

import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

import job

FAULTY_RANK = 2
FAULTY_STEP = 4


def main(rank):
    model = DDP(nn.Linear(20, 1), broadcast_buffers=False)
    for step in range(10):
        if rank.faulty and (rank.rank, step) == (FAULTY_RANK, FAULTY_STEP):
            continue
        loss = model(torch.randn(4, 20)).pow(2).mean()
        rank.note_gradients(model)
        loss.backward()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
