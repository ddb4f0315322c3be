#!/usr/bin/env python3
"""Mixed precision as GradScaler does it, with the mistake that infinite gradients are looked for before they are averaged:
one rank skips an optimizer step, its counter of steps lags, and `if steps % 3 == 0` is true for it one iteration later.
"""

import torch
import torch.distributed as dist
import torch.nn as nn

import job

FAULTY_RANK = 2
FAULTY_ITERATION = 4


def average(rank, model):
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    rank.note("allreduce", gradient, op="sum")
    dist.all_reduce(gradient)


def log_loss(rank, loss):
    mean = loss.detach().reshape(1)
    rank.note("reduce", mean, root=0, op="sum")
    dist.reduce(mean, dst=0)


def main(rank):
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steps = 0
    for iteration in range(10):
        data = torch.randn(4, 20)
        if rank.faulty and (rank.rank, iteration) == (FAULTY_RANK, FAULTY_ITERATION):
            data[0, 0] = float("inf")
        optimizer.zero_grad()
        loss = model(data).pow(2).mean()
        loss.backward()
        finite = all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
        average(rank, model)
        if not finite:
            continue  # what the scaler does
        optimizer.step()
        steps += 1
        if steps % 3 == 0:
            log_loss(rank, loss)


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
