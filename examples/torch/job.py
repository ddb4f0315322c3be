"""What the example jobs share: forks the ranks from one import of torch, makes the process group, notes calls.

A job is an ordinary training script. Run as it is, it forks its ranks itself (one import of torch for all of them, so it
takes seconds); under torchrun it is one rank.
"""

import argparse
import datetime
import os
import signal
import socket
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.parallel  # noqa: F401  imported once, before the ranks are forked

warnings.filterwarnings("ignore")
if not torch.__version__.startswith("1."):
    import torch._dynamo  # noqa: F401  optimizers and DDP of torch 2 import it in every rank

TYPES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.int32: "i32"}
PR_SET_PDEATHSIG = 1


def arguments(description, faults=(), ranks=4):
    """The options that all jobs have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", action="store_true", help="run without the fault")
    parser.add_argument("--ranks", type=int, default=ranks)
    parser.add_argument("--timeout", type=float, default=8.0, help="seconds that torch waits for other ranks")
    if faults:
        parser.add_argument("--fault", choices=faults, default=faults[0])
    return parser


class Job:
    """One rank of a job, and its log of its own calls (RANKDIFF_JOB_LOG, see examples/README.md)."""

    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        self.faulty = not args.clean
        self.ordinal = 0
        folder = os.environ.get("RANKDIFF_JOB_LOG")
        self.log = open(os.path.join(folder, f"rank-{rank}.log"), "w", buffering=1) if folder else None

    def note(self, function, tensor=None, root=None, op=None, group="world"):
        """Notes a call that is made next."""
        if self.log is None:
            return
        count = "-" if tensor is None else tensor.numel()
        dtype = "-" if tensor is None else TYPES[tensor.dtype]
        given = ["-" if value is None else value for value in (root, op)]
        self.log.write(f"0 {self.ordinal} {function} {group} {count} {dtype} {given[0]} {given[1]}\n")
        self.ordinal += 1

    def note_gradients(self, model):
        """Notes the all-reduce of a DDP model's gradients: all of them fit one bucket."""
        numel = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        self.note("allreduce", torch.empty(numel), op="sum")

    def say(self, text):
        print(f"[rank {self.rank}] {text}", file=sys.stderr, flush=True)


def run_rank(main, args, rank, world):
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout))
    job = Job(args, rank, world)
    try:
        main(job)
    except Exception as error:
        job.say(f"{type(error).__name__}: {error}")
        return 1
    return 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(main, args):
    """Runs `main(job)` in every rank and ends the process: 0 if every rank ended with 0."""
    if "RANK" in os.environ:
        sys.exit(run_rank(main, args, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(args.ranks))
    launcher = os.getpid()
    ranks = []
    for rank in range(args.ranks):
        child = os.fork()
        if child == 0:
            die_with(launcher)
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            code = 1
            try:
                code = run_rank(main, args, rank, args.ranks)
            finally:
                sys.stderr.flush()
                os._exit(code)
        ranks.append(child)
    sys.exit(wait_for(ranks))


def die_with(launcher):
    """A rank that hangs must not outlive the job."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(1)


def wait_for(ranks, grace=12.0):
    """Waits for all ranks; ends what is left some seconds after the first that failed."""
    running, failed, deadline = set(ranks), False, None
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in running:
            running.discard(child)
            if status != 0 and not failed:
                failed, deadline = True, time.monotonic() + grace
        elif deadline is not None and time.monotonic() > deadline:
            for rank in running:
                os.kill(rank, signal.SIGKILL)
            deadline = float("inf")
        elif child == 0:
            time.sleep(0.05)
    return 1 if failed else 0
