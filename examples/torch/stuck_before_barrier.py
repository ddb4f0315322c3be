#!/usr/bin/env python3
"""Half of the ranks never reach the first barrier: each retries a driver call for ever, as a device that cannot make a queue
makes them. The others wait; training never starts.
"""

import fcntl
import os
import time

import torch.distributed as dist

import job


def create_queue(rank):
    with open(os.devnull, "r+b", buffering=0) as device:
        while True:
            try:
                fcntl.ioctl(device, 0xC0104B02, bytes(16))
                return
            except OSError as error:
                rank.say(f"[E] ioctl create queue block timeout ({error.strerror}). Retrying")
                time.sleep(0.5)


def main(rank):
    if rank.faulty and rank.rank < rank.world // 2:
        create_queue(rank)
    rank.note("barrier")
    dist.barrier()


if __name__ == "__main__":
    job.start(main, job.arguments(__doc__).parse_args())
