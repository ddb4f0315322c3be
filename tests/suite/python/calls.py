"""Makes collective calls from every kind of Python frame, and logs the stack of each as Python itself has it.

    calls.py MODE LIBRARY HELPER LOG CALLS

MODE: shapes (one process, a thread that fights for the GIL) or crowd (8 processes of 4 threads, each with its own function).
LOG: a folder; per process one file, per call one line: the call's count, its kind, the frames, outermost first.
"""

import ctypes
import json
import os
import sys
import threading

MODE, LIBRARY, HELPER, LOG, CALLS = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
FLOAT32, SUM = 7, 0
pointer = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def load(kind, path):
    library = kind(path)
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), ctypes.c_int, UniqueId, ctypes.c_int]
    library.ncclAllReduce.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, pointer, pointer]
    return library


# One releases the GIL around each call, the other holds it.
LIBRARIES = [load(ctypes.CDLL, LIBRARY), load(ctypes.PyDLL, LIBRARY)]
HELPERS = [ctypes.CDLL(HELPER), ctypes.PyDLL(HELPER)]
BUFFER = (ctypes.c_float * (CALLS + 1000))()
lock = threading.Lock()
made = 0
local = threading.local()
log = None


def communicator():
    """The communicator of this thread: no two threads use one at a time."""
    if not hasattr(local, "comm"):
        unique_id, comm = UniqueId(), pointer()
        LIBRARIES[0].ncclGetUniqueId(ctypes.byref(unique_id))
        LIBRARIES[0].ncclCommInitRank(ctypes.byref(comm), 1, unique_id, 0)
        local.comm = comm
    return local.comm


def stack(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames[::-1]


def number(kind, depth=1):
    """Logs the stack of the caller; gives the count by which its call is found."""
    global made
    line = stack(sys._getframe(depth))
    with lock:
        made += 1
        count = made
        log.write(json.dumps({"pid": os.getpid(), "count": count, "kind": kind, "frames": line}) + "\n")
    return count


def choose():
    return LIBRARIES[made % 2]


def call():
    comm = communicator()
    choose().ncclAllReduce(BUFFER, BUFFER, number("own"), FLOAT32, SUM, comm, None)


class Layer:
    def reduce(self):
        comm = communicator()
        library = choose()
        # The call is on the line where it begins.
        return library.ncclAllReduce(BUFFER, BUFFER, number("own"), FLOAT32,
                                     SUM, comm, None)

    @property
    def value(self):
        return self.reduce()

    @staticmethod
    def plain():
        call()


def nested(depth):
    if depth == 0:
        return Layer().reduce()
    return nested(depth - 1)


def generator():
    for step in range(2):
        call()
        yield (lambda depth:
               nested(depth))(step)


def decorated(function):
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@decorated
def closure(depth):
    def inner():
        call() if depth % 2 else nested(depth)

    try:
        inner()
    finally:
        Layer.plain()


def dynamic(turn):
    # Each turn frees its code object, and the next one takes its place: other lines, other files.
    text = "\n" * (turn % 97) + "nested(0)\n" + "def made(): call()\n" + "made()\n"
    exec(compile(text, "<dynamic %d>" % (turn % 13), "exec"), dict(nested=nested, call=call))
    eval("call()")


def in_native_thread(helper):
    comm = communicator()
    function = ctypes.cast(LIBRARIES[0].ncclAllReduce, pointer)
    helper.call_in_thread(function, BUFFER, ctypes.c_size_t(number("native")), comm)


def deep(depth):
    if depth == 0:
        call()
    else:
        deep(depth - 1)


def turn(index):
    call(); call()
    nested(index % 9)
    for _ in generator():
        pass
    sorted([2, 1], key=lambda item: nested(1) or item)
    [call() for _ in range(2)]
    closure(index)
    Layer().value

    class Body:
        call()

    dynamic(index)
    if index % 8 == 0:
        # Both at once would wait for each other: the thread takes the lock of the C library only.
        in_native_thread(HELPERS[index // 8 % 2])
        deep(60)


def worker(stop):
    while not stop.is_set():
        nested(2)
        stop.wait(0.002)


def hog(stop):
    turns = 0
    while not stop.is_set():
        turns += 1


def shapes():
    stop = threading.Event()
    threads = [threading.Thread(target=target, args=(stop,), daemon=True) for target in (hog, worker)]
    for thread in threads:
        thread.start()
    index = 0
    while made < CALLS:
        turn(index)
        index += 1
    stop.set()
    for thread in threads:
        thread.join()


def crowd():
    children = []
    for process in range(8):
        child = os.fork()
        if child == 0:
            run_process(process)
            os._exit(0)
        children.append(child)
    failed = [status for child in children for status in [os.waitpid(child, 0)[1]] if status != 0]
    sys.exit(1 if failed else 0)


def run_process(process):
    open_log()
    scope = {"call": call, "nested": nested}
    threads = []
    for thread in range(4):
        name = "own_%d_%d" % (process, thread)
        text = "\n" * (100 * process + 10 * thread) + "def %s(calls):\n for _ in range(calls):\n  call()\n  nested(1)\n" % name
        exec(compile(text, "/job/%s.py" % name, "exec"), scope)
        threads.append(threading.Thread(target=scope[name], args=(CALLS // 64 + 1,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()


def open_log():
    global log
    log = open(os.path.join(LOG, "%d.log" % os.getpid()), "w")


def main():
    open_log()
    if MODE == "crowd":
        crowd()
    else:
        shapes()
    log.close()


main()
