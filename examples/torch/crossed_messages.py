#!/usr/bin/env python3
"""Neighbours in a pipeline both receive first: each waits for what the other would send next."""

import torch
import torch.distributed as dist

import job


def main(rank):
    if rank.rank < 2:
        peer = 1 - rank.rank
        own, other = torch.ones(64), torch.zeros(64)
        sends_first = rank.rank == 0 and not rank.faulty
        if sends_first:
            rank.note("send", own, root=peer)
            dist.send(own, peer)
        rank.note("recv", other, root=peer)
        dist.recv(other, peer)
        if not sends_first:
            rank.note("send", own, root=peer)
            dist.send(own, peer)
    rank.note("barrier")
    dist.barrier()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
