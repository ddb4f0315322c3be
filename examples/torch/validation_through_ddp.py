#!/usr/bin/env python3
"""Rank 0 alone validates, and calls the DDP model for it instead of the model inside: DDP broadcasts the buffers of the
batch normalization before each forward pass, and nobody else takes part in that broadcast. Its next one is the others'
next forward pass, so from there on rank 0 is one call behind.
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

import job


def validate(model, rank):
    if rank.faulty:
        # DDP's own call: the buffers of one kind in one.
        rank.note("broadcast", torch.empty(16), root=0)
    # In training mode: DDP leaves out the buffers of a model that is evaluated without gradients only in some releases.
    return model(torch.randn(4, 20)).mean().item()


def main(rank):
    model = DDP(nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    for step in range(6):
        loss = model(torch.randn(4, 20)).pow(2).mean()
        rank.note_gradients(model)
        loss.backward()
        if step == 3 and rank.rank == 0:
            validate(model if rank.faulty else model.module, rank)
    rank.note("barrier")
    dist.barrier()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
