#!/usr/bin/env python3
"""A training loop over the NCCL API, called through ctypes from libcpuccl.so. The program forks its ranks itself.

    python3 nccl_ctypes.py --library DIR/libcpuccl.so              one rank begins another step where the others validate: a hang
    python3 nccl_ctypes.py --library DIR/libcpuccl.so --healthy    ends with exit code 0
"""

import argparse
import ctypes
import os
import signal
import sys

SUM, FLOAT32 = 0, 7
PR_SET_PDEATHSIG = 1


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Nccl:
    """The few functions this job needs, with their C types."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, arguments in {
            "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
            "ncclCommInitRank": [ctypes.POINTER(pointer), integer, UniqueId, integer],
            "ncclCommDestroy": [pointer],
            "ncclAllReduce": [pointer, pointer, size, integer, integer, pointer, pointer],
            "ncclBcast": [pointer, size, integer, integer, pointer, pointer],
            "cpucclStreamSynchronize": [pointer],
        }.items():
            getattr(self.library, name).argtypes = arguments
        self.library.ncclGetErrorString.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def checked(*arguments):
            result = function(*arguments)
            if result != 0:
                raise RuntimeError(f"{name}: {self.library.ncclGetErrorString(result).decode()}")

        return checked


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="path of libcpuccl.so")
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rank", type=int, default=2, help="the faulty rank")
    parser.add_argument("--at", type=int, default=9, help="the faulty step")
    return parser.parse_args()


def train_step(nccl, comm, gradient):
    nccl.ncclAllReduce(gradient, gradient, len(gradient), FLOAT32, SUM, comm, None)
    nccl.cpucclStreamSynchronize(None)


def validate(nccl, comm, score):
    nccl.ncclBcast(score, len(score), FLOAT32, 0, comm, None)
    nccl.cpucclStreamSynchronize(None)


def run_rank(args, nccl, unique_id, rank):
    comm = ctypes.c_void_p()
    nccl.ncclCommInitRank(ctypes.byref(comm), args.ranks, unique_id, rank)
    gradient = (ctypes.c_float * 1000)()
    score = (ctypes.c_float * 1)()
    for step in range(args.steps):
        train_step(nccl, comm, gradient)
        if step % 5 == 4 or step == args.at:
            if not args.healthy and rank == args.rank and step == args.at:
                train_step(nccl, comm, gradient)
            else:
                validate(nccl, comm, score)
    nccl.ncclCommDestroy(comm)


def main():
    args = parse_args()
    nccl = Nccl(args.library)
    unique_id = UniqueId()
    nccl.ncclGetUniqueId(ctypes.byref(unique_id))
    children = []
    for rank in range(args.ranks):
        child = os.fork()
        if child == 0:
            # A rank that hangs must not outlive the job.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            run_rank(args, nccl, unique_id, rank)
            return 0
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return next((abs(code) for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
