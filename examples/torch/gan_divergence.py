#!/usr/bin/env python3
"""The founding report: a GAN with two DDP models and gradient accumulation, evaluated every few optimizer steps.

A guard against spikes looks at the rank's own logits and drops an optimizer step on one rank, whose global_step lags from
then on: when the others enter evaluate() and its barrier, it runs one more backward pass.
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

import job

FAULTY_RANK = 6
FAULTY_STEP = 5
STEPS = 14
ACCUMULATE = 2
EVALUATE_EVERY = 2


def generator():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))


def discriminator():
    return nn.Sequential(nn.Linear(32, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        rank.note("barrier")
        dist.barrier()
        self.gen = DDP(generator(), broadcast_buffers=False)
        self.disc = DDP(discriminator(), broadcast_buffers=False)
        self.gen_optimizer = torch.optim.Adam(self.gen.parameters(), 1e-3)
        self.disc_optimizer = torch.optim.Adam(self.disc.parameters(), 1e-3)
        self.loss = nn.BCEWithLogitsLoss()
        self.random = torch.Generator().manual_seed(rank.rank)
        self.global_step = 0

    def batch(self, step):
        real = torch.randn(8, 32, generator=self.random) + 2
        if self.rank.faulty and (self.rank.rank, step) == (FAULTY_RANK, FAULTY_STEP):
            real = real * 1e4  # one outlier in one rank's shard
        return real, torch.randn(8, 16, generator=self.random)

    def train_discriminator(self, real, noise):
        self.disc_optimizer.zero_grad()
        logits = self.disc(real)
        fake = self.disc(self.gen(noise).detach())
        loss = self.loss(logits, torch.ones(8, 1)) + self.loss(fake, torch.zeros(8, 1))
        self.rank.note_gradients(self.disc)
        loss.backward()
        self.disc_optimizer.step()
        return logits.detach()

    def train_generator(self, noise):
        loss = self.loss(self.disc.module(self.gen(noise)), torch.ones(8, 1)) / ACCUMULATE
        self.rank.note_gradients(self.gen)
        loss.backward()

    def train(self):
        for step in range(STEPS):
            real, noise = self.batch(step)
            logits = self.train_discriminator(real, noise)
            self.train_generator(noise)
            if step % ACCUMULATE != ACCUMULATE - 1:
                continue
            if logits.abs().max() > 100:
                self.rank.say(f"step {step}: logit spike, optimizer step dropped")
                self.gen_optimizer.zero_grad()
                continue
            self.gen_optimizer.step()
            self.gen_optimizer.zero_grad()
            self.global_step += 1
            if self.global_step % EVALUATE_EVERY == 0:
                self.evaluate()

    def evaluate(self):
        self.rank.note("barrier")
        dist.barrier()
        with torch.no_grad():
            noise = torch.randn(16, 16, generator=self.random)
            score = self.disc.module(self.gen.module(noise)).mean().reshape(1)
        self.rank.note("allreduce", score, op="sum")
        dist.all_reduce(score)


def main(rank):
    Trainer(rank).train()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__, ranks=8).parse_args())
